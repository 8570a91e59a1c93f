"""How fast the launcher moves a rank's output into its log, against `cat` on a named pipe, side by side.

`measure()` gives MB/s for both and the ratio. Not a test: numbers depend on the machine, the ratio much less.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAUNCHER = Path(__file__).parents[1] / "src" / "longboat" / "launcher" / "__main__.py"
MEGABYTES = 512
REPEATS = 3
WRITER = f"import os\nblock = b'x' * 65536\nfor _ in range({MEGABYTES * 16}): os.write(1, block)\n"


def measure() -> dict[str, float]:
    """`tee_mb_s`, `cat_mb_s` (medians) and `tee_vs_cat`: 1 is as fast as cat."""
    tee, cat = [], []
    for _ in range(REPEATS):
        cat.append(_cat())
        tee.append(_tee())
    rates = {"tee_mb_s": statistics.median(tee), "cat_mb_s": statistics.median(cat)}
    return {**rates, "tee_vs_cat": rates["tee_mb_s"] / rates["cat_mb_s"]}


def _cat() -> float:
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        with open(os.path.join(folder, "log"), "wb") as log:
            reader = subprocess.Popen(["cat", pipe], stdout=log)
            begun = time.time()
            with open(pipe, "wb") as end:
                subprocess.run([sys.executable, "-I", "-S", "-c", WRITER], stdout=end, check=True)
            reader.wait()
            return MEGABYTES / (time.time() - begun)


def _tee() -> float:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("node", "work"):
            os.mkdir(os.path.join(folder, name))
        plan = {
            "run": "bench",
            "uid": "bench",
            "role": "worker",
            "directory": os.path.join(folder, "node"),
            "workdir": os.path.join(folder, "work"),
            "command": [sys.executable, "-I", "-S", "-c", WRITER],
            "ranks": [{"rank": 0}],
        }
        path = os.path.join(folder, "plan.json")
        Path(path).write_text(json.dumps(plan))
        subprocess.run([sys.executable, "-I", "-S", str(LAUNCHER), path], check=True)
        begun = json.loads(Path(folder, "node", "rank-0.json").read_text())["started"]
        index = Path(folder, "node", "logs", "0.out.idx").read_bytes()
        size, ended_ns = struct.unpack("<QQ", index[-16:])
        assert size == MEGABYTES * 1048576
        return float(MEGABYTES / (ended_ns / 1e9 - begun))


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
