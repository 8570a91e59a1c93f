"""Taking a tree and laying it out again: the same everywhere, whole, and without secrets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longboat.bundles.snapshot import CodeSnapshot, TreeLimits, take
from longboat.bundles.store import BundleStore
from longboat.core.errors import BundleError
from tests.bundles.trees import age, commit_all, contents, git, make


@pytest.fixture
def store(tmp_path: Path) -> BundleStore:
    return BundleStore(tmp_path / "store")


def paths(snapshot: CodeSnapshot) -> list[str]:
    return [entry.path for entry in snapshot.entries]


def test_round_trip(tmp_path: Path, store: BundleStore) -> None:
    tree = {
        "train.py": "print(1)",
        "pkg/__init__.py": "",
        "pkg/a b\nc.txt": "odd name",
        "ü/ñ": "é",
        "link": "->pkg/__init__.py",
        "pkg/up": "->../train.py",
        "big.bin": os.urandom(3 << 20),
    }
    root = make(tmp_path / "tree", tree)
    (root / "train.py").chmod(0o755)
    first = take(root, store)
    store.check_out(first.hash, tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(root)
    assert os.access(tmp_path / "copy/train.py", os.X_OK)
    assert not os.access(tmp_path / "copy/pkg/__init__.py", os.X_OK)
    assert take(tmp_path / "copy", store).hash == first.hash
    assert (tmp_path / "copy/big.bin").stat().st_nlink == 1
    assert first.size == sum(len(c) for c in contents(root).values() if isinstance(c, bytes))


names = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="/\0"), min_size=1, max_size=8)
paths_of_files = st.lists(names.filter(lambda name: name not in (".", "..")), min_size=1, max_size=3).map("/".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(paths_of_files, st.tuples(st.binary(max_size=50), st.booleans()), max_size=6))
def test_take_and_check_out_are_inverse(files: dict[str, tuple[bytes, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, store = Path(folder, "tree"), BundleStore(Path(folder, "store"))
        root.mkdir()
        for name, (content, executable) in files.items():
            try:
                make(root, {name: content})
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                continue
            (root / name).chmod(0o700 if executable else 0o600)
        first = take(root, store, limits=TreeLimits())
        store.check_out(first.hash, Path(folder, "copy"))
        second = take(Path(folder, "copy"), BundleStore(Path(folder, "other")))
        # Rules inside the tree (an ignore file, a secret's name) choose the same files again.
        assert (second.hash, second.entries) == (first.hash, first.entries)


def test_same_tree_same_hash_on_any_machine(tmp_path: Path) -> None:
    """Another umask, time zone, order of creation, owner's rights and times; with and without git."""
    one = make(tmp_path / "one", {"a": "1", "b/c": "2", "b/d": "->c"})
    (one / "a").chmod(0o600)
    script = (
        "import os, sys; os.umask(0o007); from pathlib import Path\n"
        "from tests.bundles.trees import make, commit_all\n"
        "root = make(Path(sys.argv[1]), {'b/d': '->c', 'b/c': '2', 'a': '1'}); (root / 'a').chmod(0o664)\n"
        "os.utime(root / 'a', (1, 1)); commit_all(root)\n"
        "from longboat.bundles.snapshot import take; from longboat.bundles.store import BundleStore\n"
        "print(take(root, BundleStore(Path(sys.argv[2]))).hash)"
    )
    other = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "two"), str(tmp_path / "store two")],
        env={**os.environ, "TZ": "Pacific/Auckland", "LC_ALL": "C"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert other.returncode == 0, other.stderr
    assert other.stdout.strip() == take(one, BundleStore(tmp_path / "store one")).hash


def test_commit_and_uncommitted_changes_are_recorded(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a.py": "1\n", "b.py": "2\n"})
    commit = commit_all(root)
    clean = take(root, store)
    assert (clean.commit, clean.dirty, clean.diff_hash) == (commit, False, None)
    assert store.diff(clean.hash) is None
    make(root, {"a.py": "one\n", "new.py": "3\n"})
    (root / "b.py").unlink()
    dirty = take(root, store)
    assert (dirty.commit, dirty.dirty) == (commit, True)
    diff = store.diff(dirty.hash)
    assert diff is not None
    assert b"-1\n+one\n" in diff
    assert b"deleted file" in diff
    assert b"# not in git: new.py\n" in diff
    assert paths(dirty) == ["a.py", "new.py"]


def test_no_commit_yet(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a.py": "1\n"})
    git(root, "init", "-q")
    snapshot = take(root, store)
    assert (snapshot.commit, snapshot.dirty, paths(snapshot)) == (None, True, ["a.py"])


def test_secrets_stay_behind_with_a_warning(tmp_path: Path, store: BundleStore) -> None:
    key = "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nabc\n"
    root = make(
        tmp_path / "tree", {".env": "A=1", ".env.example": "A=", "a.py": "x", "notes.txt": key, "k/id_rsa.pub": "p"}
    )
    for _ in range(2):  # the second time from the cache
        snapshot = take(root, store)
        assert paths(snapshot) == [".env.example", "a.py", "k/id_rsa.pub"]
        assert any(w.startswith(".env: left out") and "include: [.env]" in w for w in snapshot.warnings)
        assert any(w.startswith("notes.txt: left out, it holds a private key") for w in snapshot.warnings)
        age(root)
    stored = [path.read_bytes() for path in (tmp_path / "store/objects").rglob("*") if path.is_file()]
    assert key.encode() not in stored
    assert b"A=1" not in stored
    assert paths(take(root, store, include=["*"])) == paths(snapshot)
    named = take(root, store, include=[".env", "notes.txt"])
    assert paths(named) == [".env", ".env.example", "a.py", "k/id_rsa.pub", "notes.txt"]
    store.check_out(named.hash, tmp_path / "copy")
    assert (tmp_path / "copy/notes.txt").read_text() == key


def test_many_secrets_are_not_many_warnings(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {f"{n}.pem": "x" for n in range(100)})
    snapshot = take(root, store)
    assert len(snapshot.warnings) == 11
    assert snapshot.warnings[-1].startswith("90 more files")


def test_the_diff_tells_no_secret(tmp_path: Path, store: BundleStore) -> None:
    token = "ghp_" + "a1B2" * 9
    root = make(
        tmp_path / "tree",
        {".env": "PASSWORD=old\n", "a.py": "1\n", "gone.pem": "pem-old\n", "t.py": f"T = '{token}'\n", "out/x": "1\n"},
    )
    commit_all(root)
    make(
        root,
        {
            ".env": "PASSWORD=new\n",
            "a.py": "2\n",
            "t.py": "T = None\n",
            "out/x": "private\n",
            ".longboatignore": "out\n",
        },
    )
    (root / "gone.pem").unlink()
    diff = store.diff(take(root, store).hash)
    assert diff is not None
    for secret in (b"PASSWORD", b"pem-old", token.encode(), b"private"):
        assert secret not in diff
    assert b"+2\n" in diff


def test_a_large_diff_is_cut(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a.txt": ""})
    commit_all(root)
    make(root, {"a.txt": "0123456789\n" * 300_000})
    diff = store.diff(take(root, store).hash)
    assert diff is not None
    assert len(diff) < 1.1 * (1 << 20)
    assert diff.endswith(b"larger than 1 MiB\n")


def test_a_link_that_leaves_is_told_and_no_part_of_the_tree(tmp_path: Path, store: BundleStore) -> None:
    for number, target in enumerate(("/mnt/data", "../elsewhere", "sub/../../x", str(tmp_path / "tree4/a"))):
        root = make(tmp_path / f"tree{number}", {"a": "1", "data": f"->{target}"})
        snapshot = take(root, store)
        assert paths(snapshot) == ["a"]
        assert snapshot.outside == {"data": os.path.normpath(root / target)}
        make(root, {".longboatignore": "data\n"})
        snapshot = take(root, store)
        assert paths(snapshot) == [".longboatignore", "a"] and snapshot.outside == {}


def test_a_link_that_leaves_and_comes_back_leads_to_the_copy(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"sub/a": "1", "sub/b": "->../../tree/sub/a", "c": f"->{tmp_path}/tree/sub"})
    snapshot = take(root, store)
    assert snapshot.outside == {}
    store.check_out(snapshot.hash, tmp_path / "copy")
    assert contents(tmp_path / "copy") == {"sub/a": b"1", "sub/b": "->a", "c": "->sub"}


def test_a_link_that_leaves_only_in_truth(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a/b/d": "->../..", "a/b/c/x": "->../d/.."})
    assert take(root, store).outside == {"a/b/c/x": str(tmp_path)}


def test_a_link_to_what_stays_behind_is_told(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"big/x": "1", "to": "->big/x", "fine": "->a", "a": "1", ".longboatignore": "big\n"})
    assert take(root, store).warnings == ("to: this link points to big/x, which stays behind",)


def test_too_large_is_told_before_anything_is_read(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"data/raw/x": "x" * 3000, "a.py": "1"})
    with pytest.raises(BundleError) as caught:
        take(root, store, limits=TreeLimits(max_bytes=2000))
    assert "3.0 kB in data/raw/" in caught.value.message
    assert caught.value.hint == "3.0 kB in data/raw/: add it to .longboatignore or mount it"
    assert not (tmp_path / "store").exists()


def test_not_a_folder(tmp_path: Path, store: BundleStore) -> None:
    for place in (tmp_path / "none", make(tmp_path, {"file": ""}) / "file"):
        with pytest.raises(BundleError, match="not a folder"):
            take(place, store)


def test_an_empty_folder(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {})
    snapshot = take(root, store)
    assert snapshot.hash == CodeSnapshot.empty().hash
    store.check_out(snapshot.hash, tmp_path / "copy")
    assert contents(tmp_path / "copy") == {}


def test_a_change_of_the_same_size_and_time_is_seen(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a": "1"})
    hashes = set()
    for text in "123456":
        (root / "a").write_text(text)
        os.utime(root / "a", ns=(10**18, 10**18))
        hashes.add(take(root, store).hash)
    assert len(hashes) == 6


def test_only_what_changed_is_read_and_written(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {f"f{n}": str(n) for n in range(20)})
    age(root)
    take(root, store)
    before = {path: path.stat().st_ino for path in (tmp_path / "store/objects").rglob("*") if path.is_file()}
    for n in range(20):  # a cache that is used does not open these
        os.rename(root / f"f{n}", root / f"g{n}")
        os.rename(root / f"g{n}", root / f"f{n}")
    make(root, {"f3": "new"})
    take(root, store)
    after = {path: path.stat().st_ino for path in (tmp_path / "store/objects").rglob("*") if path.is_file()}
    assert len(after.keys() - before.keys()) == 1
    assert all(after[path] == inode for path, inode in before.items())


def test_an_object_that_was_lost_is_stored_again(tmp_path: Path, store: BundleStore) -> None:
    root = make(tmp_path / "tree", {"a": "12345"})
    age(root)
    snapshot = take(root, store)
    take(root, store)
    Path(store.object_path(snapshot.entries[0].hash)).write_bytes(b"")  # as after a crash of the machine
    with pytest.raises(BundleError, match="damaged"):
        store.check_out(snapshot.hash, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    take(root, store)
    store.check_out(snapshot.hash, tmp_path / "copy")
    assert (tmp_path / "copy/a").read_text() == "12345"


def test_a_tree_that_changes_all_the_time(tmp_path: Path, store: BundleStore) -> None:
    """Files vanish, appear and grow while the snapshot is taken: it holds what was read, under the right hash."""
    root = make(tmp_path / "tree", {f"f{n}": "x" * 5000 for n in range(50)})
    done = threading.Event()

    def disturb() -> None:
        number = 0
        while not done.is_set():
            number += 1
            place = root / f"f{number % 50}"
            if number % 3 == 0:
                place.unlink(missing_ok=True)
            else:
                with place.open("ab") as file:
                    file.write(b"y" * (number % 700))

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for number in range(8):
            snapshot = take(root, store)
            copy = tmp_path / f"copy{number}"
            store.check_out(snapshot.hash, copy)
            assert take(copy, store).hash == snapshot.hash
    finally:
        done.set()
        thread.join()


def test_several_processes_and_one_that_is_killed(tmp_path: Path) -> None:
    root = make(tmp_path / "tree", {f"d{n % 7}/f{n}": os.urandom(2000) for n in range(300)})
    script = (
        "import sys; from pathlib import Path; from longboat.bundles.snapshot import take\n"
        "from longboat.bundles.store import BundleStore; print('up', flush=True)\n"
        "print(take(Path(sys.argv[1]), BundleStore(Path(sys.argv[2]))).hash)"
    )

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, str(root), str(tmp_path / "store")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    for delay_s in (0.0, 0.01, 0.03):
        victim = start()
        assert victim.stdout is not None
        victim.stdout.readline()
        time.sleep(delay_s)
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
    told = [process.communicate()[0].split()[-1] for process in [start() for _ in range(3)]]
    store = BundleStore(tmp_path / "store")
    assert set(told) == {take(root, store).hash}
    store.check_out(told[0], tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(root)


def test_nothing_heavy_is_imported() -> None:
    script = "import sys; import longboat.bundles.snapshot; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"tarfile", "zipfile", "urllib.request", "http.client", "tempfile"} & set(loaded)
