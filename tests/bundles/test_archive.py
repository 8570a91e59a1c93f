"""A bundle as a stream: the same bytes from the same tree, nothing twice, nothing outside."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longboat.bundles.archive import pack, unpack
from longboat.bundles.manifests import CodeSnapshot, Entry, TreeLimits, tree_hash
from longboat.bundles.snapshot import take
from longboat.bundles.store import BundleStore
from longboat.core.errors import BundleError
from tests.bundles.trees import contents, make

TREE = {"a.py": "1", "b/c": "2", "b/d": "->c", "big": b"x" * 200_000}


def packed(store: BundleStore, hash: str, have: frozenset[str] = frozenset()) -> bytes:
    stream = io.BytesIO()
    pack(store, hash, stream, have=have)
    return stream.getvalue()


def test_round_trip(tmp_path: Path) -> None:
    root = make(tmp_path / "tree", TREE)
    (root / "a.py").chmod(0o755)
    store = BundleStore(tmp_path / "store")
    snapshot = take(root, store)
    unpack(io.BytesIO(packed(store, snapshot.hash)), tmp_path / "copy", limits=TreeLimits(), have_store=None)
    assert contents(tmp_path / "copy") == contents(root)
    assert os.access(tmp_path / "copy/a.py", os.X_OK)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "store", "tree"]


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    streams = []
    for number in range(2):
        root = make(tmp_path / str(number), dict(sorted(TREE.items(), reverse=bool(number))))
        os.utime(root / "a.py", (number, number))
        store = BundleStore(tmp_path / f"store{number}")
        streams.append(packed(store, take(root, store).hash))
    assert streams[0] == streams[1]


def test_only_what_changed_is_packed(tmp_path: Path) -> None:
    root, here, there = make(tmp_path / "tree", TREE), BundleStore(tmp_path / "here"), BundleStore(tmp_path / "there")
    first = take(root, here)
    stream = io.BytesIO()
    assert pack(here, first.hash, stream) == 3
    stream.seek(0)
    unpack(stream, tmp_path / "one", have_store=there)
    make(root, {"a.py": "changed"})
    second = take(root, here)
    stream = io.BytesIO()
    assert pack(here, second.hash, stream, have=first.objects) == 1
    assert len(stream.getvalue()) < 1000
    stream.seek(0)
    unpack(stream, tmp_path / "two", have_store=there)
    assert contents(tmp_path / "two") == contents(root)
    assert contents(tmp_path / "one") != contents(root)


def test_unpacking_an_archive_without_contents_is_an_error(tmp_path: Path) -> None:
    store = BundleStore(tmp_path / "store")
    snapshot = take(make(tmp_path / "tree", TREE), store)
    stream = packed(store, snapshot.hash, frozenset(snapshot.objects))
    with pytest.raises(BundleError, match="lacks 3 contents"):
        unpack(io.BytesIO(stream), tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "tree"]


def test_a_damaged_store_is_not_packed(tmp_path: Path) -> None:
    store = BundleStore(tmp_path / "store")
    snapshot = take(make(tmp_path / "tree", {"a": "12345"}), store)
    place = Path(store.object_path(snapshot.entries[0].hash))
    for damage in (b"54321", b"1"):
        place.write_bytes(damage)
        with pytest.raises(BundleError, match="damaged"):
            packed(store, snapshot.hash)


def archive(members: list[tuple[str, bytes]], kind: bytes = tarfile.REGTYPE) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, data in members:
            header = tarfile.TarInfo(name)
            header.size = len(data)
            header.type = kind if name != "manifest.json" else tarfile.REGTYPE
            tar.addfile(header, io.BytesIO(data))
    stream.seek(0)
    return stream


def manifest(*entries: Entry, hash: str | None = None) -> bytes:
    return msgspec.json.encode(CodeSnapshot(hash=hash or tree_hash(entries), entries=entries))


HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # of b"test"
GOOD = Entry(path="a", hash=HASH, size=4)


def test_a_stream_made_by_hand_is_fine(tmp_path: Path) -> None:
    unpack(archive([("manifest.json", manifest(GOOD)), (f"objects/{HASH}", b"test")]), tmp_path / "copy")
    assert contents(tmp_path / "copy") == {"a": b"test"}


@pytest.mark.parametrize(
    "members",
    [
        [],
        [("other", b"")],
        [("manifest.json", b"{}")],
        [("manifest.json", manifest(GOOD, hash="1" * 64))],
        [("manifest.json", manifest(Entry(path="../a", hash=HASH, size=4))), (f"objects/{HASH}", b"test")],
        [("manifest.json", manifest(Entry(path="/tmp/a", hash=HASH, size=4))), (f"objects/{HASH}", b"test")],
        [("manifest.json", manifest(Entry(path="a", kind="link", target="../..")))],
        [
            (
                "manifest.json",
                manifest(Entry(path="a", kind="link", target="/tmp"), Entry(path="a/b", hash=HASH, size=4)),
            )
        ],
        [("manifest.json", manifest(GOOD)), (f"objects/{HASH}", b"tent")],
        [("manifest.json", manifest(GOOD)), (f"objects/{HASH}", b"tes")],
        [("manifest.json", manifest(GOOD)), (f"objects/{HASH}", b"test"), (f"objects/{HASH}", b"test")],
        [("manifest.json", manifest(GOOD)), ("objects/../../x", b"test")],
        [("manifest.json", manifest(GOOD)), (f"objects/{HASH}", b"test"), ("more", b"")],
        [("manifest.json", manifest(Entry(path="a", hash=HASH, size=3 << 30)))],
    ],
)
def test_hostile_streams(tmp_path: Path, members: list[tuple[str, bytes]]) -> None:
    with pytest.raises(BundleError):
        unpack(archive(members), tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_a_content_that_is_no_file(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(BundleError):
        unpack(archive([("manifest.json", manifest(GOOD)), (f"objects/{HASH}", b"")], kind), tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"no archive",
        gzip.compress(b"", mtime=0),
        gzip.compress(b"x" * 1000, mtime=0),
        gzip.compress(b"", mtime=0)[:8],
    ],
)
def test_streams_that_are_no_archive(tmp_path: Path, stream: bytes) -> None:
    with pytest.raises(BundleError):
        unpack(io.BytesIO(stream), tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_breaks_off(tmp_path: Path) -> None:
    store = BundleStore(tmp_path / "store")
    stream = packed(store, take(make(tmp_path / "tree", {"a": os.urandom(5000)}), store).hash)
    for length in (10, 100, 3000, len(stream) - 2000):
        with pytest.raises(BundleError):
            unpack(io.BytesIO(stream[:length]), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


names = st.lists(st.sampled_from(["a", "b", "ü", "x y"]), min_size=1, max_size=3).map("/".join)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(names, st.binary(max_size=40), max_size=5), st.data())
def test_packing_and_unpacking_are_inverse(files: dict[str, bytes], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, store, other = (
            Path(folder, "tree"),
            BundleStore(Path(folder, "store")),
            BundleStore(Path(folder, "other")),
        )
        root.mkdir()
        for name, content in files.items():
            try:
                make(root, {name: content})
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                continue
        snapshot = take(root, store)
        have = data.draw(st.sets(st.sampled_from(sorted(snapshot.objects)))) if snapshot.objects else set()
        other.prepare()
        for hash in have:
            other.put(Path(store.object_path(hash)).read_bytes(), hash)
        stream = io.BytesIO()
        assert pack(store, snapshot.hash, stream, have=have) == len(snapshot.objects) - len(have)
        stream.seek(0)
        unpack(stream, Path(folder, "copy"), have_store=other)
        assert contents(Path(folder, "copy")) == contents(root)
