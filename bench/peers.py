"""The same small things through Longboat, bare Python, torchx (local_cwd) and submitit (local): side by side, in turns.

Each peer lives in an environment of its own, made once with venv and pip under ~/.cache/longboat-bench. A peer that
cannot be installed is left out, with the reason on stderr; no figure is made up for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean, median

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longboat-bench"
REQUIREMENTS = {"torchx": "torchx==0.7.0", "submitit": "submitit==1.5.4"}
WORD = "first-line-of-the-job"
# The job goes on after its line: torchx shows no log at all of a job that has ended before it looked.
SPEAK = ["sh", "-c", f"echo {WORD}; sleep 1"]

# submitit is a library: this is the program its users write.
SUBMITIT_TRIVIAL = """
import sys, submitit
executor = submitit.LocalExecutor(folder=sys.argv[1])
executor.update_parameters(timeout_min=5)
executor.submit(submitit.helpers.CommandFunction(["true"])).result()
"""
SUBMITIT_LINE = f"""
import sys, time, submitit
executor = submitit.LocalExecutor(folder=sys.argv[1])
executor.update_parameters(timeout_min=5)
job = executor.submit(submitit.helpers.CommandFunction({SPEAK!r}))
while "{WORD}" not in (job.stdout() or ""):
    time.sleep(0.005)
print("{WORD}", flush=True)
job.result()
"""

Case = Callable[[Path], list[str]]
"""Given a scratch folder, the command to time."""


def environment(name: str) -> Path | None:
    """The Python of the peer's own environment, made if need be; None when it cannot be had."""
    requirement = REQUIREMENTS[name]
    folder = CACHE / f"{requirement.replace('==', '-')}-py{sys.version_info[0]}.{sys.version_info[1]}"
    ready = folder / ".ready"
    if not ready.exists():
        print(f"installing {requirement} into {folder} ...", file=sys.stderr)
        steps = (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement],
        )
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True)
            if done.returncode:
                reason = (done.stderr or done.stdout).strip().splitlines()[-1:]
                print(f"left out: {name}: {''.join(reason)}", file=sys.stderr)
                return None
        ready.touch()
    return folder / "bin" / "python"


def longboat() -> str:
    return str(Path(sys.executable).parent / "longboat")


def own_cases() -> dict[str, dict[str, Case]]:
    trivial = "import subprocess; subprocess.run(['true'])"
    return {
        "bare python": {
            "help": lambda _: [sys.executable, "-c", "pass"],
            "trivial job": lambda _: [sys.executable, "-c", trivial],
            "first log line": lambda _: [sys.executable, "-c", f"import subprocess; subprocess.run({SPEAK!r})"],
        },
        "longboat": {
            "help": lambda _: [longboat(), "--help"],
            "trivial job": lambda _: [longboat(), "run", "--", "true"],
            "first log line": lambda _: [longboat(), "run", "--", *SPEAK],
        },
    }


def peer_cases() -> dict[str, dict[str, Case]]:
    cases: dict[str, dict[str, Case]] = {}
    if torchx := environment("torchx"):
        run = [str(torchx.parent / "torchx"), "run", "-s", "local_cwd"]
        cases["torchx"] = {
            "help": lambda _: [str(torchx.parent / "torchx"), "--help"],
            "trivial job": lambda _: [*run, "--wait", "utils.sh", "true"],
            "first log line": lambda _: [*run, "--log", "utils.sh", "--", *SPEAK],
        }
    if submitit := environment("submitit"):
        cases["submitit"] = {
            "trivial job": lambda folder: [str(submitit), "-c", SUBMITIT_TRIVIAL, str(folder / "submitit")],
            "first log line": lambda folder: [str(submitit), "-c", SUBMITIT_LINE, str(folder / "submitit")],
        }
    return cases


def time_to_exit(command: list[str], cwd: Path, env: Mapping[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True)
    took = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{command[:4]} failed with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    return took


def time_to_line(command: list[str], cwd: Path, env: Mapping[str, str]) -> float:
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout
    took = None
    output = []
    for line in process.stdout:
        # A command may repeat its arguments; the job's own line is the one that ends with the word.
        if took is None and line.rstrip().endswith(WORD.encode()):
            took = time.perf_counter() - began
        output.append(line)
    if process.wait() or took is None:
        raise SystemExit(f"{command[:4]} showed no line, exit {process.returncode}: {b''.join(output)[-500:]!r}")
    return took


def measure(repetitions: int = 11) -> dict[str, float]:
    """Medians in seconds, as `<what>/<who>`; every repetition runs each of them once, in turns.

    Of the trivial job the mean too: a peer that looks once a second takes either a third of a second or a second more.
    """
    cases = {**own_cases(), **peer_cases()}
    taken: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="longboat-bench-") as scratch:
        folder = Path(scratch)
        (folder / "empty").mkdir()
        env = {**os.environ, "LONGBOAT_HOME": str(folder / "home")}
        for repetition in range(repetitions + 1):
            for who, commands in cases.items():
                for case, command in commands.items():
                    timer = time_to_line if case == "first log line" else time_to_exit
                    took = timer(command(folder), folder / "empty", env)
                    if repetition:  # the first round warms the caches
                        taken.setdefault(f"{case}/{who}", []).append(took)
    figures: dict[str, float] = {}
    for name, values in taken.items():
        figures[name] = median(values)
        case, _, who = name.partition("/")
        if case == "trivial job":
            figures[f"trivial job, mean/{who}"] = mean(values)
    return figures


if __name__ == "__main__":
    for name, seconds in measure().items():
        print(f"{name:32} {seconds:.3f} s")
