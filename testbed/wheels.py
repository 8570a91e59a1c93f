"""Packages of a package index as a layer of an image, for Debian's Python. Not the image itself, which is `images`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import Missing

PYTHON = "3.11"
"""Of the image's Debian."""
FOLDER = f"usr/local/lib/python{PYTHON}/dist-packages"
PLATFORMS = ("2014", "_2_17", "_2_28")
NEVER_USED = ("include", "tests")
"""Folders that only compilers and testers want: a fifth of TensorFlow."""


def fill_layer(wanted: Sequence[str], layer: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".making-", dir=layer.parent) as scratch:
        folder = Path(scratch, "installed")
        install(wanted, folder)
        with tarfile.open(layer, "w") as tar:
            tar.add(folder, FOLDER, filter=_useful)


def install(wanted: Sequence[str], target: Path, python: str = PYTHON) -> None:
    """With all they need. Raises Missing where there is no package index."""
    platforms = [f"--platform=manylinux{version}_{os.uname().machine}" for version in PLATFORMS]
    options = [f"--target={target}", f"--python-version={python}", *platforms, "--only-binary=:all:", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "install"]
    done = subprocess.run([*pip, *options, *wanted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"pip gets {', '.join(wanted)} from a package index: {done.stderr.strip()[-400:]}")
    shutil.rmtree(target / "bin", ignore_errors=True)  # their commands name the Python of this machine


def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Everybody may read it, nobody of this machine owns it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


def _useful(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.isdir() and entry.name.rpartition("/")[2] in NEVER_USED else plain(entry)
