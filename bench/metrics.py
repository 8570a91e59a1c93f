"""What sampling costs a rank, how large its file gets, and `longboat top` of 1,000 runs that run.

python bench/metrics.py [sampling|top]

Sampling is the processor time of the launcher's sampling thread, as the kernel counts it, while eight ranks with
sixteen threads and four child processes each report twenty steps a second. The runs of `top` are their files alone:
records, heartbeats and plans, with locks held as their supervisors would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RANKS, MEASURED_S = 8, 60.0
RUNS, TIMES = 1_000, 5
TRAINER = """
import subprocess, sys, threading, time, longboat
for _ in range(15):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
loaders = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(4)]
n = 0
while not longboat.should_stop():
    n += 1
    longboat.step(n, loss=1 / n, lr=0.1)
    time.sleep(0.05)
for each in loaders:
    each.kill()
"""


def sampling() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(TRAINER)
        environment = {**os.environ, "LONGBOAT_HOME": f"{folder}/home"}
        longboat = [sys.executable, "-m", "longboat"]
        options = ["--engine", "local", "--name", "sampled", "--procs", str(RANKS), "-d", "train.py"]
        subprocess.run([*longboat, "run", *options], cwd=folder, env=environment, check=True, capture_output=True)
        node = Path(folder) / "home" / "runs" / "sampled" / "attempts" / "0" / "worker-0"
        try:
            while not (node / "metrics.jsonl").exists():
                time.sleep(0.1)
            time.sleep(10.0)  # all ranks have started
            pid = json.loads((node / "launcher.json").read_text())["pid"]
            before, began = thread_s(pid), time.monotonic()
            time.sleep(MEASURED_S)
            share = (thread_s(pid) - before) / (time.monotonic() - began)
            size = (node / "metrics.jsonl").stat().st_size
        finally:
            subprocess.run([*longboat, "stop", "sampled"], env=environment, check=True, capture_output=True)
            subprocess.run([*longboat, "wait", "sampled"], env=environment, capture_output=True)
    return {
        "sampling, % of one core for each rank": 100 * share / RANKS,
        "sampling, % of one core for a node of 8 ranks": 100 * share,
        "file after a minute, KiB for each rank": size / 1024 / RANKS,
    }


def thread_s(pid: int) -> float:
    """Processor seconds of the launcher's threads other than its first."""
    threads = [path for path in Path(f"/proc/{pid}/task").iterdir() if path.name != str(pid)]
    return sum(int((path / "schedstat").read_text().split()[0]) for path in threads) / 1e9


def top() -> dict[str, float]:
    from longboat.core.jobs import Job, Role
    from longboat.core.runs import Attempt
    from longboat.engines.local.records import LocalRecord, LocalState, RunFolder
    from longboat.engines.shared.files import open_lock, try_lock

    usage = {"cpu": 1.5, "memory": 1 << 30, "gpu": 90.0, "steps_per_s": 10.0, "pace_steps": 100}
    with tempfile.TemporaryDirectory() as home:
        now = time.time()
        job = Job(name="train", roles=(Role(name="worker", run=("python", "train.py")),), ends=("worker",))
        state = LocalState(phase="running", started=now, attempts=(Attempt(number=0, started=now),))
        beat = {
            "time": now,
            "phase": "running",
            "ranks": {"0": {"alive": True, "step": 5, "metrics": {}, "usage": usage}},
        }
        for number in range(RUNS):
            folder = RunFolder(Path(home) / "runs" / f"train-{number}")
            node = folder.attempt_dir(0) / "worker-0"
            node.mkdir(parents=True)
            name = folder.directory.name
            folder.write_record(
                LocalRecord(name=name, uid=f"{number:012x}", job=job, base=home, created=now, user="anna")
            )
            folder.write_state(state)
            try_lock(open_lock(folder.lock))
            (node / "beat.json").write_text(json.dumps(beat))
            (node / "plan.json").write_text(json.dumps({"env": {"CUDA_VISIBLE_DEVICES": ""}}))
        command = [sys.executable, "-m", "longboat", "top", "--once", "--engine", "local"]
        walls = []
        for _ in range(TIMES):
            began = time.perf_counter()
            done = subprocess.run(
                command, env={**os.environ, "LONGBOAT_HOME": home}, check=True, capture_output=True, text=True
            )
            walls.append(time.perf_counter() - began)
            assert done.stdout.startswith(f"{RUNS} running"), done.stdout[:200] + done.stderr
    return {"`longboat top --once` of 1,000 runs that run, s": min(walls)}


def measure(chosen: str = "") -> dict[str, float]:
    return {**(sampling() if chosen != "top" else {}), **(top() if chosen != "sampling" else {})}


if __name__ == "__main__":
    for name, value in measure(*sys.argv[1:2]).items():
        print(f"{name}: {value:.3f}")
