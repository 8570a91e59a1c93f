"""What an import, a secret, a setting or a bundle says is kept is kept, whatever the disk lost. Real commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.local.power import COMMAND, Disk, read_trace

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: it records the calls")

IMPORT = """
import sys
from pathlib import Path
from longboat.core.jobs import DataImport
from longboat.storage.data import import_data

import_data(DataImport(url="file://" + sys.argv[1], to="data"), Path(sys.argv[2]))
"""
TAKE = """
import sys
from pathlib import Path
from longboat.bundles.snapshot import take
from longboat.bundles.store import BundleStore

print(take(Path(sys.argv[1]), BundleStore(Path(sys.argv[2]))).hash)
"""


def after_loss(root: Path, words: list[str], tmp_path: Path, *, names: bool) -> dict[str, bytes]:
    """Run a command whose files are below `root`; what is there at worst if the power fails when it has returned."""
    trace = tmp_path / "trace"
    environment = {**os.environ, "LONGBOAT_HOME": str(root)}
    environment.pop("LONGBOAT_SYNC", None)
    command = [*COMMAND, "-o", str(trace), sys.executable, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, input="v4lue\n")
    if "ptrace" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("strace may not trace processes here")
    assert done.returncode == 0, done.stderr
    live = {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    disk = Disk(root)
    for call in read_trace(trace):
        disk.apply(call)
    disk.lay_out(tmp_path / "after", live, names=names)
    found = (path for path in (tmp_path / "after").rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(tmp_path / "after")): path.read_bytes() for path in found}


@pytest.mark.parametrize("names", [True, False])
def test_an_import_that_is_marked_is_whole(tmp_path: Path, names: bool) -> None:
    import tarfile

    for name, text in {"a": "first", "deep/b": "second", "deep/er/c": "third"}.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    with tarfile.open(tmp_path / "data.tar", "w") as tar:
        tar.add(tmp_path / "tree", "set")
    target = tmp_path / "target"
    target.mkdir()
    found = after_loss(target, ["-c", IMPORT, str(tmp_path / "data.tar"), str(target)], tmp_path, names=names)
    assert found["set/a"] == b"first" and found["set/deep/b"] == b"second" and found["set/deep/er/c"] == b"third"
    (marker,) = [name for name in found if name.startswith(".longboat/") and name.endswith(".json")]
    assert b'"names": ["set"]' in found[marker]


@pytest.mark.parametrize("names", [True, False])
def test_a_bundle_that_was_saved_can_be_laid_out(tmp_path: Path, names: bool) -> None:
    from longboat.bundles.store import BundleStore

    tree, root = tmp_path / "tree", tmp_path / "store"
    tree.mkdir()
    for number in range(12):
        (tree / f"file-{number}").write_text(f"content {number}")
    root.mkdir()
    found = after_loss(root, ["-c", TAKE, str(tree), str(root)], tmp_path, names=names)
    (manifest,) = [name for name in found if name.startswith("manifests/")]
    BundleStore(tmp_path / "after").check_out(Path(manifest).stem, tmp_path / "copy")
    assert (tmp_path / "copy" / "file-7").read_text() == "content 7"


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(
    ("words", "file", "content"),
    [
        (["secret", "set", "TOKEN"], "secrets/TOKEN", b"v4lue"),
        (["config", "set", "engine", "local"], "config.yaml", b"engine: local"),
    ],
)
def test_what_a_command_keeps(tmp_path: Path, words: list[str], file: str, content: bytes, names: bool) -> None:
    home = tmp_path / "home"
    home.mkdir()
    found = after_loss(home, ["-m", "longboat", *words], tmp_path, names=names)
    assert content in found[file]
