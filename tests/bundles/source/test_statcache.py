from __future__ import annotations

import os
from pathlib import Path

import pytest

from longboat.bundles.source.statcache import StatCache
from longboat.bundles.store import BundleStore
from tests.bundles.trees import age, make


@pytest.fixture
def store(tmp_path: Path) -> BundleStore:
    store = BundleStore(tmp_path / "store")
    store.prepare()
    return store


def filled(store: BundleStore, root: Path) -> os.stat_result:
    found = os.lstat(root / "a")
    cache = StatCache(store, str(root))
    cache.put("a", found, "hash", "a secret")
    cache.save()
    return found


def test_a_file_that_did_not_change_is_known(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a": "1"})
    age(root)
    found = filled(store, root)
    assert StatCache(store, str(root)).get("a", found) == ("hash", "a secret")
    assert StatCache(store, str(root)).get("b", found) is None
    assert StatCache(store, str(tmp_path)).get("a", found) is None


def test_a_file_as_young_as_the_cache_is_not_trusted(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a": "1"})
    assert StatCache(store, str(root)).get("a", filled(store, root)) is None


def test_a_time_in_the_future_is_not_trusted(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a": "1"})
    os.utime(root / "a", (4e9, 4e9))
    age(root)
    assert StatCache(store, str(root)).get("a", filled(store, root)) is None


@pytest.mark.parametrize("change", ["content", "size", "replaced", "mode"])
def test_every_change_shows(tmp_path: Path, store: BundleStore, change: str) -> None:
    root = make(tmp_path / "tree", {"a": "1", "b": "1"})
    age(root)
    before = filled(store, root)
    if change == "content":
        (root / "a").write_text("2")
    elif change == "size":
        (root / "a").write_text("22")
    elif change == "replaced":
        os.replace(root / "b", root / "a")
    else:
        (root / "a").chmod(0o755)
    os.utime(root / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert StatCache(store, str(root)).get("a", os.lstat(root / "a")) is None


def test_a_damaged_cache_costs_only_time(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a": "1"})
    age(root)
    found = filled(store, root)
    (file,) = (store.root / "cache").iterdir()
    for damage in (b"", b"\xff\xff", file.read_bytes()[:-3]):
        file.write_bytes(damage)
        assert StatCache(store, str(root)).get("a", found) is None
