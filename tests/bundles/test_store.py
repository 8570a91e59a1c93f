from __future__ import annotations

import io
import os
import stat
import time
from pathlib import Path

import pytest

from longboat.bundles import durable
from longboat.bundles.snapshot import CodeSnapshot, take
from longboat.bundles.store import BundleStore
from longboat.core.errors import BundleError, EngineError, NotFound
from tests.bundles.trees import age, contents, make


@pytest.fixture
def store(tmp_path: Path) -> BundleStore:
    return BundleStore(tmp_path / "store")


def objects(store: BundleStore) -> set[str]:
    return {path.parent.name + path.name for path in (store.root / "objects").rglob("*") if path.is_file()}


def test_only_the_owner_may_look(tmp_path: Path, store: BundleStore) -> None:
    before = os.umask(0)
    try:
        take(make(tmp_path / "tree", {"a": "1"}), store)
    finally:
        os.umask(before)
    for path in store.root.rglob("*"):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.lstat().st_mode) == expected, path
    assert stat.S_IMODE(store.root.stat().st_mode) == 0o700


def test_the_same_content_is_kept_once(tmp_path: Path, store: BundleStore) -> None:
    take(make(tmp_path / "tree", {"a": "same", "b": "same", "c/d": "same", "e": "other"}), store)
    assert len(objects(store)) == 2


def test_load_gives_what_was_taken(tmp_path: Path, store: BundleStore) -> None:
    snapshot = take(make(tmp_path / "tree", {"a": "1", "b": "->a"}), store)
    assert store.load(snapshot.hash) == snapshot
    assert BundleStore(store.root).load(snapshot.hash) == snapshot


def test_load_what_is_not_there(store: BundleStore) -> None:
    with pytest.raises(NotFound):
        store.load("a" * 64)
    with pytest.raises(BundleError):
        store.load("../../etc/passwd")
    assert store.load(CodeSnapshot.empty().hash) == CodeSnapshot.empty()


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b'{"hash": "x"}', b"[" * 5000])
def test_a_damaged_manifest_is_told(tmp_path: Path, store: BundleStore, damage: bytes) -> None:
    snapshot = take(make(tmp_path / "tree", {"a": "1"}), store)
    (store.root / "manifests" / f"{snapshot.hash}.json").write_bytes(damage)
    with pytest.raises(BundleError):
        store.load(snapshot.hash)


def test_a_changed_manifest_is_told(tmp_path: Path, store: BundleStore) -> None:
    snapshot = take(make(tmp_path / "tree", {"a": "1"}), store)
    place = store.root / "manifests" / f"{snapshot.hash}.json"
    place.write_bytes(place.read_bytes().replace(b'"a"', b'"b"'))
    with pytest.raises(BundleError, match="hash"):
        store.load(snapshot.hash)


def test_a_working_copy_is_private(tmp_path: Path, store: BundleStore) -> None:
    snapshot = take(make(tmp_path / "tree", {"a": "1", "big": b"x" * (1 << 20)}), store)
    for copy in ("one", "two"):
        store.check_out(snapshot.hash, tmp_path / copy)
    (tmp_path / "one/a").write_text("changed")
    with (tmp_path / "one/big").open("r+b") as file:
        file.write(b"changed")
    store.check_out(snapshot.hash, tmp_path / "three")
    assert contents(tmp_path / "two") == contents(tmp_path / "three") == contents(tmp_path / "tree")


def test_check_out_needs_an_empty_place(tmp_path: Path, store: BundleStore) -> None:
    snapshot = take(make(tmp_path / "tree", {"a": "1"}), store)
    (tmp_path / "empty").mkdir()
    store.check_out(snapshot.hash, tmp_path / "empty")
    with pytest.raises(EngineError, match="empty folder"):
        store.check_out(snapshot.hash, tmp_path / "empty")
    assert contents(tmp_path / "empty") == {"a": b"1"}
    with pytest.raises(EngineError):
        store.check_out(snapshot.hash, tmp_path / "tree/a")


