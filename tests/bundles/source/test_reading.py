from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from longboat.bundles.source.reading import read_into
from longboat.bundles.store import BundleStore
from tests.bundles.trees import make


@pytest.fixture
def store(tmp_path: Path) -> BundleStore:
    store = BundleStore(tmp_path / "store")
    store.prepare()
    return store


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_what_is_read_is_what_is_kept(tmp_path: Path, store: BundleStore, size: int) -> None:
    data = os.urandom(size)
    root = make(tmp_path / "tree", {"a": data})
    content = read_into(store, str(root), "a", keeps_secrets=False, most=1 << 30)
    assert content is not None
    assert (content.hash, content.size, content.is_steady) == (hashlib.sha256(data).hexdigest(), size, True)
    assert Path(store.object_path(content.hash)).read_bytes() == data


def test_what_is_no_file_any_more(tmp_path: Path, store: BundleStore) -> None:
    """Looked at as a file, then removed or replaced before it is read; a pipe must not block."""
    root = make(tmp_path / "tree", {"link": "->/etc/passwd", "folder/x": ""})
    os.mkfifo(root / "pipe")
    for name in ("gone", "gone/deeper", "link", "folder", "pipe"):
        assert read_into(store, str(root), name, keeps_secrets=False, most=100) is None


def test_a_secret_is_not_kept_unless_wanted(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a": "hf_" + "aB" * 17})
    content = read_into(store, str(root), "a", keeps_secrets=False, most=100)
    assert content is not None
    assert content.secret
    assert not store.has(content.hash, content.size)
    read_into(store, str(root), "a", keeps_secrets=True, most=100)
    assert store.has(content.hash, content.size)


def test_a_file_that_grows_all_the_time_ends(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a": b"x" * (2 << 20)})
    done = threading.Event()

    def grow() -> None:
        with (root / "a").open("ab", buffering=0) as file:
            while not done.is_set():
                file.write(b"y" * 10_000)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        content = read_into(store, str(root), "a", keeps_secrets=False, most=4 << 20)
    finally:
        done.set()
        thread.join()
    assert content is not None
    assert content.size <= (4 << 20) + 1
    assert store.has(content.hash, content.size)
