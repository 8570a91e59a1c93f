"""Our JSON says the same as the standard library's."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.launcher.node.jsonfiles import dumps, loads, read_json, write_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_both_ways(value: object) -> None:
    assert json.loads(dumps(value)) == value
    assert loads(" \n" + json.dumps(value) + "\n") == value


def test_numbers_json_does_not_have() -> None:
    assert dumps([math.nan, math.inf, -math.inf, 1.5]) == "[null,null,null,1.5]"


@pytest.mark.parametrize("text", ["", "{", "[1,]", "{} x", "nope", '"\n"'])
def test_wrong_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        loads(text)


def test_other_values_are_refused() -> None:
    with pytest.raises(TypeError):
        dumps({1, 2})


def test_files_are_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(str(path), {"a": 1})
    write_json(str(path), {"a": "\udcff ü"})
    assert read_json(str(path)) == {"a": "\udcff ü"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]
    with pytest.raises(OSError):
        write_json(str(tmp_path / "missing" / "a.json"), 1)


def test_two_processes_may_write_the_same_file(tmp_path: Path) -> None:
    """Two who stop a run at once, its controller and its user: the launcher reads one request or the other, whole."""
    path = tmp_path / "told.json"
    write_json(str(path), {"reason": "stop"})
    program = (
        "import sys; from longboat.launcher.node.jsonfiles import write_json\n"
        "for _ in range(1000): write_json(sys.argv[1], {'reason': 'stop'})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(2)]
    while any(writer.poll() is None for writer in writers):
        assert read_json(str(path)) == {"reason": "stop"}
    assert [writer.wait() for writer in writers] == [0, 0]
    assert os.listdir(tmp_path) == ["told.json"]
