"""Pipes that hold what was written until somebody reads it."""

from __future__ import annotations

import json
import os

import pytest

from longboat.core.errors import EngineError
from longboat.engines.local.supervise.pipes import told_pipe


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
