"""A node for a test: its folders, its plan, and a real launcher that runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

LAUNCHER = Path(__file__).parents[2] / "src" / "longboat" / "launcher" / "__main__.py"
PATIENCE_S = 120.0


def until(
    condition: Callable[[], Any], *, told: Callable[[], str] = lambda: "did not happen", every_s: float = 0.02
) -> Any:
    """Wait until the condition holds; returns what it gave. `told` says what is known when it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(every_s)
    raise AssertionError(told())


def survivors(uid: str) -> list[int]:
    """Processes that still carry this uid in their environment."""
    mark = f"LONGBOAT_RUN_UID={uid}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def end_all(launchers: Iterable[subprocess.Popen[bytes]], uid: str) -> None:
    """Whatever the test did, nothing of it may go on."""
    for launcher in launchers:
        if launcher.poll() is None:
            launcher.kill()
            launcher.wait()
    for pid in survivors(uid):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


class Node:
    def __init__(
        self, folder: Path, command: str | list[str], *, procs: int = 1, first_rank: int = 0, **keys: Any
    ) -> None:
        self.folder = folder
        self.uid = uuid.uuid4().hex
        for name in ("node", "work", "scratch"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.directory = folder / "node"
        self.work = folder / "work"
        ranks = [
            {"rank": first_rank + i, "local_rank": i, "env": {"RANK": str(first_rank + i), "LOCAL_RANK": str(i)}}
            for i in range(procs)
        ]
        self.plan: dict[str, Any] = {
            "run": "tests",
            "uid": self.uid,
            "attempt": 0,
            "role": "worker",
            "index": 0,
            "node": "worker-0",
            "node_rank": 0,
            "address": "127.0.0.1",
            "directory": str(self.directory),
            "workdir": str(self.work),
            "scratch": str(folder / "scratch"),
            "starter": "longboat",
            "command": command,
            "env": {"WORLD_SIZE": str(procs)},
            "unset": [],
            "path_prepend": [str(Path(sys.executable).parent)],
            "ranks": ranks,
            "setup": None,
            "setup_lock": None,
            "peers": [{"node": "worker-0", "address": "127.0.0.1"}],
            "wait": {"kind": "none"},
            "grace_s": 20,
            "stall_s": None,
            "memory_limit": None,
            "checkpoint_dir": str(folder / "checkpoints"),
            "artifacts_dir": str(folder / "artifacts"),
            "resume_from": None,
            "mpi": None,
            "echo": False,
            **keys,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def script(self, text: str, name: str = "train.py") -> None:
        (self.work / name).write_text(text)

    def start(
        self,
        *,
        python: str = sys.executable,
        launcher: Path = LAUNCHER,
        env: dict[str, str] | None = None,
        **popen: Any,
    ) -> subprocess.Popen[bytes]:
        path = self.folder / "plan.json"
        path.write_text(json.dumps(self.plan))
        self.process = subprocess.Popen(
            [python, "-I", "-S", str(launcher), str(path)], env={**os.environ, **(env or {})}, **popen
        )
        return self.process

    def run(self, **start: Any) -> int:
        """Run to the end and return the exit code."""
        return self.wait(self.start(**start))

    def wait(self, process: subprocess.Popen[bytes] | None = None) -> int:
        process = process or self.process
        assert process is not None
        return process.wait(timeout=PATIENCE_S)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def until(self, condition: Callable[[], Any]) -> Any:
        return until(condition)

    def until_log(self, text: str, name: str = "0.out") -> None:
        self.until(lambda: text.encode() in self.log(name))

    def log(self, name: str = "0.out") -> bytes:
        path = self.directory / "logs" / name
        return path.read_bytes() if path.exists() else b""

    def json(self, name: str) -> Any:
        return json.loads((self.directory / name).read_text())

    def has(self, name: str) -> bool:
        return (self.directory / name).exists()

    @property
    def outcome(self) -> Any:
        return self.json("outcome.json")

    def report(self, rank: int = 0) -> Any:
        return self.json(f"rank-{rank}.json")

    def survivors(self) -> list[int]:
        return survivors(self.uid)

    def close(self) -> None:
        end_all([self.process] if self.process is not None else [], self.uid)
