"""Child processes with a bound on time and on every buffer that the child fills."""

from __future__ import annotations

import os
import selectors
import subprocess
import time

CHUNK = 1 << 16
LAST_BYTES = 1 << 16
"""What is kept of stderr, its end: one line of it is shown."""


class OutputTooLarge(Exception):
    """More on stdout than was allowed."""


def communicate(
    process: subprocess.Popen[bytes], question: bytes, *, timeout_s: float, most_bytes: int
) -> tuple[bytes, bytes]:
    """Send the question, read stdout to its end and the last of stderr, wait for the exit.

    Raises subprocess.TimeoutExpired or TooMuch; the process is the caller's to end then.
    """
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    deadline = time.monotonic() + timeout_s
    out, err, left = bytearray(), bytearray(), memoryview(question)
    with selectors.DefaultSelector() as selector:
        for pipe, event in (
            (process.stdin, selectors.EVENT_WRITE),
            (process.stdout, selectors.EVENT_READ),
            (process.stderr, selectors.EVENT_READ),
        ):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, event)
        while selector.get_map():
            for key, _ in selector.select(_left(process, deadline, timeout_s)):
                if key.fileobj is process.stdin:
                    left = _send(key.fd, left)
                    is_over = not left
                else:
                    is_out = key.fileobj is process.stdout
                    is_over = _receive(key.fd, out if is_out else err)
                    if not is_out and len(err) > 2 * LAST_BYTES:
                        del err[:-LAST_BYTES]
                if is_over:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
            if len(out) > most_bytes:
                raise OutputTooLarge
    process.wait(_left(process, deadline, timeout_s))
    return bytes(out), bytes(err[-LAST_BYTES:])


def _left(process: subprocess.Popen[bytes], deadline: float, timeout_s: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise subprocess.TimeoutExpired(process.args, timeout_s)
    return left


def _send(number: int, left: memoryview) -> memoryview:
    try:
        return left[os.write(number, left[:CHUNK]) :]
    except BlockingIOError:
        return left
    except OSError:
        return left[:0]  # it does not read its question, which is its own business


def _receive(number: int, into: bytearray) -> bool:
    """Whether that was the end."""
    try:
        data = os.read(number, CHUNK)
    except BlockingIOError:
        return False
    into += data
    return not data
