"""Pipes between the engine, launchers and ranks: held open, so that nothing written is lost with a killed reader."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from longboat.core.errors import EngineError
from longboat.core.guards.masking import Masker
from longboat.engines.shared.files import disk, log_line

PIPE_BYTES = 1 << 20
"""The most that the kernel lets a user have in a pipe."""
_PIPES_FULL = "end other runs, or let an administrator raise fs.pipe-user-pages-soft (see `man 7 pipe`)"


def variables_pipe(variables: Mapping[str, str]) -> tuple[int, int]:
    """(read end, write end) of a pipe with these variables in its first line. Raises EngineError when they are too
    many for it, or the kernel gives the user no more room in pipes."""
    import json  # not at the start: only containers need it

    data = json.dumps(variables).encode() + b"\n"
    if len(data) > PIPE_BYTES:
        raise EngineError(f"the secrets of this job are larger than {PIPE_BYTES} bytes together")
    with disk("open a pipe for the secrets"):
        reader, writer = os.pipe()
    try:
        _fill(writer, data)
    except OSError as error:
        os.close(reader)
        os.close(writer)
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise EngineError(f"no pipe holds the {len(data)} bytes of secrets: {reason}", hint=_PIPES_FULL) from error
    return reader, writer


def _fill(writer: int, data: bytes) -> None:
    """Write without blocking. All pipes of a user share one limit, so the pipe is only as large as needed."""
    if len(data) > fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, len(data))
    os.set_blocking(writer, False)
    if os.write(writer, data) < len(data):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def hold(pipes: Iterable[Path]) -> dict[Path, int]:
    """Open the read ends: what is in a pipe stays there as long as somebody holds it."""
    held: dict[Path, int] = {}
    for pipe in pipes:
        with disk(f"open {pipe}"):
            held[pipe] = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return held


def drain(held: Mapping[Path, int], secrets: Sequence[str] = ()) -> None:
    """Save what ranks had written and a killed launcher had not read, values of secrets masked as it would have."""
    for pipe, descriptor in held.items():
        log = pipe.parent.parent / "logs" / pipe.name
        masker = Masker(secrets)
        feed = masker.feed_rest  # the launcher took what it had held back with it
        try:
            with contextlib.suppress(BlockingIOError):
                while data := os.read(descriptor, 1 << 20):
                    append_log(log, feed(data))
                    feed = masker.feed
            if rest := masker.finish():
                append_log(log, rest)
        except EngineError as error:  # a full disk, which a launcher that lived had waited for: the run still ends
            log_line(error.message)


def close_held(held: Mapping[Path, int]) -> None:
    for pipe, descriptor in held.items():
        os.close(descriptor)
        pipe.unlink(missing_ok=True)


def append_log(path: Path, data: bytes) -> None:
    with disk(f"write {path}"), open(path, "ab") as log, open(f"{path}.idx", "ab") as index:
        log.write(data)
        log.flush()
        index.write(struct.pack("<QQ", log.tell(), time.time_ns()))
