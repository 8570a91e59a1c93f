"""Pipes that hold what was written until somebody reads it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.engines.local.supervise.pipes import drain, hold, told_pipe


def test_what_a_container_is_told_waits_for_it() -> None:
    reader, writer = told_pipe({"TOKEN": "x" * 500_000, "NAME": "å\n"})
    data = b""
    while not data.endswith(b"\n"):
        data += os.read(reader, 1 << 20)
    assert json.loads(data) == {"TOKEN": "x" * 500_000, "NAME": "å\n"}
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_more_than_a_pipe_holds_is_refused() -> None:
    with pytest.raises(EngineError, match="larger"):
        told_pipe({"TOKEN": "x" * (1 << 20)})


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