def test_a_failed_check_out_leaves_nothing(tmp_path: Path, store: BundleStore) -> None:
    snapshot = take(make(tmp_path / "tree", {"a": "1", "b/c": "2", "z": "3"}), store)
    lost = next(entry.hash for entry in snapshot.entries if entry.path == "z")
    os.unlink(store.object_path(lost))
    (tmp_path / "there").mkdir()
    for place in ("there", "new"):
        with pytest.raises(BundleError, match="'z' is missing"):
            store.check_out(snapshot.hash, tmp_path / place)
    assert list((tmp_path / "there").iterdir()) == []
    assert not (tmp_path / "new").exists()


def test_a_check_out_of_many_files_that_fails_leaves_nothing(tmp_path: Path, store: BundleStore) -> None:
    files = {f"d{number % 7}/f{number}": f"{number}" for number in range(2000)}
    snapshot = take(make(tmp_path / "tree", files), store)
    store.check_out(snapshot.hash, tmp_path / "whole")
    assert contents(tmp_path / "whole") == contents(tmp_path / "tree")
    lost = next(entry for entry in snapshot.entries if entry.path == "d3/f1025")
    Path(store.object_path(lost.hash)).unlink()
    with pytest.raises(BundleError, match="'d3/f1025' is missing or damaged"):
        store.check_out(snapshot.hash, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_contents_are_synced_once(tmp_path: Path, store: BundleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    monkeypatch.delenv(durable.SWITCH, raising=False)
    root = make(tmp_path / "tree", {f"f{number}": f"{number}" for number in range(20)})
    age(root)

    def synced_contents() -> set[str]:
        synced.clear()
        snapshot = take(root, BundleStore(store.root))
        found = {place for place in synced if Path(place).is_file() and "/objects/" in place}
        assert found <= {store.object_path(entry.hash) for entry in snapshot.entries}
        return found

    assert len(synced_contents()) == 20
    assert synced_contents() == set()
    (root / "f3").write_text("changed")
    assert len(synced_contents()) == 1
    # Written anew by somebody who may not have synced it: it counts only once it was.
    again = Path(store.object_path(take(root, store).entries[0].hash))
    data = again.read_bytes()
    time.sleep(0.02)
    again.unlink()
    again.write_bytes(data)
    assert synced_contents() >= {str(again)}


def test_collect_keeps_what_is_needed(tmp_path: Path, store: BundleStore) -> None:
    old = take(make(tmp_path / "old", {"a": "1", "b": "shared"}), store)
    new = take(make(tmp_path / "new", {"a": "2", "b": "shared"}), store)
    assert store.collect([old.hash, new.hash], grace_s=-1) == 0
    assert store.collect([new.hash], grace_s=-1) == 2
    store.check_out(new.hash, tmp_path / "copy")
    assert contents(tmp_path / "copy") == {"a": b"2", "b": b"shared"}
    with pytest.raises(NotFound):
        store.load(old.hash)
    assert store.collect([], grace_s=-1) == 3
    assert objects(store) == set()


def test_collect_leaves_what_is_young(tmp_path: Path, store: BundleStore) -> None:
    snapshot = take(make(tmp_path / "tree", {"a": "1"}), store)
    assert store.collect([]) == 0
    store.check_out(snapshot.hash, tmp_path / "copy")


def test_a_tree_taken_again_is_young_again(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a": "1"})
    snapshot = take(root, store)
    for path in store.root.rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    take(root, store)
    assert store.collect([]) == 0
    store.check_out(snapshot.hash, tmp_path / "copy")


def test_collect_removes_nothing_while_the_store_is_in_use(tmp_path: Path, store: BundleStore) -> None:
    take(make(tmp_path / "tree", {"a": "1"}), store)
    with BundleStore(store.root).in_use():
        assert store.collect([], grace_s=-1) == 0
    assert store.collect([], grace_s=-1) == 2


def test_collect_removes_what_a_killed_process_left(tmp_path: Path, store: BundleStore) -> None:
    store.prepare()
    leftover = make(store.root / "tmp", {"123-0-abc": "half"}) / "123-0-abc"
    store.collect([])
    assert leftover.exists()
    store.collect([], grace_s=-1)
    assert not leftover.exists()


def test_put_stream_is_bounded(store: BundleStore) -> None:
    store.prepare()
    hash, size = store.put_stream(io.BytesIO(b"0123456789"), 4)
    assert size == 4
    assert Path(store.object_path(hash)).read_bytes() == b"0123"
