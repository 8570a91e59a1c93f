"""Trees for the tests of bundles: made from a table, put under git, read back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def make(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Files by path; a content that starts with `->` is a link."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and content.startswith("->"):
            place.symlink_to(content[2:])
        elif isinstance(content, str):
            place.write_bytes(content.encode())
        else:
            place.write_bytes(content)
    return root


def git(root: Path, *arguments: str) -> str:
    # No configuration of the machine: a test means the same everywhere.
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
    }
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def commit_all(root: Path) -> str:
    if not (root / ".git").exists():
        git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "a commit", "--allow-empty")
    return git(root, "rev-parse", "HEAD").strip()


def contents(root: Path) -> dict[str, str | bytes]:
    """What `make` would need to make this tree."""
    found: dict[str, str | bytes] = {}
    for folder, folders, files in os.walk(root):
        for name in (*files, *folders):
            place = Path(folder, name)
            if place.is_symlink():
                found[place.relative_to(root).as_posix()] = "->" + os.readlink(place)
            elif place.is_file():
                found[place.relative_to(root).as_posix()] = place.read_bytes()
    return found


def age(root: Path) -> None:
    """Give the files a time that a cache can trust, without waiting: only the change time stays, so wait for that."""
    import time

    newest = max((p.lstat().st_ctime for p in root.rglob("*")), default=0.0)
    time.sleep(max(0.0, newest + 0.15 - time.time()))


def on_small_disk(tmp_path: Path, script: str, *, size: str = "256k", read_only: bool = False) -> str:
    """The output of a Python script that finds a small disk at `tmp_path/disk`; skips where none can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    again = f"&& mount -o remount,ro {disk}" if read_only else ""
    shell = f'mount -t tmpfs -o size={size},mode=777 none {disk} && mkdir {disk}/store {again} && exec "$0" -c "$1"'
    probe = ["unshare", "-Urm", "sh", "-c", f"mount -t tmpfs -o size=64k none {disk}"]
    try:
        usable = subprocess.run(probe, capture_output=True).returncode == 0
    except FileNotFoundError:
        usable = False
    if not usable:
        pytest.skip("a disk of one's own cannot be mounted here")
    command = ["unshare", "-Urm", "sh", "-c", shell, sys.executable, script]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout
