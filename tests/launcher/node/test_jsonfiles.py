"""Our JSON says the same as the standard library's."""

from __future__ import annotations

import json
import math
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
