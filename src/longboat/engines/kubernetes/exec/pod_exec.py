"""File access in a pod, by exec: read, write, list, remove. The pod needs Python >= 3.8 and nothing else of ours.

The program that runs there is `pod_program`; it travels along with each command. Which pod, and which paths a user may
name, is not decided here.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import json
import os
import posixpath
import re
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from longboat.bundles.disk import errors_explained
from longboat.bundles.extraction import extract
from longboat.bundles.manifests import TreeLimits
from longboat.bundles.merging import merge
from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.engines.kubernetes.exec import pod_program
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, ObjectNotFound, Unreachable
from longboat.kubeapi.streams.exec import STDOUT, BoundedOutput, ContainerProcess, Session, relay_streams, run_in_pod
from longboat.kubeapi.streams.websocket import WebSocketClosed

T = TypeVar("T")

LIMITS = TreeLimits(max_bytes=1 << 50, max_files=10_000_000)
"""Of what is copied out of a run: the user asked for it, so only what cannot be meant is refused."""
PYTHON_START = (
    "import base64,sys,zlib;exec(zlib.decompress(base64.urlsafe_b64decode(sys.argv.pop(1))),{'__name__':'__main__'})"
)
_ERROR_BYTES = 4096  # of what a program in a pod says went wrong: its end is shown in one line
MOST_ANSWER = 64 << 20
"""Of an answer that is read whole: names of a folder with a million files."""
REMOVE_S = 30.0
"""A removal that an API server or somebody on the way cannot serve now is tried again for as long as other requests."""
SILENT_S = 300.0
"""For so long a program in a pod may find nothing to say: a disk over a network may take minutes for one read."""


_COMMENTS = re.compile(rb'^ *#.*\n|^ *"""[^"]*"""\n', re.MULTILINE)


@functools.lru_cache(maxsize=2)
def program(path: str = pod_program.__file__) -> str:
    """The text of a program without comments, packed: it travels in an address, which should stay short."""
    text = _COMMENTS.sub(b"", Path(path).read_bytes())
    return base64.urlsafe_b64encode(zlib.compress(text, 9)).decode()


def command_of(verb: str, *arguments: str, path: str = pod_program.__file__) -> list[str]:
    """The command that does this in a pod; `path`: the program that has the verb."""
    return ["python3", "-I", "-S", "-c", PYTHON_START, program(path), verb, *arguments]


def check_path(path: str) -> str:
    """An absolute path without any `..`. Raises UsageError."""
    if not path.startswith("/") or posixpath.normpath(path) != path or any(ord(char) < 32 for char in path):
        raise UsageError(f"{path!r} is not a path inside a pod")
    return path


class Remote:
    """One container. Errors: NotFound for a path that is not there, EngineError for the rest."""

    def __init__(self, client: Client, namespace: str | None, pod: str, container: str = "main") -> None:
        self.client = client
        self.namespace = namespace
        self.pod = pod
        self.container = container

    def cat(self, path: str, offset: int = 0) -> Iterator[bytes]:
        """A file from a byte on."""
        return self._output("cat", check_path(path), str(offset))

    def names(self, path: str) -> list[str]:
        """What is in a folder."""
        entries = self.ask("names", check_path(path))
        if not isinstance(entries, list) or not all(isinstance(name, str) for name in entries):
            raise EngineError(f"{self.pod}: the answer is no list of names")
        return entries

    def read(self, path: str) -> Iterator[bytes]:
        """A file or folder as a tar stream."""
        return self._output("pack", check_path(path))

    def copy_out(self, path: str, destination: Path) -> None:
        """A file or folder to here: into `destination` if that is a folder, else under that name."""
        target = destination / (posixpath.basename(path) or "root") if destination.is_dir() else destination
        with errors_explained(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".longboat-cp-", dir=target.parent) as folder:
                archive = Path(folder) / "archive"
                with open(archive, "wb") as file:
                    for block in self.read(path):
                        file.write(block)
                extract(archive, Path(folder) / "tree", LIMITS)
                archive.unlink()
                (copied,) = (Path(folder) / "tree").iterdir()
                settle(copied, target)

    def write(self, path: str, source: BinaryIO, *, name: str) -> None:
        """A tar stream becomes `path`, or `path/name` where that is a folder. Folders are merged."""
        if "/" in name or name in ("", ".", ".."):
            raise UsageError(f"{name!r} is not a name")
        self._run("unpack", check_path(path), name, stdin=source)

    def put(self, path: str, source: BinaryIO) -> None:
        """The bytes of a stream become one file, its folders made."""
        self._run("put", check_path(path), stdin=source)

    def copy_in(self, source: Path, path: str) -> None:
        """A file or folder of this machine into the pod, links as links."""
        name = source.absolute().name or "root"
        with errors_explained(str(source)), piped(lambda out: pod_program.pack_to(str(source), name, out)) as stream:
            self.write(path, stream, name=name)

    def remove(self, path: str) -> None:
        """A file or folder with all in it. What is gone already is fine, so that it may be asked for again."""
        self._again(lambda: self._run("remove", check_path(path)))

    def remove_named(self, folder: str, folders: str, files: str) -> list[str]:
        """Folders and files right in a folder by their names (expressions), then the folder if it is empty; what
        stays."""
        rest: object = self._again(lambda: self.ask("remove_named", check_path(folder), folders, files))
        return [str(name) for name in rest] if isinstance(rest, list) else []

    def _again(self, act: Callable[[], T]) -> T:
        """A removal, repeated while the pod cannot be reached: what is gone already is fine."""
        until = time.monotonic() + REMOVE_S
        while True:
            try:
                return act()
            except Unreachable:
                if time.monotonic() > until:
                    raise
                time.sleep(1.0)

    def run(self, command: Sequence[str], *, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Any command: exit code, stdout, stderr (their beginnings)."""
        out, err = BoundedOutput(MOST_ANSWER), BoundedOutput(_ERROR_BYTES)
        code = run_in_pod(
            self.client,
            self.pod,
            command,
            namespace=self.namespace,
            container=self.container,
            stdin=stdin,
            stdout=out,
            stderr=err,
        )
        return code, out.getvalue(), err.getvalue()

    def ask(self, verb: str, *arguments: str, path: str = pod_program.__file__) -> Any:
        """A verb of `pod_program`, or of the program at `path`, that answers in JSON. Raises EngineError for an answer
        that is none, or has no end."""
        parts, size = [], 0
        for part in self._output(verb, *arguments, path=path):
            parts.append(part)
            size += len(part)
            if size > MOST_ANSWER:
                raise EngineError(f"{self.pod}: the answer is longer than {MOST_ANSWER >> 20} MiB")
        try:
            return json.loads(b"".join(parts))
        except (ValueError, RecursionError):
            raise EngineError(f"{self.pod}: the answer is not understood") from None

    def _output(self, verb: str, *arguments: str, path: str = pod_program.__file__) -> Iterator[bytes]:
        command = tuple(command_of(verb, *arguments, path=path))
        place = ContainerProcess(self.pod, self.namespace, self.container, command)
        said = b""
        with self._explained(), contextlib.closing(Session(self.client, place, stdin=False, tty=False)) as session:
            try:
                while True:
                    message = session.receive(SILENT_S)
                    if message is None:
                        raise EngineError(f"{self.pod}: no answer for {SILENT_S:.0f} s")
                    if message[0] == STDOUT:
                        yield message[1]
                    else:
                        said = (said + message[1])[-_ERROR_BYTES:]
            except WebSocketClosed:
                self._check(session.exit_code(), said, arguments)

    def _run(self, verb: str, *arguments: str, stdin: BinaryIO | None = None) -> None:
        said = BoundedOutput(_ERROR_BYTES)
        place = ContainerProcess(self.pod, self.namespace, self.container, tuple(command_of(verb, *arguments)))
        with self._explained():
            session = Session(self.client, place, stdin=stdin is not None, tty=False, needs_end=False)
            code = relay_streams(
                session, cast(BinaryIO, FramedOutput(stdin)) if stdin is not None else None, None, said
            )
        self._check(code, said.getvalue(), arguments)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ObjectNotFound as error:
            raise NotFound(f"the pod {self.pod} is gone", hint="`longboat status` tells how it ended") from error
        except ApiError as error:
            if "executable file not found" in error.message or "no such file or directory" in error.message:
                raise EngineError(
                    f"the image of {self.pod} has no python3", hint="use an image with Python 3.8 or newer"
                ) from error
            raise

    def _check(self, code: int, said: bytes, arguments: Sequence[str]) -> None:
        if code == 0:
            return
        lines = said.decode("utf-8", "replace").strip().splitlines() or [f"exit code {code}"]
        if code == pod_program.MISSING:
            raise NotFound(f"{arguments[0]} does not exist there")
        raise EngineError(f"{self.pod}: {lines[-1]}")


class FramedOutput(io.RawIOBase):
    """What is read of a stream, in frames for `pod_program.FramedInput`."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._is_over = False

    def fileno(self) -> int:
        return self._source.fileno()

    def read(self, size: int = -1) -> bytes:
        if self._is_over:
            return b""
        block = self._source.read(size)
        self._is_over = not block
        return len(block).to_bytes(4, "big") + block


def settle(copied: Path, target: Path) -> None:
    """Put what was unpacked in its place. Into a folder that exists it is merged, and nothing goes through a link."""
    if os.path.lexists(target):
        merge(str(copied), str(target))
    else:
        os.rename(copied, target)


@contextlib.contextmanager
def piped(write: Callable[[BinaryIO], None]) -> Iterator[BinaryIO]:
    """A stream to read what a thread writes. What goes wrong there is raised here, at the end."""
    reader, writer = os.pipe()
    trouble: list[BaseException] = []

    def fill() -> None:
        # The reader may have stopped reading, and has reported why.
        with contextlib.suppress(BrokenPipeError), open(writer, "wb") as out:
            try:
                write(out)
            except BrokenPipeError:
                raise
            except BaseException as error:
                trouble.append(error)

    thread = threading.Thread(target=fill, name="pack", daemon=True)
    thread.start()
    try:
        with open(reader, "rb", buffering=0) as stream:
            yield cast(BinaryIO, stream)
    except EngineError:
        thread.join()
        if not trouble:
            raise
    thread.join()
    if trouble:
        raise trouble[0]
