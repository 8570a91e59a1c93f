"""Imports as values: what others wrote is passed over, and whether sources have changed is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longboat.core.errors import UsageError
from longboat.core.jobs import DataImport
from longboat.storage.imported.imported_data import ImportedData, place_in, read_imports, run_name, source_news

ITEM = DataImport(url="https://example.org/a.tar", to="/longboat-data/a")


def test_what_is_no_import_is_passed_over() -> None:
    good = {"folder": "a", "key": "k", "names": ["x"], "url": None, "size": 3}
    assert [each.folder for each in read_imports([good, {"folder": 3}, "x", None])] == ["a"]
    assert read_imports({"a": 1}) == []


def test_a_source_that_changes_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("one")
    state = source.stat()
    url = f"file://{source}"
    known = ImportedData(folder=".", key="k", url=url, tag=f"{state.st_mtime_ns}-{state.st_size}")
    assert source_news(known, {}) == "the source is unchanged"
    os.utime(source, ns=(1, 1))
    assert source_news(known, {}).startswith("changed at its source")
    source.unlink()
    assert source_news(known, {}).startswith("not known")


@pytest.mark.parametrize(
    ("imported", "words"),
    [
        (ImportedData(folder=".", key="k"), "its whole URL was not kept"),
        (ImportedData(folder=".", key="k", url="https://x/a", is_secret=True, tag="t"), "its whole URL was not kept"),
        (ImportedData(folder=".", key="k", url="s3://bucket/many/", tag="t"), "many objects have no tag"),
        (ImportedData(folder=".", key="k", url="https://x/a"), "gave no tag when it was imported"),
        (ImportedData(folder=".", key="k", url="http://127.0.0.1:1/a", tag="t"), "not known: http://127.0.0.1:1/a"),
    ],
)
def test_what_cannot_be_asked_is_not_called_changed(imported: ImportedData, words: str) -> None:
    news = source_news(imported, {})
    assert words in news and not news.startswith("changed")


def test_names_of_runs_and_folders() -> None:
    name = run_name("Data.sets", ITEM)
    assert name == run_name("Data.sets", ITEM) and name.startswith("data-data-sets-") and len(name) <= 41
    assert name != run_name("other", ITEM)
    assert place_in("/m", "") == "/m" and place_in("/m", "a/b") == "/m/a/b"
    for folder in ("..", "a/../../b", "/etc"):
        with pytest.raises(UsageError, match="leads out of the volume"):
            place_in("/m", folder)
