"""`longboat --help` against a bare click program with as many commands: CPU seconds of the child, in turns.

python bench/startup.py
"""

from __future__ import annotations

import os
import statistics
import sys
import sysconfig
import tempfile
from pathlib import Path

TIMES = 15

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
    return result


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name}: {value:.3f}")
