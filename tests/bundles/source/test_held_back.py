"""Which rule keeps a file behind, and what takes it along: the answers agree with what a snapshot really leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.bundles.snapshot import take
from longboat.bundles.source.held_back import advice, held_back, travels
from longboat.bundles.store import BundleStore
from tests.bundles.trees import commit_all, make

FILES = {
    ".gitignore": "# large\ndata/\n*.bin\nall/*\n",
    ".longboatignore": "notes/\n",
    "train.py": "",
    "data/train/x.npy": "1",
    "weights/a.bin": "1",
    "all/x": "1",
    "notes/a.md": "1",
    "sub/.longboatignore": "*.txt\n",
    "sub/keep.md": "1",
    "sub/x.txt": "1",
    "drafts/a.py": "1",
    "settings.py": f"TOKEN = 'hf_{'a1' * 18}'",
    ".env": "A=1",
    ".venv/pyvenv.cfg": "",
    ".venv/bin/python": "",
    "pkg/__pycache__/m.pyc": "1",
    "pkg/m.py": "1",
    "far": "->/mnt/far",
}


@pytest.mark.parametrize(
    ("path", "whole", "rule", "reason", "step"),
    [
        ("data/train/x.npy", "data", "git", ".gitignore:2: data/", "`volumes: {data: ./data}`"),
        ("data", "data", "git", ".gitignore:2: data/", "`include: [data]`"),
        ("weights/a.bin", "weights/a.bin", "git", ".gitignore:3: *.bin", "`include: [weights/a.bin]`"),
        ("weights", "weights", "git", ".gitignore:3: *.bin", "`include: [weights]`"),
        ("all", "all", "git", ".gitignore:4: all/*", "`include: [all]`"),
        ("notes/a.md", "notes/a.md", "ignored", ".longboatignore has 'notes/'", "include"),
        ("sub/x.txt", "sub/x.txt", "ignored", "sub/.longboatignore has '*.txt'", "include"),
        ("drafts/a.py", "drafts/a.py", "exclude", "`exclude` of the job has 'drafts'", "drop that line"),
        ("settings.py", "settings.py", "secret", "it holds a Hugging Face token", "`secrets`"),
        (".env", ".env", "secret", "its name is that of a secret", "`include: [.env]`"),
        (".venv/bin/python", ".venv", "environment", "virtual environments never travel", "activate"),
        ("pkg/__pycache__/m.pyc", "pkg/__pycache__", "never", "__pycache__ never travels", "`setup`"),
        ("far", "far", "link", "it is a link to /mnt/far", "volumes"),
        ("hollow", "hollow", "empty", "empty folders do not travel", "mkdir -p hollow"),
    ],
)
def test_rules(tmp_path: Path, path: str, whole: str, rule: str, reason: str, step: str) -> None:
    root = make(tmp_path / "tree", FILES)
    (root / "hollow").mkdir()
    commit_all(root)
    snapshot = take(root, BundleStore(tmp_path / "store"), exclude=["drafts"])
    assert not travels(path, {entry.path for entry in snapshot.entries})
    held = held_back(str(root), path, exclude=["drafts"])
    assert held is not None and (held.path, held.rule) == (whole, rule)
    assert reason in held.reason and step in advice(held, is_cluster=False)


def test_what_travels_is_not_held_back(tmp_path: Path) -> None:
    root = make(tmp_path / "tree", FILES)
    commit_all(root)
    snapshot = take(root, BundleStore(tmp_path / "store"))
    for entry in snapshot.entries:
        assert travels(entry.path, {entry.path}) and held_back(str(root), entry.path) is None
    assert held_back(str(root), "nowhere") is None


def test_a_cluster_has_no_folders_of_this_machine(tmp_path: Path) -> None:
    root = make(tmp_path / "tree", FILES)
    commit_all(root)
    data, environment = held_back(str(root), "data"), held_back(str(root), ".venv/bin/python")
    assert data is not None and environment is not None
    assert "s3://BUCKET/NAME/" in advice(data, is_cluster=True) and "volumes: {data: ./" not in advice(
        data, is_cluster=True
    )
    assert "pip install" in advice(environment, is_cluster=True)
