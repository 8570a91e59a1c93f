"""Pipes that hold what was written until somebody reads it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.engines.local.supervise.pipes import drain, hold, variables_pipe


def test_what_a_container_is_told_waits_for_it() -> None:
    reader, writer = variables_pipe({"TOKEN": "x" * 500_000, "NAME": "å\n"})
    data = b""
    while not data.endswith(b"\n"):
        data += os.read(reader, 1 << 20)
    assert json.loads(data) == {"TOKEN": "x" * 500_000, "NAME": "å\n"}
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_more_than_a_pipe_holds_is_refused() -> None:
    with pytest.raises(EngineError, match="larger"):
        variables_pipe({"TOKEN": "x" * (1 << 20)})


@pytest.mark.parametrize(
    ("left", "saved"),
    [
        (b"-of-a-token\nepoch 1\n", b"***\nepoch 1\n"),
        (b"value-of-a-to", b"***"),
        (b"token\nepoch 1\n", b"token\nepoch 1\n"),
        (b"epoch 1\n", b"epoch 1\n"),
    ],
)
def test_the_rest_of_a_secret_that_a_killed_launcher_had_begun_to_read(
    tmp_path: Path, left: bytes, saved: bytes
) -> None:
    (tmp_path / "pipes").mkdir()
    (tmp_path / "logs").mkdir()
    pipe = tmp_path / "pipes" / "0.out"
    os.mkfifo(pipe)
    held = hold([pipe])
    pipe.write_bytes(left)
    drain(held, ["s3cret-value-of-a-token"])
    assert (tmp_path / "logs" / "0.out").read_bytes() == saved
    os.close(held[pipe])


def test_a_pipe_is_only_as_large_as_it_has_to_be() -> None:
    """All pipes of a user share one limit: a megabyte for each node, and 64 nodes have used it up."""
    for size, most in ((10, 1 << 16), (100_000, 1 << 17)):
        reader, writer = variables_pipe({"TOKEN": "x" * size})
        assert fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) <= most
        os.close(reader)
        os.close(writer)


def test_a_kernel_that_gives_no_larger_pipe_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.fcntl

    def refuse(descriptor: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETPIPE_SZ:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return real(descriptor, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EngineError, match="bytes of secrets: Operation not permitted") as error:
        variables_pipe({"TOKEN": "x" * 500_000})
    assert "pipe-user-pages-soft" in str(error.value.hint) and len(os.listdir("/proc/self/fd")) == before


def test_nobody_waits_for_a_pipe_that_holds_less_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "fcntl", lambda *_: 1 << 20)
    with pytest.raises(EngineError, match="no pipe holds"):
        variables_pipe({"TOKEN": "x" * 500_000})
