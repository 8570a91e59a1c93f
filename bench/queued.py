"""200 runs that wait for their turn, and what a run costs that does nothing. Peers here do not queue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 200
IDLE_S = 30
TICKS = os.sysconf("SC_CLK_TCK")


def longboat(*arguments: str, env: dict[str, str], cwd: Path, fails: bool = False) -> str:
    command = [str(Path(sys.executable).parent / "longboat"), *arguments]
    done = subprocess.run(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode and not fails:
        raise SystemExit(f"longboat {' '.join(arguments[:3])} failed with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def phases(env: dict[str, str], cwd: Path) -> dict[str, str]:
    return {run["name"]: run["phase"] for run in json.loads(longboat("ps", "-a", "-o", "json", env=env, cwd=cwd))}


def queue_up(env: dict[str, str], cwd: Path) -> dict[str, float]:
    """Submit RUNS runs that need one CPU each, and wait until the last has ended."""
    job = cwd / "job.yaml"
    job.write_text('name: queued\nrun: "true"\ncpus: 1\n')
    began = time.perf_counter()
    for _ in range(RUNS):
        longboat("run", "-d", str(job), env=env, cwd=cwd)
    submitted = time.perf_counter() - began
    while True:
        seen = phases(env, cwd)
        if len(seen) == RUNS and all(phase in ("succeeded", "failed", "stopped") for phase in seen.values()):
            break
        time.sleep(0.2)
    took = time.perf_counter() - began
    wrong = [name for name, phase in seen.items() if phase != "succeeded"]
    if wrong:
        raise SystemExit(f"{len(wrong)} of {RUNS} queued runs did not succeed: {wrong[:5]}")
    return {
        "submitting each of 200 queued runs, s": submitted / RUNS,
        "200 queued runs, until all have finished, s": took,
        "200 queued runs, for each, s": took / RUNS,
    }


def processes_of(home: str) -> list[Path]:
    entries = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"LONGBOAT_HOME={home}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                entries.append(entry)
        except OSError:
            continue
    return entries


def cpu_seconds(processes: list[Path]) -> float:
    """CPU used so far by all threads of these processes, and by the children they have waited for."""
    # schedstat counts nanoseconds; stat counts ticks of 10 ms, too coarse for an idle process, but alone has children.
    own = sum(int(file.read_text().split()[0]) for entry in processes for file in entry.glob("task/*/schedstat"))
    stats = [(entry / "stat").read_text().rpartition(")")[2].split() for entry in processes]
    return own / 1e9 + sum(int(ticks) for fields in stats for ticks in fields[13:15]) / TICKS


def idle_cost(env: dict[str, str], cwd: Path) -> dict[str, float]:
    """CPU that supervisor, launcher and a sleeping rank use while nothing happens, in percent of one CPU."""
    name = longboat("run", "-d", "-n", "idle", "--", "sleep", str(IDLE_S + 60), env=env, cwd=cwd).split()[-1]
    while phases(env, cwd)["idle"] != "running":
        time.sleep(0.1)
    time.sleep(2)  # past the start
    processes = processes_of(env["LONGBOAT_HOME"])
    before, began = cpu_seconds(processes), time.perf_counter()
    time.sleep(IDLE_S)
    cost = (cpu_seconds(processes) - before) / (time.perf_counter() - began)
    longboat("stop", "idle", env=env, cwd=cwd)
    longboat("wait", "idle", env=env, cwd=cwd, fails=True)  # the code of a stopped run
    if len(processes) < 3:
        raise SystemExit(f"only {len(processes)} processes of the idle run {name} were found")
    return {"idle run, % of one CPU": 100 * cost}


def measure() -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="longboat-bench-") as scratch:
        folder = Path(scratch)
        results = {}
        for part in (queue_up, idle_cost):
            cwd = folder / part.__name__
            cwd.mkdir()
            env = {**os.environ, "LONGBOAT_HOME": str(cwd / "home")}
            results.update(part(env, cwd))
        return results


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:48} {value:.3f}")
