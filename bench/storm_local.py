"""Episodes on the embedded engine, in a home of their own: commands of the command line, kills, and what is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from storm_checks import Aftermath, steps_that_fell
from storm_plan import Blow, Episode, KilledCommand
from storm_trainer import TRAINER, NeverHappened, Witness, job_of, until

from longboat.core.errors import LongboatError
from longboat.core.runs import LogQuery, RunStatus
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.processes import is_alive
from longboat.engines.shared.files import open_lock, try_lock

KINDS = ("rank", "launcher", "supervisor", "exit")
SHARED = ("bundles", "ports", "addresses", "gpus", "environments", "data", "shims", "queue")
"""Folders of a home that runs share: caches and locks."""
COMMAND_S = 180.0


def processes(name: str, value: str) -> list[int]:
    """Live processes with this variable in their environment."""
    mark, found = f"{name}={value}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX" and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class LocalEpisode:
    """One training with its own home. `kills` counts what was hit, `complaints` what should not be."""

    def __init__(self, episode: Episode, folder: Path, command_s: float) -> None:
        self.episode, self.folder, self.command_s = episode, folder, command_s
        self.home = folder / "home"
        self.witness = Witness(folder / "witness")
        self.kills: Counter[str] = Counter()
        self.fallen: list[str] = []
        self.seen: list[tuple[int, int | None]] = []
        self.complaints: list[str] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LONGBOAT_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
        gpus = {"LONGBOAT_HOME": str(self.home), "LONGBOAT_GPUS": "a,b", "PATH": path}
        self.environment = {**kept, **gpus}
        self.engine = LocalEngine(self.home, environment=self.environment)
        code = folder / "code"
        code.mkdir()
        (code / "train.py").write_text(TRAINER)
        (code / "job.yaml").write_text(json.dumps(job_of(episode, str(self.witness.folder))))

    # commands

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "longboat", *words]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.folder / "code", env=self.environment, **pipes)  # type: ignore[call-overload,no-any-return]

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        process = self.start(*words)
        out, err = process.communicate(timeout=COMMAND_S)
        if b"Traceback" in err or process.returncode == 200:
            self.complaints.append(f"{' '.join(words)}: {err.decode(errors='replace')[-600:]}")
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def kill_command(self, words: tuple[str, ...], delay: float) -> None:
        process = self.start(*words)
        try:
            process.wait(delay * self.command_s)
        except subprocess.TimeoutExpired:
            process.kill()
            self.kills[f"command {words[0]}"] += 1
        process.communicate()

    def submit(self) -> None:
        """Handed over by a command that is killed first; the same command again must find or make the one run."""
        words = ("run", "-d", "--id", "train", "job.yaml")
        if self.episode.seed % 3:
            self.kill_command(words, (self.episode.seed % 97) / 97 * 1.5)
        done = self.run(*words)
        if done.returncode != 0 or done.stdout.strip() != b"train":
            self.complaints.append(f"run: {done.returncode} {done.stdout!r} {done.stderr.decode()[-600:]}")
        names = [run.name for run in self.engine.list()]
        if names != ["train"]:
            self.complaints.append(f"runs after the submission: {names}")

    # blows

    def look(self) -> RunStatus:
        self.engine.list()  # what a command does: a run whose supervisor was killed gets another one
        status = self.engine.status("train")
        self.seen.append((status.attempt, status.step))
        return status

    def rank_pid(self, attempt: int, rank: int) -> int:
        return int(self.witness.said(attempt, rank, "start")[0][1])

    def victim(self, kind: str, attempt: int, at: int) -> int | None:
        if kind == "supervisor":
            supervisor = RunFiles(self.home / "runs" / "train").state().supervisor
            return supervisor.pid if supervisor is not None and is_alive(supervisor) else None
        if not self.witness.said(attempt, at, "start"):
            return None
        pid = self.rank_pid(attempt, at)
        uid = self.engine.status("train").uid
        if pid not in processes("LONGBOAT_RUN_UID", uid):
            return None
        return pid if kind == "rank" else parent(pid)

    def strike(self, blow: Blow) -> None:
        """While all ranks of the attempt stand still."""
        until(lambda: self.look() and self.witness.stand_still(self.episode, blow.attempt), f"attempt {blow.attempt} stands still")
        for command in self.episode.commands:
            if command.attempt == blow.attempt:
                self.kill_command(command.words, command.delay)
        if self.episode.is_stopped and blow is self.episode.blows[-1]:
            self.kill_command(("stop", "train"), 0.5 + (self.episode.seed % 10) / 10)
            stopped = self.run("stop", "train")
            if stopped.returncode != 0:
                self.complaints.append(f"stop: {stopped.returncode} {stopped.stderr.decode()[-600:]}")
        elif blow.kind == "exit":
            self.witness.order(blow.attempt, f"{blow.at} {blow.code}")
        else:
            pid = self.victim(blow.kind, blow.attempt, blow.at)
            if pid is None or not kill(pid):
                self.complaints.append(f"nobody to kill: {blow.kind} of attempt {blow.attempt}")
            self.kills[blow.kind] += 1

    def strike_wildly(self) -> None:
        """At any moment of an attempt, also while it starts and ends."""
        import random

        chance = random.Random(self.episode.seed)
        for blow in self.episode.blows:
            time.sleep(chance.random() * 1.5)
            status = self.look()
            kind = "rank" if blow.kind == "exit" else blow.kind
            pid = None if status.is_final else self.victim(kind, status.attempt, blow.at)
            if pid is not None and kill(pid):
                self.kills[kind] += 1
                self.fallen.append(kind)

    # the whole

    def play(self) -> None:
        follower = None
        try:
            self.submit()
            follower = self.start("logs", "-f", "train") if self.episode.seed % 2 else None
            if self.episode.is_wild:
                self.strike_wildly()
            else:
                for blow in self.episode.blows:
                    self.strike(blow)
            until(lambda: self.look().is_final, "the run ends")
            self.check(follower)
        except (NeverHappened, subprocess.TimeoutExpired, LongboatError) as error:
            self.complaints.append(f"{type(error).__name__}: {error}; {self.told()}")
        finally:
            if follower is not None and follower.poll() is None:
                follower.kill()
                follower.communicate()

    def told(self) -> str:
        try:
            status = self.engine.status("train")
        except LongboatError as error:
            return str(error)
        notes = {(attempt, rank): self.witness.notes(attempt, rank)[-1:] for attempt, rank in self.witness.starts()}
        return f"{status.phase} attempt {status.attempt} {status.reason!r} {notes}"

    def check(self, follower: subprocess.Popen[bytes] | None) -> None:
        waited = self.run("wait", "train")
        status = self.engine.status("train")
        if waited.returncode != status.exit_code:
            self.complaints.append(f"wait returned {waited.returncode}, the run has {status.exit_code}")
        lines = list(self.engine.logs("train", LogQuery()))
        after = Aftermath(self.episode, self.witness, status, self.fallen)
        self.complaints += after.complaints(lines, Path(status.checkpoint_dir or "/nowhere"))
        self.complaints += steps_that_fell(self.seen)
        if follower is not None:
            out, _ = follower.communicate(timeout=COMMAND_S)
            shown = sorted(line.rpartition(b"line ")[2] for line in out.splitlines())
            kept = sorted(line.data.strip().rpartition(b"line ")[2] for line in lines if line.stream == "out")
            if shown != kept:
                self.complaints.append(f"`logs -f` showed {len(shown)} lines, {len(kept)} are kept")
        listed = [run.name for run in self.engine.list()]
        if listed != ["train"]:
            self.complaints.append(f"runs at the end: {listed}")
        self.check_machine(status.uid)
        self.remove()

    def check_machine(self, uid: str) -> None:
        with self.waited("a process of the run is left"):
            until(lambda: not processes("LONGBOAT_RUN_UID", uid), "its processes are gone", 60.0)
        with self.waited("a supervisor is left"):
            until(lambda: not self.supervisors(), "its supervisor is gone", 60.0)
        for path in (self.home / "gpus").glob("*"):
            lock = open_lock(path)
            if not try_lock(lock):
                self.complaints.append(f"GPU lock {path.name} is taken")
            os.close(lock)
        queued = [path.name for path in (self.home / "queue").glob("*") if not path.name.startswith(".")]
        self.complaints += [f"{name} is left in the queue" for name in queued]

    def supervisors(self) -> list[int]:
        mine = {os.getpid()}
        return [pid for pid in processes("LONGBOAT_HOME", str(self.home)) if pid not in mine]

    def remove(self) -> None:
        """By a command that is killed first."""
        self.kill_command(("rm", "--purge", "train"), (self.episode.seed % 89) / 89 * 1.3)
        self.run("rm", "--purge", "train")
        left = [path.relative_to(self.home) for path in self.home.rglob("*")]
        kept = ("runs", "checkpoints", "checkpoints/.removed")
        named = [str(path) for path in left if path.parts[0] not in SHARED and str(path) not in kept]
        self.complaints += [f"left after rm --purge: {name}" for name in named]
        if self.engine.list():
            self.complaints.append("it is still listed after rm")

    @contextlib.contextmanager
    def waited(self, complaint: str) -> Iterator[None]:
        try:
            yield
        except NeverHappened:
            self.complaints.append(complaint)

    def end_all(self) -> None:
        """Nothing of an episode that went wrong may go on."""
        for pid in self.supervisors():
            kill(pid)


def play(episode: Episode, folder: Path, command_s: float) -> tuple[Counter[str], list[str]]:
    played = LocalEpisode(episode, folder, command_s)
    try:
        played.play()
    finally:
        played.end_all()
    return played.kills, played.complaints


__all__ = ["KINDS", "KilledCommand", "play"]
