"""What it costs that a run survives a power loss: the same commands with every sync and with none, in turns.

python bench/syncing.py
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))

from peers import longboat, time_to_exit

TIMES = 31
FILES = 1000


def measure(times: int = TIMES) -> dict[str, float]:
    """Medians in seconds, and their ratios. Each round runs all of them once; the first only warms the caches."""
    taken: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="longboat-bench-") as scratch:
        folder = Path(scratch)
        (folder / "empty").mkdir()
        for number in range(times + 1):
            for name, setting in (("synced", {}), ("not synced", {"LONGBOAT_SYNC": "off"})):
                env = {**os.environ, "LONGBOAT_HOME": str(folder / f"home {name}"), **setting}
                took = time_to_exit([longboat(), "run", "--", "true"], folder / "empty", env)
                said = time_to_exit([longboat(), "run", "--", "echo", "said"], folder / "empty", env)
                if number:
                    taken.setdefault(f"trivial job, {name}", []).append(took)
                    taken.setdefault(f"job with one line, {name}", []).append(said)
        for name, setting in (("synced", {}), ("not synced", {"LONGBOAT_SYNC": "off"})) * 3:
            tree = folder / f"tree {len(taken.get(f'{FILES} new files, {name}', []))} {name}"
            tree.mkdir()
            for number in range(FILES):
                (tree / f"file-{number}.py").write_text(f"# {tree} {number}\n" * 40)
            env = {**os.environ, "LONGBOAT_HOME": str(folder / f"home {name}"), **setting}
            took = time_to_exit([longboat(), "run", "-d", "--", "true"], tree, env)
            taken.setdefault(f"{FILES} new files, {name}", []).append(took)
    figures = {f"{name}, s": median(values) for name, values in taken.items()}
    for name in ("trivial job", "job with one line", f"{FILES} new files"):
        figures[f"{name}: synced / not synced"] = figures[f"{name}, synced, s"] / figures[f"{name}, not synced, s"]
    return figures


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name}: {value:.3f}")
