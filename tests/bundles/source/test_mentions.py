"""Paths in commands and messages, as tables."""

from __future__ import annotations

import pytest

from longboat.bundles.source.mentions import in_command, in_failure


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        (["python", "train.py", "--data", "data/"], ["python", "train.py", "data"]),
        ("source .venv/bin/activate && python train.py", ["source", ".venv/bin/activate", "&&", "python", "train.py"]),
        (".venv/bin/python train.py --data=./sets/a", [".venv/bin/python", "train.py", "sets/a"]),
        (["python", "/x/y", "~/z", "$HOME/q", "s3://b/c", "../up", "."], ["python"]),
        (["python", "t.py", "--output-dir", "exp", "--log=text", "--to", "runs/7"], ["python", "t.py"]),
        (["/bin/bash", "-lc", "source .venv/bin/activate && a"], ["source", ".venv/bin/activate", "&&", "a"]),
        (["env", "A=b", "sh", "-c", "cat data/x"], ["env", "b", "sh", "cat", "data/x"]),
        (["python", "-c", "open('a b')"], ["python", "open('a b')"]),
        ("python 'unclosed data", ["python", "'unclosed", "data"]),
    ],
)
def test_commands(command: str | list[str], paths: list[str]) -> None:
    assert in_command(command) == paths


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train/x.npy'", "data/train/x.npy"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/h/runs/a/attempts/0/worker-0/work/data/x'",
            "data/x",
        ),
        ("sh: 1: .venv/bin/python: not found", ".venv/bin/python"),
        ("sh: 1: .: cannot open .venv/bin/activate: No such file", ".venv/bin/activate"),
        ("bash: line 1: .venv/bin/activate: No such file or directory", ".venv/bin/activate"),
        ("python: can't open file '/copy/here/scripts/go.py': [Errno 2] No such file or directory", "scripts/go.py"),
        ("OSError: data/x.h5 not found.", "data/x.h5"),
        ("ModuleNotFoundError: No module named 'settings'", "settings.py"),
        ("ModuleNotFoundError: No module named 'pkg.keys'", "pkg/keys.py"),
        ("ModuleNotFoundError: No module named 'pkg.keys'", "src/pkg/keys.py"),
        ("/usr/bin/python: No module named settings", "settings.py"),
        ("ModuleNotFoundError: No module named 'near'", "scripts/near.py"),
    ],
)
def test_messages(line: str, path: str) -> None:
    assert path in in_failure(["epoch 1", line], work="/copy/here", folders=["scripts"])


def test_other_lines_mention_nothing() -> None:
    assert in_failure(["loading 'data/x'", "ValueError: 'data/x' is empty"]) == []
