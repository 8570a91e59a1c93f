"""One virtual environment per framework, made once and kept: `python environments.py [NAME]...` makes them beforehand.

They live in LONGBOAT_TEST_CACHE (default ~/.cache/longboat-tests), keyed by requirements and Python. A folder without
its `complete` marker is an interrupted build and is made again; a file lock lets parallel test processes wait for one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

GIB = 2**30
BUILD_TIMEOUT_S = 1800.0

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "torch": ("torch>=2.6", "numpy"),  # the Linux wheel brings the CUDA libraries along and does not load without them
    "tensorflow": ("tensorflow-cpu>=2.16", "tf-keras>=2.16"),
    "jax": ("jax>=0.5",),
    "mpi": ("mpi4py>=4", "numpy"),
    "mlserver": ("mlserver>=1.7,<2", "numpy"),
    "workbench": ("tensorboard>=2.20,<3", "jupyterlab>=4.4,<5", "ipykernel", "setuptools"),
}
IMPORTS = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "mpi": "mpi4py",
    "mlserver": "mlserver",
    "workbench": "tensorboard, jupyterlab",
}
DISK = {"torch": 8 * GIB, "tensorflow": 4 * GIB, "jax": 2 * GIB, "mpi": GIB, "mlserver": GIB, "workbench": 2 * GIB}
"""Free space a build needs: what it installs and what pip unpacks on the way."""


class Unavailable(Exception):
    """The environment cannot be made here; the message is one line."""


def make(name: str) -> Path:
    """The folder of the framework's environment, built if it is not there yet. Raises Unavailable."""
    folder = cache() / f"{name}-{_key(name)}"
    if (folder / "complete").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _build(name, folder)
    return folder


def cache() -> Path:
    return Path(os.environ.get("LONGBOAT_TEST_CACHE") or Path.home() / ".cache" / "longboat-tests")


def _key(name: str) -> str:
    told = "\n".join((*REQUIREMENTS[name], sys.version, os.path.realpath(sys.executable)))
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def _build(name: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    free = shutil.disk_usage(folder.parent).free
    if free < DISK[name]:
        raise Unavailable(f"{name} needs {DISK[name] // GIB} GiB in {folder.parent}, {free // GIB} GiB are free")
    venv.create(folder, with_pip=True, symlinks=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "install", "-q"]
    _do(name, [*pip, *REQUIREMENTS[name]])
    _do(name, [python, "-c", f"import {IMPORTS[name]}"])
    (folder / "complete").write_text("\n".join(REQUIREMENTS[name]) + "\n")


def _do(name: str, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{name}: not installed within {BUILD_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Unavailable(f"{name} cannot be installed: {lines[-1][:300]}")


def main(names: list[str]) -> int:
    failed = False
    for name in names or list(REQUIREMENTS):
        started = time.monotonic()
        try:
            print(f"{name}: {make(name)} ({time.monotonic() - started:.0f} s)", flush=True)
        except Unavailable as reason:
            failed = True
            print(reason, file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
