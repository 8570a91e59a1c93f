"""One episode as it is played, on either engine: commands that are killed, blows, and the look at what is left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from longboat.core.errors import LongboatError
from longboat.core.runs import LogLine, LogQuery, RunStatus
from longboat.engines.engine import Engine
from storm_checks import Aftermath, steps_that_fell
from storm_plan import Blow, Episode, takes_pods
from storm_trainer import TRAINER, NeverHappened, Witness, job_of, until

COMMAND_S = 240.0
SAYS_LACK = (b"may lack its end", b"cannot be read from")
"""Words of a follower that names a node whose log it cannot have."""


def processes(name: str, value: str) -> list[int]:
    """Live processes with this variable in their environment."""
    mark, alive = f"{name}={value}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX" and mark in (entry / "environ").read_bytes().split(b"\0"):
                    alive.append(int(entry.name))
    return alive


def parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None  # gone meanwhile


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class PlayedEpisode(ABC):
    """One training. `kills` counts what was hit, `complaints` what should not be."""

    engine: Engine
    run_name = "train"
    keeps_dead = True
    """Whether there is a log of a node whose launcher was killed: not if its pod goes while nobody can reach it."""

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
        kept.pop("PYTHONDONTWRITEBYTECODE", None)  # without its bytecode every command would compile Longboat anew
        self.environment = {**kept, "LONGBOAT_HOME": str(self.home), "PATH": path}

    def write_job(self, witness: str, **more: object) -> None:
        code = self.folder / "code"
        code.mkdir()
        (code / "train.py").write_text(TRAINER)
        (code / "job.yaml").write_text(json.dumps(job_of(self.episode, witness, **more)))

    @abstractmethod
    def victim(self, kind: str, attempt: int, at: int) -> int | None:
        """The process of that kind, by its number on this machine."""

    @abstractmethod
    def disturb(self, kind: str) -> None:
        """Kill a part that the training does not depend on, and start it again."""

    @abstractmethod
    def check_place(self, status: RunStatus) -> None:
        """Nothing of an ended run goes on or holds anything."""

    @abstractmethod
    def left(self) -> list[str]:
        """What there still is of the removed run."""

    # commands

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "longboat", *words]
        place, null, pipe = self.folder / "code", subprocess.DEVNULL, subprocess.PIPE
        return subprocess.Popen(command, cwd=place, env=self.environment, stdin=null, stdout=pipe, stderr=pipe)

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
        words = ("run", "-d", "--id", self.run_name, "job.yaml")
        if self.episode.seed % 3 == 1:
            self.kill_command(words, (self.episode.seed % 97) / 97 * 1.5)
        elif self.episode.seed % 3 == 2:  # one that would have stayed with the run
            self.kill_command(("run", *words[2:]), (self.episode.seed % 97) / 97 * 3)
        done = self.run(*words)
        if done.returncode != 0 or done.stdout.strip() != self.run_name.encode():
            self.complaints.append(f"run: {done.returncode} {done.stdout!r} {done.stderr.decode()[-600:]}")
        self.check_listed("after the submission")

    def check_listed(self, when: str) -> None:
        names = [run.name for run in self.engine.list()]
        if names != [self.run_name]:
            self.complaints.append(f"runs {when}: {names}")

    # blows

    def look(self) -> RunStatus:
        self.engine.list()  # what a command does: a run whose supervisor was killed gets another one
        status = self.engine.status(self.run_name)
        self.seen.append((status.attempt, status.step))
        return status

    def strike(self, blow: Blow) -> None:
        """While all ranks of the attempt stand still."""
        number = blow.attempt
        until(lambda: self.look() and self.witness.stand_still(self.episode, number), f"attempt {number} stands still")
        for command in self.episode.commands:
            if command.attempt == number:
                self.kill_command(command.words, command.delay)
        for disturbance in self.episode.disturbances:
            if disturbance.attempt == number:
                self.disturb(disturbance.kind)
                self.kills[disturbance.kind] += 1
        if self.episode.is_stopped and blow is self.episode.blows[-1]:
            self.kill_command(("stop", self.run_name), 0.5 + (self.episode.seed % 10) / 10)
            stopped = self.run("stop", self.run_name)
            if stopped.returncode != 0:
                self.complaints.append(f"stop: {stopped.returncode} {stopped.stderr.decode()[-600:]}")
        elif blow.kind == "exit":
            self.witness.order(number, f"{blow.at} {blow.code}")
        else:
            if not self.hit(blow.kind, number, blow.at):
                self.complaints.append(f"nobody to kill: {blow.kind} of attempt {number}")
            self.kills[blow.kind] += 1

    def hit(self, kind: str, attempt: int, at: int) -> bool:
        """Whether there was one to kill. `any`: whatever process the run has, its setup and its helpers too."""
        if kind == "any":
            running = processes("LONGBOAT_RUN_UID", self.engine.status(self.run_name).uid)
            return bool(running) and kill(sorted(running)[at % len(running)])
        pid = self.victim(kind, attempt, at)
        return pid is not None and kill(pid)

    def strike_wildly(self) -> None:
        """At any moment of an attempt, also while it starts and ends."""
        chance = random.Random(self.episode.seed)
        for blow in self.episode.blows:
            time.sleep(chance.random() * 1.5)
            status = self.look()
            kind = "any" if blow.kind == "exit" else blow.kind
            if not status.is_final and self.hit(kind, status.attempt, blow.at):
                self.kills[kind] += 1
                self.fallen.append(kind)

    # the whole

    def play(self) -> None:
        follower = None
        try:
            self.submit()
            follower = self.start("logs", "-f", self.run_name) if self.episode.seed % 2 else None
            if self.episode.is_wild:
                self.strike_wildly()
            else:
                for blow in self.episode.blows:
                    self.strike(blow)
            until(lambda: self.look().is_final, "the run ends")
            self.check(follower)
        except (NeverHappened, subprocess.TimeoutExpired, LongboatError) as error:
            self.complaints.append(f"{type(error).__name__}: {error}; {self.described()}")
        finally:
            if follower is not None and follower.poll() is None:
                follower.kill()
                follower.communicate()

    def described(self) -> str:
        try:
            status = self.engine.status(self.run_name)
        except LongboatError as error:
            return str(error)
        notes = {(attempt, rank): self.witness.notes(attempt, rank)[-1:] for attempt, rank in self.witness.starts()}
        return f"{status.phase} attempt {status.attempt} {status.reason!r} {notes}"

    def check(self, follower: subprocess.Popen[bytes] | None) -> None:
        waited = self.run("wait", self.run_name)
        status = self.engine.status(self.run_name)
        if waited.returncode != status.exit_code:
            self.complaints.append(f"wait returned {waited.returncode}, the run has {status.exit_code}")
        lines = self.read_log()
        after = Aftermath(self.episode, self.witness, status, self.fallen, keeps_dead=self.keeps_dead)
        self.complaints += after.complaints(lines, self.checkpoints(status))
        self.complaints += steps_that_fell(self.seen)
        if follower is not None:
            self.check_follower(follower, lines)
        if self.complaints:
            self.keep()
        self.check_listed("at the end")
        self.check_place(status)
        self.remove()

    def read_log(self) -> list[LogLine]:
        return list(self.engine.logs(self.run_name, LogQuery()))

    def check_follower(self, follower: subprocess.Popen[bytes], lines: Sequence[LogLine]) -> None:
        """It shows each line once, and all that are kept unless it says which it cannot have."""
        out, err = follower.communicate(timeout=COMMAND_S)
        shown = Counter(line.rpartition(b"line ")[2] for line in out.splitlines() if b"line " in line)
        data = (line.data.strip() for line in lines)
        kept = Counter(text.rpartition(b"line ")[2] for text in data if text.startswith(b"line "))
        is_told = any(words in err for words in SAYS_LACK) or (not self.keeps_dead and kept <= shown)
        if shown != kept and not takes_pods(self.episode) and not is_told:
            counts = f"{shown.total()} lines, {kept.total()} are kept"
            said = err.decode(errors="replace")[-600:]
            self.complaints.append(f"`logs -f` showed {counts}; it returned {follower.returncode} and said {said!r}")

    @abstractmethod
    def keep(self) -> None:
        """Of an episode that went wrong, what `rm` would take away."""

    def checkpoints(self, status: RunStatus) -> Path:
        return Path(status.checkpoint_dir or "/nowhere")

    def remove(self) -> None:
        """By a command that is killed first."""
        self.kill_command(("rm", "--purge", self.run_name), (self.episode.seed % 89) / 89 * 1.3)
        self.run("rm", "--purge", self.run_name)
        with self.waited("something is left after rm --purge", self.left):
            until(lambda: not self.left(), "nothing is left", 60.0)
        if self.engine.list():
            self.complaints.append("it is still listed after rm")

    @contextlib.contextmanager
    def waited(self, complaint: str, details: object = None) -> Iterator[None]:
        try:
            yield
        except NeverHappened:
            self.complaints.append(f"{complaint}: {details() if callable(details) else ''}")
