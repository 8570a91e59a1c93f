"""The embedded engine in a home of its own, with a view behind its curtain: pids of supervisors and launchers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.processes import ProcessId, is_alive
from longboat.engines.shared.files import read_value
from longboat.engines.shared.home import Home
from tests.conformance.conftest import Jobs
from tests.conformance.places import LocalPlace, open_local

WAITS = """
import os, sys, time
print("ready", os.getpid(), os.environ["LONGBOAT_ATTEMPT"], flush=True)
while not os.path.exists(os.path.join(os.environ["LONGBOAT_CHECKPOINT_DIR"], "go")):
    time.sleep(0.01)
print("done", flush=True)
"""
"""A training that goes on until `let_go`."""


class LocalJobs(Jobs):
    """Jobs on the embedded engine, and the processes behind them."""

    def __init__(self, place: LocalPlace, root: Path) -> None:
        super().__init__(place, root)
        self.home = Home(root / "home")

    def files(self, run: str) -> RunFiles:
        return RunFiles(self.home.runs / run)

    def supervisor(self, run: str) -> ProcessId:
        self.until(lambda: self.files(run).state().supervisor is not None, "the supervisor has begun")
        found = self.files(run).state().supervisor
        assert found is not None
        return found

    def launchers(self, run: str, attempt: int = 0) -> list[ProcessId]:
        paths = sorted(self.files(run).attempt_dir(attempt).glob("*/launcher.json"))
        return [found for path in paths if (found := read_value(path, ProcessId)) is not None]

    def let_go(self, run: str) -> None:
        folder = self.engine.status(run).checkpoint_dir
        assert folder is not None
        (Path(folder) / "go").touch()

    def kill(self, process: ProcessId, number: int = signal.SIGKILL) -> None:
        os.kill(process.pid, number)
        if number == signal.SIGKILL:
            self.until(lambda: not is_alive(process), f"{process.pid} is gone")


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalJobs]:
    with open_local(tmp_path) as place:
        yield LocalJobs(place, tmp_path)
