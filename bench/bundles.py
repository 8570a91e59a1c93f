"""How long it takes to take a snapshot of a tree: the first time, with nothing changed, with one file changed.

Each figure is a whole call of `take`, git included, in a process that has imported Longboat; the median of a few.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from longboat.bundles.snapshot import take
from longboat.bundles.store import BundleStore

COUNTS = (1_000, 20_000)
FOLDERS = 50
REPEATS = 5


def measure() -> dict[str, float]:
    """Seconds by what was measured."""
    results: dict[str, float] = {}
    for count in COUNTS:
        for kind in ("git", "no git"):
            with tempfile.TemporaryDirectory(prefix="longboat-bench-") as folder:
                results.update(measure_tree(Path(folder), count, under_git=kind == "git"))
    return results


def measure_tree(folder: Path, count: int, *, under_git: bool) -> dict[str, float]:
    root = make_tree(folder / "tree", count, under_git)
    store = BundleStore(folder / "store")
    name = f"{count:,} files, {'git' if under_git else 'no git'}"
    first = seconds(root, store)
    unchanged = median(seconds(root, store) for _ in range(REPEATS))
    changed = []
    for number in range(REPEATS):
        (root / "d0/f0.py").write_text(f"changed = {number}\n")
        changed.append(seconds(root, store))
    began = time.perf_counter()
    store.check_out(take(root, store).hash, folder / "copy")
    return {
        f"{name}: first (s)": first,
        f"{name}: unchanged (s)": unchanged,
        f"{name}: one file changed (s)": median(changed),
        f"{name}: unchanged, and a working copy (s)": time.perf_counter() - began,
    }


def make_tree(root: Path, count: int, under_git: bool) -> Path:
    for number in range(FOLDERS):
        (root / f"d{number}").mkdir(parents=True)
    for number in range(count):
        (root / f"d{number % FOLDERS}/f{number}.py").write_text(f"value = {number}\n" * 60)
    if under_git:
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
        for step in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
            subprocess.run(["git", "-C", str(root), *identity, *step], check=True, env=environment)
    time.sleep(0.5)  # files as young as the snapshot itself are read twice; that is not what is measured
    return root


def seconds(root: Path, store: BundleStore) -> float:
    began = time.perf_counter()
    take(root, store)
    return time.perf_counter() - began


if __name__ == "__main__":
    for what, value in measure().items():
        print(f"{what:60} {value:8.3f}")
