"""Program for file access that exec runs inside a pod: the text of this file is sent there. Standard library only.

Python 3.8 or newer. Files out and in as tar streams, a file from some byte on, names, removal, measuring a disk. Paths
come checked and absolute (`pod_exec`); a tree is never written through a link inside it. Exit code 44: no such file;
45: something else, told in one line on stderr.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import sys
import tarfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from io import RawIOBase
    from typing import Any, BinaryIO

    Chosen = Callable[[tarfile.TarInfo], "tarfile.TarInfo | None"]

MISSING = 44  # exit codes of our program in the pod: no shell or Python uses them
TROUBLE = 45
BLOCK = 1 << 18  # one websocket frame carries so much


def main(words: list[str]) -> None:
    verbs: dict[str, Any] = {
        "cat": cat,
        "names": names,
        "pack": pack,
        "unpack": unpack,
        "put": put_file,
        "remove": remove,
        "remove_named": remove_named,
        "probe": probe,
        "beside": beside,
        "which": which,
    }
    try:
        verbs[words[0]](*words[1:])
        sys.stdout.flush()
    except (FileNotFoundError, NotADirectoryError) as error:
        leave(MISSING, error)
    except BrokenPipeError:
        os._exit(TROUBLE)
    except (OSError, tarfile.TarError, ValueError, EOFError) as error:
        leave(TROUBLE, error)


def leave(code: int, error: BaseException) -> None:
    text = getattr(error, "strerror", None) or str(error)
    name = getattr(error, "filename", None)
    sys.stderr.write(f"{name}: {text}\n" if name else f"{text}\n")
    sys.stderr.flush()
    os._exit(code)


def cat(path: str, offset: str) -> None:
    """A file from a byte on."""
    with open(path, "rb") as file:
        file.seek(int(offset))
        shutil.copyfileobj(file, sys.stdout.buffer, BLOCK)


def names(folder: str) -> None:
    sys.stdout.write(json.dumps(sorted(os.listdir(folder))))


def pack(path: str) -> None:
    pack_to(path, os.path.basename(path) or "root", sys.stdout.buffer)


def pack_to(path: str, name: str, out: BinaryIO) -> None:
    """A file or folder as a tar stream, under this name. Pipes, sockets and devices stay behind."""

    def chosen(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member if member.isfile() or member.isdir() or member.issym() or member.islnk() else None

    os.stat(path)
    # A link that the caller names is followed, those below are kept as links.
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, bufsize=BLOCK) as tar:
        add(tar, os.path.realpath(path), name, chosen)


def add(tar: tarfile.TarFile, path: str, name: str, chosen: Chosen) -> None:
    """As TarFile.add, but files may grow, shrink or vanish while they are read: a run is at work here."""
    try:
        member = chosen(tar.gettarinfo(path, name))
        if member is None:
            return
        if member.islnk():  # a second name of a file that was sent already; it may differ by now
            member.type, member.linkname = tarfile.REGTYPE, ""
            member.size = os.stat(path).st_size
        if member.isreg():
            with open(path, "rb") as file:
                member.size = os.fstat(file.fileno()).st_size
                tar.addfile(member, ExactReader(file, member.size))
        else:
            tar.addfile(member)
        if member.isdir():
            for child in sorted(os.listdir(path)):
                add(tar, os.path.join(path, child), name + "/" + child, chosen)
    except FileNotFoundError:
        return


class ExactReader:
    """Reads as many bytes as the header said; a file that became shorter ends with zeros."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file = file
        self.left = size

    def read(self, size: int = -1) -> bytes:
        size = min(size, self.left) if size >= 0 else self.left
        data = self.file.read(size)
        self.left -= size
        return data + b"\0" * (size - len(data))


class FramedInput:
    """Input in frames, each after its length, the last one empty: older API servers cannot pass on that it has ended,
    and of one that broke it is known that it did."""

    def __init__(self, source: BinaryIO) -> None:
        self.source = source
        self.left = 0
        self.is_over = False

    def read(self, size: int = -1) -> bytes:
        if not self.left and not self.is_over:
            self.left = int.from_bytes(self._exactly(4), "big")
            self.is_over = not self.left
        data = self._exactly(min(size, self.left) if size >= 0 else self.left)
        self.left -= len(data)
        return data

    def _exactly(self, count: int) -> bytes:
        data = self.source.read(count)
        if len(data) < count:
            raise EOFError("the connection broke before everything was here")
        return data


