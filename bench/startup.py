"""`longboat --help` against a bare click program with as many commands (CPU seconds of the child), and the trivial job
against `python -c pass` (seconds, and CPU seconds of all its processes), each in turns.

python bench/startup.py
"""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

TIMES = 15
ROUNDS = 31
_SUBREAPER = 36

BARE = """
import click

@click.group()
def cli():
    '''A bare program.'''

def add(number):
    @cli.command(f"command-{{number}}")
    def command():
        '''One line of help for this command.'''

for number in range({count}):
    add(number)

cli()
"""


def cpu_s(command: list[str]) -> float:
    """User and system time of one child, start to end."""
    void = os.open(os.devnull, os.O_WRONLY)
    actions = [(os.POSIX_SPAWN_DUP2, void, 1)]
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    _, status, used = os.wait4(pid, 0)
    os.close(void)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"failed: {' '.join(command)}")
    return used.ru_utime + used.ru_stime


def measure() -> dict[str, float]:
    from longboat.cli.main import SECTIONS

    longboat = os.path.join(sysconfig.get_path("scripts"), "longboat")
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE.format(count=sum(map(len, SECTIONS.values()))))
        commands = {
            "bare click --help, CPU s": [sys.executable, str(bare), "--help"],
            "longboat --help, CPU s": [longboat, "--help"],
            "longboat --version, CPU s": [longboat, "--version"],
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(TIMES + 1):
            for name, command in commands.items():
                taken[name].append(cpu_s(command))
    # The first round only fills the caches.
    result = {name: statistics.median(values[1:]) for name, values in taken.items()}
    result["longboat --help / bare click --help"] = (
        result["longboat --help, CPU s"] / result["bare click --help, CPU s"]
    )
    return {**result, **trivial_job(longboat)}


def trivial_job(longboat: str) -> dict[str, float]:
    """`longboat run -- true` and `python -c pass` in turns, in an empty folder, with compiled modules."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # the supervisor's time counts too
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "libraries": [sys.executable, "-c", "import click, msgspec"],
        "job": [longboat, "run", "--", "true"],
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as empty:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["LONGBOAT_HOME"] = home
        before = os.getcwd()
        os.chdir(empty)
        for _ in range(ROUNDS + 1):
            for name, command in commands.items():
                taken[name].append(wall_and_cpu_s(command, environment))
        os.chdir(before)
    wall, cpu = (
        {name: statistics.median(pair[i] for pair in pairs[1:]) for name, pairs in taken.items()} for i in (0, 1)
    )
    return {
        "python -c pass, s": wall["python"],
        "trivial job, s": wall["job"],
        "trivial job / python -c pass": wall["job"] / wall["python"],
        "loading click and msgspec / python -c pass": wall["libraries"] / wall["python"],
        "python -c pass, CPU s": cpu["python"],
        "trivial job, CPU s of all its processes": cpu["job"],
        "trivial job / python -c pass, CPU": cpu["job"] / cpu["python"],
        "loading click and msgspec / python -c pass, CPU": cpu["libraries"] / cpu["python"],
    }


def wall_and_cpu_s(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds until the command has ended, and the CPU seconds of it and of what it left running."""
    void = os.open(os.devnull, os.O_WRONLY)
    actions = [(os.POSIX_SPAWN_DUP2, void, 1), (os.POSIX_SPAWN_DUP2, void, 2)]
    began = time.perf_counter()
    pid = os.posix_spawn(command[0], command, environment, file_actions=actions)
    os.close(void)
    wall = cpu = 0.0
    while True:
        try:
            ended, _, used = os.wait4(-1, 0)
        except ChildProcessError:
            return wall, cpu
        cpu += used.ru_utime + used.ru_stime
        if ended == pid:
            wall = time.perf_counter() - began


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name}: {value:.3f}")
