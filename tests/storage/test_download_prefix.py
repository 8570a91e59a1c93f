from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.core.errors import EngineError, Refused
from longboat.storage.download_prefix import paths_of
from longboat.storage.stores.object_store import ObjectInfo
from longboat.storage.urls import ObjectUrl

WHERE = ObjectUrl("s3", "bucket", "set/")


def found(*keys: str, size: int = 1) -> list[ObjectInfo]:
    return [ObjectInfo(key, size, '"t"', 0.0) for key in keys]


def test_paths_are_below_the_prefix() -> None:
    assert list(paths_of(WHERE, found("set/a", "set/b/c"))) == ["a", "b/c"]
    assert list(paths_of(ObjectUrl("s3", "bucket", ""), found("a", "b/c"))) == ["a", "b/c"]


@pytest.mark.parametrize(
    "key",
    ["set//etc/passwd", "set/../x", "set/a/../../x", "set/./a", "set/a//b", "set/x\0", "set/.longboat/x", "other/x"]
    + ["set/" + "x" * 256, "set/full/"],
)
def test_names_that_lead_elsewhere_are_refused(key: str) -> None:
    with pytest.raises(Refused, match="no path of a file"):
        paths_of(WHERE, found("set/fine", key))


def test_placeholders_of_folders_are_no_files() -> None:
    placeholders = found("set/", "set/b/", size=0)
    assert list(paths_of(WHERE, [*placeholders, *found("set/b/c")])) == ["b/c"]
    with pytest.raises(EngineError, match="no objects below"):
        paths_of(WHERE, placeholders)


def test_a_file_is_no_folder() -> None:
    with pytest.raises(Refused, match="s3://bucket/set/a is an object and has others below it"):
        paths_of(WHERE, found("set/a/b", "set/a"))


@given(st.lists(st.text(alphabet="ab./\0é", max_size=8), max_size=6))
def test_no_name_whatever_leads_out(names: list[str]) -> None:
    try:
        paths = paths_of(WHERE, found(*(f"set/{name}" for name in names)))
    except (Refused, EngineError):
        return
    for path in paths:
        assert (
            posixpath.normpath(path) == path
            and ".." not in path.split("/")
            and not path.startswith("/")
            and "\0" not in path
        )
