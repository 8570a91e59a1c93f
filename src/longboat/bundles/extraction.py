"""Safe extraction of archives of strangers: tar (plain, gzip, bzip2, xz) and zip. Nothing is ever written outside the
target.

Refused: names that lead out, absolute ones, odd or repeated ones, links that leave the tree, devices, pipes, archives
that grow without measure. Links are made last, so no file is written through one. Owners and times are not taken over.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from longboat.bundles.checkout import filling
from longboat.bundles.disk import explain, write_all
from longboat.bundles.source.limits import size_text
from longboat.bundles.trees import DEFAULT_LIMITS, TreeLimits, check_links, check_name
from longboat.core.errors import BundleError

_CHUNK = 1 << 20
_MAX_HEADER_BYTES = 8 << 20  # long names and pax records need kilobytes; a header that says more wants our memory
_MAX_ZIP_LINK = 4096  # PATH_MAX: no link's target is longer
DAMAGED: tuple[type[Exception], ...] = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    RuntimeError,
    ValueError,
)
try:
    import lzma

    DAMAGED += (lzma.LZMAError,)
except ImportError:  # a Python built without it; such archives are refused below
    pass


def extract(archive: Path, target: Path, limits: TreeLimits = DEFAULT_LIMITS) -> None:
    """Unpack into `target`, which is absent or empty; on any failure nothing is left of it. Raises BundleError."""
    name = os.fspath(archive)
    try:
        with open(archive, "rb") as file:
            packed = os.fstat(file.fileno()).st_size
            with filling(target) as root:
                tree = _Tree(root, name, packed, limits)
                _unpack(file, tree)
                tree.make_links()
    except OSError as error:
        raise explain(error, name) from None


def _unpack(file: BinaryIO, tree: _Tree) -> None:
    start = file.read(6)
    file.seek(0)
    try:
        if start.startswith((b"PK\3\4", b"PK\5\6")):
            _unpack_zip(file, tree)
        else:
            _unpack_tar(open_compressed(file, start, tree.limits, tree.packed), tree)
    except DAMAGED as error:
        raise tree.refusal(f"it is damaged or not an archive: {error}") from None
    except OSError as error:
        if error.errno is None:  # what the decompressors raise for bad data
            raise tree.refusal(f"it is damaged: {error}") from None
        raise


class _Tree:
    """What has been unpacked so far, and whether the next member may follow."""

    def __init__(self, root: str, archive: str, packed: int, limits: TreeLimits) -> None:
        self.archive = archive
        self.packed = packed
        self.limits = limits
        self._root = root
        self._kinds: dict[str, str] = {}
        self._links: dict[str, str] = {}
        self._size = 0
        self._count = 0

    def refusal(self, reason: str) -> BundleError:
        return BundleError(f"{self.archive}: {reason}")

    def grow(self, size: int) -> None:
        """Count one member and the bytes it will have, before they are written."""
        self._count += 1
        self._size += size
        if self._count > self.limits.max_files:
            raise self.refusal(f"it has more than {self.limits.max_files:,} members")
        if size < 0 or self._size > self.limits.max_bytes:
            raise self.refusal(f"unpacked it is larger than {size_text(self.limits.max_bytes)}")
        check_ratio(self._size, self.packed, self.limits, self.archive)

    def _clean(self, raw: str) -> str:
        """The name without `./` and the like; "" for the root itself."""
        if raw.startswith("/") or any(ord(char) < 32 or ord(char) == 127 for char in raw):
            raise self.refusal(f"the name {raw!r} is not allowed")
        name = "/".join(part for part in raw.split("/") if part not in ("", "."))
        try:
            if name:
                check_name(name)
        except BundleError as error:
            raise self.refusal(error.message) from None
        return name

    def _check_new(self, name: str, kind: str) -> None:
        if not name or (name in self._kinds and (kind, self._kinds[name]) != ("folder", "folder")):
            raise self.refusal(f"{name!r} occurs twice" if name else "it has a member without a name")

    def _claim(self, raw: str, kind: str) -> str:
        """The clean name of a file or link, its folders made."""
        name = self._clean(raw)
        self._check_new(name, kind)
        self._make_folders(name.rpartition("/")[0])
        self._kinds[name] = kind
        return name

    def _make_folders(self, folder: str) -> None:
        missing = []
        while folder and self._kinds.get(folder) != "folder":
            if folder in self._kinds:
                raise self.refusal(f"{folder!r} is a {self._kinds[folder]}, yet something lies below it")
            missing.append(folder)
            folder = folder.rpartition("/")[0]
        for folder in reversed(missing):
            os.mkdir(f"{self._root}/{folder}")
            self._kinds[folder] = "folder"

    def folder(self, raw: str) -> None:
        self.grow(0)
        if name := self._clean(raw):
            self._check_new(name, "folder")
            self._make_folders(name)

    def file(self, raw: str, reader: IO[bytes], size: int, executable: bool) -> None:
        self.grow(size)
        place = f"{self._root}/{self._claim(raw, 'file')}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(place, flags, 0o777 if executable else 0o666)
        try:
            left = size
            while left:
                data = reader.read(min(_CHUNK, left))
                if not data:
                    raise self.refusal(f"it ends within {raw!r}")
                write_all(fd, data)
                left -= len(data)
        finally:
            os.close(fd)

    def same_file(self, raw: str, of: str) -> None:
        """A hard link, unpacked as a copy; only a file of this archive may be meant."""
        name = "/".join(part for part in of.split("/") if part not in ("", "."))
        if of.startswith("/") or self._kinds.get(name) != "file":
            raise self.refusal(f"the link {raw!r} is to {of!r}, which is no earlier file of the archive")
        with open(f"{self._root}/{name}", "rb") as reader:
            info = os.fstat(reader.fileno())
            self.file(raw, reader, info.st_size, bool(info.st_mode & stat.S_IXUSR))

    def link(self, raw: str, target: str) -> None:
        self.grow(0)
        self._links[self._claim(raw, "link")] = target

    def make_links(self) -> None:
        try:
            check_links(self._links)
        except BundleError as error:
            raise self.refusal(error.message) from None
        for name, target in self._links.items():
            os.symlink(target, f"{self._root}/{name}")


def _unpack_tar(file: IO[bytes], tree: _Tree) -> None:
    with tarfile.open(fileobj=file, mode="r:") as tar:
        while (member := tar.next()) is not None:
            if member.isdir():
                tree.folder(member.name)
            elif member.isreg():
                reader = tar.extractfile(member)
                if reader is None:
                    raise tree.refusal(f"{member.name!r} cannot be read")
                tree.file(member.name, reader, member.size, bool(member.mode & stat.S_IXUSR))
            elif member.islnk():
                tree.same_file(member.name, member.linkname)
            elif member.issym():
                tree.link(member.name, member.linkname)
            else:
                raise tree.refusal(f"{member.name!r} is a device or a pipe")
            # A million of them would fill the memory.
            tar.members.clear()  # type: ignore[attr-defined]


def _unpack_zip(file: BinaryIO, tree: _Tree) -> None:
    with zipfile.ZipFile(file) as pack:
        members = pack.infolist()
        if len(members) > tree.limits.max_files or sum(member.file_size for member in members) > tree.limits.max_bytes:
            size = size_text(tree.limits.max_bytes)
            raise tree.refusal(f"it has more than {tree.limits.max_files:,} members or is larger than {size}")
        for member in members:
            mode = member.external_attr >> 16 if member.create_system == 3 else 0
            kind = stat.S_IFMT(mode)
            if "\\" in member.filename:
                raise tree.refusal(f"the name {member.filename!r} is not allowed")
            if member.is_dir():
                tree.folder(member.filename)
            elif kind not in (0, stat.S_IFREG, stat.S_IFLNK):
                raise tree.refusal(f"{member.filename!r} is a device or a pipe")
            else:
                _unpack_zip_member(pack, member, mode, tree)


def _unpack_zip_member(pack: zipfile.ZipFile, member: zipfile.ZipInfo, mode: int, tree: _Tree) -> None:
    if member.flag_bits & 1:
        raise tree.refusal(f"{member.filename!r} is encrypted")
    with pack.open(member) as reader:
        if not stat.S_ISLNK(mode):
            tree.file(member.filename, reader, member.file_size, bool(mode & stat.S_IXUSR))
            return
        target = reader.read(_MAX_ZIP_LINK)
        try:
            tree.link(member.filename, target.decode())
        except UnicodeDecodeError:
            raise tree.refusal(f"the link {member.filename!r} has an odd target") from None


def check_ratio(size: int, packed: int, limits: TreeLimits, archive: str) -> None:
    if size > limits.ratio_from and size > packed * limits.max_ratio:
        raise BundleError(f"{archive}: it grows more than {limits.max_ratio} times when unpacked, so it is not trusted")


class BombGuard:
    """A decompressed stream for tarfile that ends bombs: no header is read that would fill the memory, and no stream is
    followed that grows without measure."""

    def __init__(self, file: Any, limits: TreeLimits, packed: int, name: str) -> None:
        self._file = file
        self._limits = limits
        self._packed = packed
        self._name = name

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > _MAX_HEADER_BYTES:
            raise BundleError(f"{self._name}: a header of the archive is too large")
        data: bytes = self._file.read(size)
        if self._packed:
            check_ratio(self._file.tell(), self._packed, self._limits, self._name)
        return data

    def seek(self, place: int, whence: int = 0) -> int:
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        return int(self._file.tell())


def open_compressed(file: BinaryIO, start: bytes, limits: TreeLimits, packed: int) -> IO[bytes]:
    """The decompressed content, chosen by the first bytes."""
    stream: Any = file
    try:
        if start.startswith(b"\x1f\x8b"):
            import gzip

            stream = gzip.GzipFile(fileobj=file, mode="rb")
        elif start.startswith(b"BZh"):
            import bz2

            stream = bz2.BZ2File(file)
        elif start.startswith(b"\xfd7zXZ\0"):
            stream = lzma.LZMAFile(file)
    except (ImportError, NameError):
        raise BundleError(f"{file.name}: this Python cannot read such a compression") from None
    guarded: Any = BombGuard(stream, limits, packed, file.name)
    return cast(IO[bytes], guarded)
