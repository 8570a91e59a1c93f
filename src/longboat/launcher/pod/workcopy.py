"""The working copy of a pod, made from packs: gzip tars of objects named by their sha256.

Nothing is trusted because it came through the cluster: every name is checked before anything is written, every object
against its own name. Large objects may come in parts, `<sha256>.0`, `<sha256>.1`, ..., in this order.
"""

from __future__ import annotations

import os
import zlib

from ..vendored import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

_BLOCK = 512
_CHUNK = 1 << 18


class CodeError(Exception):
    """The code cannot be unpacked; the message is for the user."""


class _Entry:
    """A file or link of the gang file: path, kind, hash, executable, target."""

    __slots__ = ("executable", "hash", "kind", "path", "size", "target")

    def __init__(self, raw: Sequence[Any]) -> None:
        path, kind, digest, executable, target = raw
        if kind not in ("file", "link"):
            raise ValueError("%r has the unknown kind %r" % (path, kind))
        self.path = str(path)
        self.kind = str(kind)
        self.hash = str(digest or "")
        self.executable = bool(executable)
        self.target = str(target or "")
        self.size = 0


class _Object:
    """A content object being written into the first file that has it."""

    def __init__(self, places: list[tuple[str, bool]]) -> None:
        import hashlib

        self.places = places
        self.parts = 0
        self._digest = hashlib.sha256()
        os.close(_create(*places[0]))

    def add(self, pack: _Pack, size: int) -> None:
        descriptor = os.open(self.places[0][0], os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        try:
            while size:
                data = pack.read(min(size, _CHUNK))
                size -= len(data)
                self._digest.update(data)
                _write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def finish(self, name: str) -> None:
        if self._digest.hexdigest() != name:
            raise CodeError("the code is damaged: an object is not what its name %s says" % name[:12])
        for place, executable in self.places[1:]:
            source = os.open(self.places[0][0], os.O_RDONLY)
            target = _create(place, executable)
            try:
                data = os.read(source, _CHUNK)
                while data:
                    _write_all(target, data)
                    data = os.read(source, _CHUNK)
            finally:
                os.close(source)
                os.close(target)


class _Pack:
    """A gzip file, read as a stream."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY)
        self._inflate = zlib.decompressobj(31)
        self._ready = b""

    def read(self, size: int) -> bytes:
        """Read exactly this many bytes; b"" at the end."""
        parts, left = [], size
        while left:
            if not self._ready and not self._more():
                break
            part = self._ready[:left]
            self._ready = self._ready[left:]
            parts.append(part)
            left -= len(part)
        if left and left != size:
            raise CodeError("%s: the pack ends too early" % self._path)
        return b"".join(parts)

    def _more(self) -> bool:
        while not self._ready and not self._inflate.eof:
            data = self._inflate.unconsumed_tail or os.read(self._fd, _CHUNK)
            if not data:
                raise CodeError("%s: the pack ends too early" % self._path)
            self._ready = self._inflate.decompress(data, _CHUNK)
        return bool(self._ready)

    def skip(self, size: int) -> None:
        while size > 0:
            data = self.read(min(size, _CHUNK))
            if not data:
                raise CodeError("%s: the pack ends too early" % self._path)
            size -= len(data)

    def close(self) -> None:
        os.close(self._fd)


def lay_out(entries: Sequence[Sequence[Any]], packs: Sequence[str], target: str) -> None:
    """Unpack the code into the empty folder `target`. Raises CodeError."""
    try:
        files = [_Entry(raw) for raw in entries]
        load("bundles.trees").check_tree(files)
    except Exception as error:
        raise CodeError("the list of the code's files cannot be used: %s" % error) from None
    wanted: dict[str, list[tuple[str, bool]]] = {}
    made = {""}
    for entry in files:
        folder = entry.path.rpartition("/")[0]
        if folder not in made:
            os.makedirs(os.path.join(target, folder), exist_ok=True)
            made.add(folder)
        if entry.kind == "file":
            wanted.setdefault(entry.hash, []).append((os.path.join(target, entry.path), entry.executable))
    try:
        _unpack(packs, wanted)
        for entry in files:
            if entry.kind == "link":
                os.symlink(entry.target, os.path.join(target, entry.path))
    except zlib.error as error:
        raise CodeError("the code is damaged: %s" % error) from None
    except OSError as error:
        raise CodeError("%s: %s" % (error.filename or target, error.strerror or error)) from None


def _unpack(packs: Sequence[str], wanted: dict[str, list[tuple[str, bool]]]) -> None:
    objects = {name: _Object(places) for name, places in wanted.items()}
    for path in packs:
        pack = _Pack(path)
        try:
            _unpack_one(pack, path, objects)
        finally:
            pack.close()
    for name, content in objects.items():
        content.finish(name)


def _unpack_one(pack: _Pack, path: str, objects: dict[str, _Object]) -> None:
    while True:
        header = pack.read(_BLOCK)
        if not header.strip(b"\0"):
            return
        try:
            name = header[:100].rstrip(b"\0").decode("ascii")
            size = int(header[124:136].rstrip(b"\0 ") or b"0", 8)
        except ValueError:
            raise CodeError("%s: not a pack" % path) from None
        name, _, part = name.partition(".")
        content = objects.get(name) if header[156:157] in (b"0", b"\0") else None
        if content is not None and int(part or 0) == content.parts:
            content.parts += 1
            content.add(pack, size)
        else:
            pack.skip(size)  # another run's, or one that came before
        pack.skip(-size % _BLOCK)


def _create(place: str, executable: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.open(place, flags, 0o777 if executable else 0o666)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
