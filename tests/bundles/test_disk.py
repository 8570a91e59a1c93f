"""Disks that are full, read-only or not ours: a clear error, and nothing half-written."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from longboat.bundles.disk import explain, remove_tree, replace_file
from longboat.bundles.snapshot import take
from longboat.bundles.store import BundleStore
from longboat.clusters.offline.write import write_tar
from longboat.core.errors import EngineError
from longboat.engines.shared.files import write_bytes
from tests.bundles.trees import make, on_small_disk


def test_a_file_that_may_not_be_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        root = make(Path(folder, "tree"), {"a.py": "1", "locked": "2"})
        (root / "locked").chmod(0o000)
        assert "locked: cannot be read" in as_nobody(lambda: take(root, BundleStore(Path(folder, "s"))))


def test_a_folder_that_may_not_be_entered() -> None:
    """It is named itself, and not a .longboatignore that nobody wrote."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        root = make(Path(folder, "tree"), {"a.py": "1", "closed/x": "2"})
        (root / "closed").chmod(0o000)
        assert ": closed: cannot be read" in as_nobody(lambda: take(root, BundleStore(Path(folder, "s"))))
        (root / "closed").chmod(0o755)
        (root / "closed" / ".longboatignore").touch(0o000)
        told = as_nobody(lambda: take(root, BundleStore(Path(folder, "s"))))
        assert ": closed/.longboatignore: cannot be read" in told


def as_nobody(work: object) -> str:
    """The message of the error that the work ends with when root's rights do not help."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            work()  # type: ignore[operator]
            os.write(writer, b"no error")
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error} {getattr(error, 'hint', '')}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return told


def test_a_store_that_may_not_be_written() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = make(Path(folder, "tree"), {"a.py": "1"})
        root.chmod(0o755)
        told = as_nobody(lambda: take(root, BundleStore(Path(folder, "s"))))
        assert told.startswith("EngineError")
        assert "LONGBOAT_HOME" in told


SCRIPT = """
from pathlib import Path
from longboat.bundles.snapshot import take
from longboat.bundles.store import BundleStore
from longboat.clusters.offline.write import write_tar
from longboat.core.errors import EngineError
from longboat.engines.shared.files import write_bytes
try:
    take(Path({root!r}), BundleStore(Path({disk!r}) / "store"))
except EngineError as error:
    print(error.message, "|", error.hint)
    print(sorted(path.name for path in (Path({disk!r}) / "store" / "tmp").glob("*")))
"""


def test_a_full_disk(tmp_path: Path) -> None:
    root = make(tmp_path / "tree", {"small": b"1", "large": os.urandom(2 << 20)})
    told = on_small_disk(tmp_path, SCRIPT.format(root=str(root), disk=str(tmp_path / "disk"))).splitlines()
    assert "the disk is full" in told[0]
    assert "LONGBOAT_HOME" in told[0]
    assert told[1] == "[]"


def test_a_read_only_disk(tmp_path: Path) -> None:
    root = make(tmp_path / "tree", {"small": b"1"})
    told = on_small_disk(tmp_path, SCRIPT.format(root=str(root), disk=str(tmp_path / "disk")), read_only=True)
    assert "read-only" in told


def test_engine_error_when_the_store_is_a_file(tmp_path: Path) -> None:
    make(tmp_path, {"file": "", "tree/a": "1"})
    with pytest.raises(EngineError):
        take(tmp_path / "tree", BundleStore(tmp_path / "file"))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "not permitted"),
    ],
)
def test_errors_in_words(code: int, words: str) -> None:
    error = explain(OSError(code, os.strerror(code)), "/place", otherwise=", or move")
    assert words in error.message
    assert error.message.startswith("/place: ")
    assert str(error.hint).endswith(", or move")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    make(tmp_path, {"a": "old", "tmp/x": ""})
    replace_file(f"{tmp_path}/a", b"new", f"{tmp_path}/tmp")
    assert (tmp_path / "a").read_bytes() == b"new"
    (tmp_path / "folder/x").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        replace_file(f"{tmp_path}/folder", b"new", f"{tmp_path}/tmp")
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["x"]


def test_a_tree_with_locked_folders_is_removed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        tree = make(Path(folder, "tree"), {"a/b/c": "1", "a/d": "2"})

        def work() -> None:
            for place in ("a/b", "a"):
                (tree / place).chmod(0o555)
            remove_tree(str(tree))

        for place in (tree, tree / "a", tree / "a/b"):
            if os.geteuid() == 0:
                os.chown(place, 65534, 65534)
        assert as_nobody(work) == "no error"
        assert not tree.exists()


@pytest.mark.parametrize("write", [write_bytes, lambda path, data: write_tar({"a": data}, path)])
def test_a_file_takes_no_devices_place(tmp_path: Path, write: Callable[[Path, bytes], None]) -> None:
    place = tmp_path / "pipe"
    os.mkfifo(place)
    with pytest.raises(EngineError, match="File exists"):
        write(place, b"data")
    assert place.is_fifo() and os.listdir(tmp_path) == ["pipe"]
    place.unlink()
    write(place, b"data")
    assert place.is_file()
