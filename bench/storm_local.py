"""Episodes on the embedded engine, in a home of their own: supervisors, launchers and ranks of this machine."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from longboat.core.runs import RunStatus
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.processes import is_alive
from longboat.engines.shared.files import open_lock, try_lock
from storm_episode import PlayedEpisode, kill, parent, processes
from storm_plan import Episode
from storm_trainer import until

KINDS = ("rank", "launcher", "supervisor", "exit")
PARTS: tuple[str, ...] = ()
SHARED = ("bundles", "ports", "addresses", "gpus", "environments", "data", "shims", "queue")
"""Folders of a home that runs share: caches and locks."""
EMPTY = ("runs", "checkpoints", "checkpoints/.removed")


class LocalEpisode(PlayedEpisode):
    def __init__(self, episode: Episode, folder: Path, command_s: float) -> None:
        super().__init__(episode, folder, command_s)
        self.environment |= {"LONGBOAT_GPUS": "a,b"}
        self.engine = LocalEngine(self.home, environment=self.environment)
        self.write_job(str(self.witness.folder))

    def victim(self, kind: str, attempt: int, at: int) -> int | None:
        if kind == "supervisor":
            supervisor = RunFiles(self.home / "runs" / self.run_name).state().supervisor
            return supervisor.pid if supervisor is not None and is_alive(supervisor) else None
        started = self.witness.said(attempt, at, "start")
        uid = self.engine.status(self.run_name).uid
        pid = int(started[0][1]) if started else None
        if pid is None or pid not in processes("LONGBOAT_RUN_UID", uid):
            return None
        return pid if kind == "rank" else parent(pid)

    def disturb(self, kind: str) -> None:
        raise AssertionError(f"this machine has no {kind}")

    def check_place(self, status: RunStatus) -> None:
        with self.waited("a process of the run is left"):
            until(lambda: not processes("LONGBOAT_RUN_UID", status.uid), "its processes are gone", 60.0)
        with self.waited("a supervisor is left"):
            until(lambda: not self.supervisors(), "its supervisor is gone", 60.0)
        for path in (self.home / "gpus").glob("*"):
            lock = open_lock(path)
            if not try_lock(lock):
                self.complaints.append(f"GPU lock {path.name} is taken")
            os.close(lock)
        for path in (self.home / "queue").glob("[!.]*.lock"):
            lock = open_lock(path)
            is_free = try_lock(lock)
            os.close(lock)
            # One whose supervisor was killed as it left, when all was done, goes when the next one looks at the queue.
            if not (is_free and self.episode.is_wild):
                self.complaints.append(f"{path.name} is left in the queue")

    def supervisors(self) -> list[int]:
        """Whatever works for this home, but the process that plays."""
        return [pid for pid in processes("LONGBOAT_HOME", str(self.home)) if pid != os.getpid()]

    def left(self) -> list[str]:
        paths = [path.relative_to(self.home) for path in self.home.rglob("*")]
        return [str(path) for path in paths if path.parts[0] not in SHARED and str(path) not in EMPTY]

    def keep(self) -> None:
        """The home stays."""

    def end_all(self) -> None:
        """Nothing of an episode that went wrong may go on."""
        for pid in self.supervisors():
            kill(pid)


def prepare(_flavour: str, _count: int) -> None:
    """This machine is all there is."""


def living() -> dict[str, int]:
    """Processes that live through all episodes: none, each run has a supervisor of its own."""
    return {}


def close() -> None:
    """Nothing outlives the episodes."""


def play(episode: Episode, folder: Path, command_s: float) -> tuple[Counter[str], list[str]]:
    played = LocalEpisode(episode, folder, command_s)
    try:
        played.play()
    finally:
        played.end_all()
    return played.kills, played.complaints
