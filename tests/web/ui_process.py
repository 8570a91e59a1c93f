"""A dashboard as a user starts it: `longboat ui` as a process, with the embedded engine of a home of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

PROGRAM = str(Path(sys.executable).parent / "longboat")
TRIED = """
import time
import longboat
for step in range(9):  # a launcher notes what a run of more than a second runs in
    longboat.step(step, loss=longboat.params()["lr"] / (step + 1))
    time.sleep(0.25)
"""
PATIENCE_S = 60.0
"""For what takes a second on a machine that does nothing else."""


class Dashboard:
    """A running `longboat ui`; `address` holds the token."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, "LONGBOAT_HOME": str(folder / "home")}
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self, port: int = 0) -> None:
        command = [PROGRAM, "ui", "--no-browser", "--port", str(port), *self._options]
        self._process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        self.address = _first_line(self._process.stdout).strip()
        assert self.address.startswith("http://127.0.0.1:"), self.address

    @property
    def origin(self) -> str:
        return self.address.split("/?")[0].rstrip("/")

    @property
    def port(self) -> int:
        return int(self.origin.rsplit(":", 1)[1])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def longboat(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *words], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=PATIENCE_S,
        )  # fmt: skip

    def run(self, name: str, script: str, *options: str) -> None:
        """Submit a script as a run and leave it alone."""
        (self.folder / f"{name}.py").write_text(script)
        done = self.longboat("run", "-d", "--id", name, *options, f"{name}.py")
        assert done.returncode == 0, done.stderr

    def sweep(self) -> None:
        """Run a sweep of two trials, `tried`, to its end."""
        (self.folder / "tried.py").write_text(TRIED)
        done = self.longboat("sweep", "-n", "tried", "--param", "lr=0.1,0.3", "-q", "tried.py")
        assert done.returncode == 0, done.stderr

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.longboat("ps", "-a", "-o", "json").stdout or "[]")
        return rows

    def remove_runs(self) -> None:
        for row in self.rows():
            self.longboat("rm", row["name"], "--force", "--yes")

    def status(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.longboat("status", name, "-o", "json").stdout)
        return answer

    def wait_for(self, name: str, *phases: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while (status := self.status(name))["phase"] not in phases:
            assert time.monotonic() < deadline, f"{name} is {status['phase']}"
            time.sleep(0.1)
        return status


def _first_line(stream: IO[str]) -> str:
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    return lines.get(timeout=PATIENCE_S)
