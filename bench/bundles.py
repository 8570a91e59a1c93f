"""How long it takes to take a snapshot of a tree: the first time, with nothing changed, with one file changed; and to
make a working copy of it, beside `cp -r` and `tar` of the same files.

Each figure is a whole call, git included, in a process that has imported Longboat; the median of a few. Nothing is
removed before all is measured: in the minute after a large removal copies were seen to take several times as long.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from longboat.bundles.snapshot import take
from longboat.bundles.store import BundleStore

COUNTS = (1_000, 20_000)
FOLDERS = 50
REPEATS = {1_000: 5, 20_000: 3}


def measure() -> dict[str, float]:
    """Seconds by what was measured."""
    results: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="longboat-bench-") as folder:
        for count in COUNTS:
            for kind in ("git", "no git"):
                results.update(measure_tree(Path(folder) / f"{count} {kind}", count, under_git=kind == "git"))
    return results


def measure_tree(folder: Path, count: int, *, under_git: bool) -> dict[str, float]:
    root = make_tree(folder / "tree", count, under_git)
    store = BundleStore(folder / "store")
    name = f"{count:,} files, {'git' if under_git else 'no git'}"
    first = seconds(root, store)
    unchanged = median(seconds(root, store) for _ in range(REPEATS[count]))
    changed = []
    for number in range(REPEATS[count]):
        (root / "d0/f0.py").write_text(f"changed = {number}\n")
        changed.append(seconds(root, store))
    hash = take(root, store).hash
    times: dict[str, list[float]] = {way: [] for way in ("longboat", "cp", "tar")}
    for number in range(REPEATS[count]):  # in turns: what else the machine does hits all of them
        times["longboat"].append(timed(partial(store.check_out, hash, folder / f"copy{number}")))
        times["cp"].append(timed(partial(copy_by_cp, folder / "copy0", folder / f"cp{number}")))
        times["tar"].append(timed(partial(copy_by_tar, folder / "copy0", folder / f"tar{number}")))
    return {
        f"{name}: first (s)": first,
        f"{name}: unchanged (s)": unchanged,
        f"{name}: one file changed (s)": median(changed),
        f"{name}: a working copy (s)": median(times["longboat"]),
        f"{name}: the same by cp -r (s)": median(times["cp"]),
        f"{name}: the same by tar (s)": median(times["tar"]),
        f"{name}: a working copy, against cp -r": median(times["longboat"]) / median(times["cp"]),
    }


def copy_by_cp(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)


def copy_by_tar(source: Path, target: Path) -> None:
    """Both ends of a pipe, as people copy folders over a network."""
    target.mkdir()
    with subprocess.Popen(["tar", "-C", str(source), "-cf", "-", "."], stdout=subprocess.PIPE) as packing:
        subprocess.run(["tar", "-C", str(target), "-xf", "-"], stdin=packing.stdout, check=True)
    assert packing.returncode == 0


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
    return timed(partial(take, root, store))


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    for what, value in measure().items():
        print(f"{what:60} {value:8.3f}")