def unpack(target: str, name: str) -> None:
    """The tar stream on stdin, in frames, becomes `target`, or `target/name` where that is a folder; folders merge."""
    if os.path.isdir(target):
        target = os.path.join(target, name)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    stream: Any = FramedInput(sys.stdin.buffer)
    with tarfile.open(fileobj=stream, mode="r|", bufsize=BLOCK) as tar:
        for member in tar:
            put(tar, member, target)


def put_file(path: str) -> None:
    """What comes on stdin, in frames, becomes the file, all of it or nothing."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}.part"
    try:
        with open(temporary, "xb") as file:
            shutil.copyfileobj(FramedInput(sys.stdin.buffer), file, BLOCK)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def put(tar: tarfile.TarFile, member: tarfile.TarInfo, target: str) -> None:
    parts = member.name.split("/")
    if member.name.startswith("/") or ".." in parts:
        raise ValueError(f"the name {member.name!r} is not allowed")
    # The first part is the name of what was sent: `target` stands for it.
    inner = [part for part in parts[1:] if part not in ("", ".")]
    place = os.path.join(target, *inner)
    for depth in range(len(inner)):
        if os.path.islink(os.path.join(target, *inner[:depth])) and depth:
            raise ValueError(f"{place}: would be written through a link")
    if member.isdir():
        os.makedirs(place, exist_ok=True)
        return
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.islink(place) or (os.path.exists(place) and not os.path.isdir(place)):
        os.unlink(place)
    if member.issym():
        os.symlink(member.linkname, place)
    elif member.isfile():
        source = tar.extractfile(member)
        if source is None:
            raise ValueError(f"{member.name!r} cannot be read")
        with open(place, "xb") as file:
            shutil.copyfileobj(source, file, BLOCK)
        os.chmod(place, 0o755 if member.mode & stat.S_IXUSR else 0o644)
    else:
        raise ValueError(f"{member.name!r} is a device, a pipe or a hard link")


def remove(path: str) -> None:
    """A file or folder; what is gone already is fine. Folders that a trainer made read-only go too."""

    def retry(function: object, name: str, _info: object) -> None:
        if not os.path.lexists(name):
            return
        os.chmod(os.path.dirname(name), 0o700)
        if os.path.isdir(name) and not os.path.islink(name):
            os.chmod(name, 0o700)
            shutil.rmtree(name)
        else:
            os.unlink(name)

    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    elif os.path.isdir(path):
        shutil.rmtree(path, onerror=retry)


def remove_named(folder: str, folders: str, files: str) -> None:
    """Folders and plain files right below that have these names, then the folder if empty; what stays, as JSON."""
    rest = []
    children = list(os.scandir(folder)) if os.path.isdir(folder) else []
    for child in children:
        is_folder = child.is_dir(follow_symlinks=False)
        is_wanted = is_folder or child.is_file(follow_symlinks=False)
        if is_wanted and re.fullmatch(folders if is_folder else files, child.name, re.DOTALL):
            remove(child.path)
        else:
            rest.append(child.name)
    if not rest and os.path.isdir(folder):
        os.rmdir(folder)
    sys.stdout.write(json.dumps(sorted(rest)))


def beside(node: str, rank: str, *command: str) -> None:
    """Become the command, in the working copy and with the environment of a rank; of the node when `rank` is empty."""
    plan = json.loads(read_text(os.path.join(node, "plan.json")))
    variables = environment(node, plan, rank)
    os.chdir(plan["workdir"])
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and what it ignores its successor would too
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), variables)
    except FileNotFoundError as error:
        if shutil.which(command[0], path=variables.get("PATH")) is None:
            os._exit(127)  # the caller looks for it and says so
        leave(127, error)
    except OSError as error:
        leave(126, error)


def which(node: str, rank: str, name: str) -> None:
    """Whether the command would be found; exit code 44 if not."""
    plan = json.loads(read_text(os.path.join(node, "plan.json")))
    os.chdir(plan["workdir"])
    if shutil.which(name, path=environment(node, plan, rank).get("PATH")) is None:
        raise FileNotFoundError(name)


def environment(node: str, plan: dict[str, Any], rank: str) -> dict[str, str]:
    """What the rank itself was given, as long as it lives; else put together again from the plan."""
    chosen = [plan_of_rank for plan_of_rank in plan["ranks"] if rank in ("", str(plan_of_rank["rank"]))][:1]
    if rank and not chosen:
        raise FileNotFoundError(f"rank {rank} is not on this node")
    for plan_of_rank in chosen:
        variables_there = of_process(node, str(plan_of_rank["rank"]))
        if variables_there:
            return variables_there
    unset = plan.get("unset") or []
    variables = {name: value for name, value in os.environ.items() if not matches(name, unset)}
    variables.update(plan["env"])
    for plan_of_rank in chosen:
        variables.update(plan_of_rank["env"])
    path = [*(plan.get("path_prepend") or []), variables.get("PATH", os.defpath), *(plan.get("path_append") or [])]
    variables["PATH"] = os.pathsep.join(path)
    libraries = [*(plan.get("library_path") or []), variables.get("LD_LIBRARY_PATH", "")]
    if any(libraries):
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    variables["LONGBOAT_CHECKPOINT_DIR"] = plan.get("checkpoint_dir") or ""
    variables["LONGBOAT_ARTIFACTS_DIR"] = plan.get("artifacts_dir") or ""
    return variables


def of_process(node: str, rank: str) -> dict[str, str]:
    try:
        pid = json.loads(read_text(os.path.join(node, "beat.json")))["ranks"][rank]["pid"]
        with open(f"/proc/{int(pid)}/environ", "rb") as file:
            text = file.read()
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    pairs = (item.partition("=") for item in os.fsdecode(text).split("\0") if "=" in item)
    return {name: value for name, _, value in pairs}


def matches(name: str, patterns: list[str]) -> bool:
    from fnmatch import fnmatchcase

    return any(fnmatchcase(name, pattern) for pattern in patterns)


def read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def probe(folder: str, size: str, files: str, file_size: str) -> None:
    """Figures of the disk below `folder`, as JSON. What is written is removed again, whatever happens."""
    needed = int(size) + int(files) * int(file_size)
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < 2 * needed:
        raise ValueError(f"only {disk.f_bavail * disk.f_frsize >> 20} MiB are free, too little to write {needed >> 20}")
    place = os.path.join(folder, f".longboat-probe-{os.getpid()}-{os.urandom(4).hex()}")
    os.mkdir(place)
    try:
        figures = measure(place, int(size), int(files), int(file_size))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sys.stdout.write(json.dumps(figures))


def measure(place: str, size: int, files: int, file_size: int) -> dict[str, Any]:
    disk = os.statvfs(place)
    figures: dict[str, Any] = {"free": disk.f_bavail * disk.f_frsize, "total": disk.f_blocks * disk.f_frsize}
    block = os.urandom(1 << 20)
    large = os.path.join(place, "large")
    began = time.perf_counter()
    with open(large, "wb", buffering=0) as file:
        for _ in range(max(1, size >> 20)):
            write_all(file, block)
        os.fsync(file.fileno())
    written = max(1, size >> 20) << 20
    figures["size"] = written
    figures["write_bytes_per_s"] = written / (time.perf_counter() - began)
    figures["is_cold"] = forget(large)
    began = time.perf_counter()
    with open(large, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    figures["read_bytes_per_s"] = written / (time.perf_counter() - began)
    os.unlink(large)
    figures.update(measure_small(place, files, block[:file_size]))
    return figures


def measure_small(place: str, files: int, content: bytes) -> dict[str, Any]:
    """Many small files, as a data set of images has: made (and safe on the disk at the end), then read."""
    paths = [os.path.join(place, str(number // 1000), str(number)) for number in range(files)]
    began = time.perf_counter()
    for number, path in enumerate(paths):
        if number % 1000 == 0:
            os.mkdir(os.path.dirname(path))
        with open(path, "wb", buffering=0) as file:
            write_all(file, content)
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    created = files / (time.perf_counter() - began)
    for path in paths:
        forget(path)
    began = time.perf_counter()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            file.read()
    read = files / (time.perf_counter() - began)
    return {"files": files, "file_size": len(content), "creates_per_s": created, "reads_per_s": read}


def write_all(file: RawIOBase, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def forget(path: str) -> bool:
    """Ask the kernel to drop the file from its memory, so that reading it means the disk. Whether it could be asked."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    except (OSError, AttributeError):
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
