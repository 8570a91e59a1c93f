"""Forty times, in the soak three hundred, a process chosen at random is killed: a supervisor, a launcher, a rank, a
rank's child, a follower.

Afterwards no line that a rank knows to be written is missing, no process is left, every GPU is free, and every run has
ended with an exit code that fits what was killed. LONGBOAT_STORM_SEED repeats a storm as far as the machine allows.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec
import pytest

from longboat.core.runs import LogQuery, RunStatus
from longboat.engines.local.supervise.processes import is_alive
from longboat.engines.shared.files import open_lock, try_lock
from tests.engines.local.conftest import LocalJobs

pytestmark = pytest.mark.slow

KILLS = 300 if os.environ.get("LONGBOAT_TEST_SOAK") else 40
AT_ONCE = 4
GPUS = ("a", "b")
KINDS = ("supervisor", "launcher", "rank", "child", "follower")
EFFECT = {"supervisor": 208, "launcher": 208, "rank": 137}
"""What a run that is not retried ends with; the other kinds of victims have no effect on the run."""

TRAINS = """
import os, subprocess, time
folder, rank, attempt = (os.environ[name] for name in ("LONGBOAT_CHECKPOINT_DIR", "LONGBOAT_RANK", "LONGBOAT_ATTEMPT"))
side = os.open(f"{folder}/written-{attempt}-{rank}", os.O_WRONLY | os.O_CREAT, 0o600)
subprocess.Popen(["sleep", "300"], start_new_session=rank == "0")
for number in range(30):
    os.write(1, b"line %d\\n" % number)
    os.pwrite(side, b"%d" % number, 0)   # only now the line is known to be written
    os.fsync(side)
    time.sleep(0.02)
os.write(1, b"end\\n")
"""


class Victim(msgspec.Struct, frozen=True):
    run: str
    kind: str
    pid: int
    attempt: int = 0


class Storm:
    def __init__(self, local: LocalJobs, seed: int) -> None:
        self.local = local
        self.chance = random.Random(seed)
        self.runs: dict[str, RunStatus] = {}  # as submitted
        self.retries: dict[str, int] = {}
        self.killed: list[Victim] = []
        self.followers: dict[str, BaseProcess] = {}

    def submit(self) -> None:
        name = f"run-{len(self.runs)}"
        retries, gpus = self.chance.choice([0, 0, 2, 5]), self.chance.choice([0, 0, 1, 2])
        self.runs[name] = self.local.submit(
            TRAINS,
            name=name,
            nodes=self.chance.choice([1, 1, 2]) if gpus < 2 else 1,
            procs=self.chance.choice([1, 2]),
            gpus=gpus,
            grace="2s",
            retries={"count": retries, "backoff": "0s"},
            environment=self.local.place.with_gpus(*GPUS),
        )
        self.retries[name] = retries
        if self.chance.random() < 0.3:
            self.followers[name] = multiprocessing.get_context("fork").Process(target=self.follow, args=(name,))
            self.followers[name].start()

    def follow(self, run: str) -> None:
        lines = self.local.place.again().logs(run, LogQuery(follow=True))
        data = [(line.attempt, line.rank, line.data) for line in lines]
        (self.local.root / f"followed-{run}").write_bytes(msgspec.json.encode(data))

    def type_commands(self, over: threading.Event) -> None:
        """Somebody looks at the runs now and then: what a killed supervisor left is found by the next command."""
        while not over.wait(0.3):
            self.local.engine.list()

    def active(self) -> list[str]:
        return [name for name in self.runs if not self.local.files(name).state().is_final]

    def victims(self) -> list[Victim]:
        """Live processes of the active runs."""
        names = {self.runs[name].uid: name for name in self.active()}
        found = [Victim(name, "follower", f.pid or 0) for name, f in self.followers.items() if f.is_alive()]
        launchers = set()
        for name in names.values():
            state = self.local.files(name).state()
            if state.supervisor is not None and is_alive(state.supervisor):
                found.append(Victim(name, "supervisor", state.supervisor.pid, state.attempt))
            launchers |= {who.pid for who in self.local.launchers(name, state.attempt) if is_alive(who)}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                variables = dict(v.split(b"=", 1) for v in (entry / "environ").read_bytes().split(b"\0") if b"=" in v)
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            name = names.get(variables.get(b"LONGBOAT_RUN_UID", b"").decode())
            kind = "rank" if b"train.py" in words else "child" if words[0] == b"sleep" else ""
            kind = "launcher" if int(entry.name) in launchers else kind
            if name is not None and kind:
                found.append(Victim(name, kind, int(entry.name), int(variables[b"LONGBOAT_ATTEMPT"])))
        return found

    def kill_one(self) -> None:
        kind = self.chance.choice(KINDS)  # every kind equally often: there are more ranks than supervisors
        victims = [victim for victim in self.victims() if victim.kind == kind]
        if not victims:
            return
        victim = self.chance.choice(victims)
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed.append(victim)

    def rage(self) -> None:
        over = threading.Event()
        commands = threading.Thread(target=self.type_commands, args=(over,))
        commands.start()
        try:
            while len(self.killed) < KILLS:
                while len(self.active()) < AT_ONCE:
                    self.submit()
                time.sleep(self.chance.random() * 0.2)
                self.kill_one()
        finally:
            over.set()
            commands.join()
        for name in self.runs:
            self.local.wait(name)
        for follower in self.followers.values():
            follower.join()


class Aftermath:
    """What must hold when the storm is over. Each check returns complaints."""

    def __init__(self, storm: Storm) -> None:
        self.storm = storm
        self.local = storm.local

    def of_run(self, name: str) -> list[str]:
        status = self.local.engine.status(name)
        complaints = [*self.wrong_end(status), *self.missing_lines(status), *self.wrong_follower(name)]
        if self.local.place.processes(status.uid):
            complaints.append("processes are left")
        killed = [f"{victim.kind}@{victim.attempt}" for victim in self.storm.killed if victim.run == name]
        return [f"{name} (killed: {', '.join(killed) or 'nothing'}): {complaint}" for complaint in complaints]

    def wrong_end(self, status: RunStatus) -> list[str]:
        effective = [v for v in self.storm.killed if v.run == status.name and v.kind in EFFECT]
        allowed = {EFFECT[victim.kind] for victim in effective}
        if len(effective) <= self.storm.retries[status.name]:
            allowed = {0}
        elif len(effective) > 1 or self.has_written_all(status):
            allowed.add(0)  # a kill may have come when all was done, or between two attempts
        complaints = []
        if status.exit_code not in allowed:
            complaints.append(f"exit code {status.exit_code}, allowed {sorted(allowed)}: {status.reason}")
        if status.phase != ("succeeded" if status.exit_code == 0 else "failed"):
            complaints.append(f"phase {status.phase} with exit code {status.exit_code}")
        if status.exit_code == 0 and not self.has_written_all(status):
            complaints.append("it succeeded, but not all ranks came to their end")
        return complaints

    def has_written_all(self, status: RunStatus) -> bool:
        assert status.spec is not None
        role = status.spec.roles[0]
        ends = self.local.text(status.name, attempt=status.attempt).count("end\n")
        return ends == role.nodes * role.procs

    def missing_lines(self, status: RunStatus) -> list[str]:
        """Every line up to the one a rank noted must be there. Not asked of attempts that lost all of launcher,
        supervisor and rank: nobody is left who holds the last lines."""
        complaints = []
        for side in Path(status.checkpoint_dir or "").glob("written-*"):
            _, attempt, rank = side.name.split("-")
            kinds = {v.kind for v in self.storm.killed if v.run == status.name and int(attempt) - v.attempt in (0, 1)}
            text = side.read_text()
            if not text or {"supervisor", "launcher", "rank"} <= kinds:
                continue
            lines = self.local.text(status.name, rank=int(rank), attempt=int(attempt)).splitlines()
            expected = [f"line {number}" for number in range(int(text) + 1)]
            if lines[: len(expected)] != expected:
                complaints.append(
                    f"rank {rank} of attempt {attempt} wrote {len(expected)} lines, {len(lines)} are there"
                )
        return complaints

    def wrong_follower(self, name: str) -> list[str]:
        path = self.local.root / f"followed-{name}"
        if not path.exists():
            return []
        followed = msgspec.json.decode(path.read_bytes(), type=list[tuple[int, int, bytes]])
        kept = [(line.attempt, line.rank, line.data) for line in self.local.engine.logs(name, LogQuery())]
        return [] if sorted(followed) == sorted(kept) else ["a follower saw other lines than are kept"]

    def of_machine(self) -> list[str]:
        complaints = []
        for path in (self.local.home.root / "gpus").iterdir():
            lock = open_lock(path)
            if not try_lock(lock):
                complaints.append(f"GPU lock {path.name} is taken")
            os.close(lock)
        last = self.local.run("print('free')", name="last", gpus=2, environment=self.local.place.with_gpus(*GPUS))
        if last.phase != "succeeded":
            complaints.append(f"a run after the storm: {last.reason}")
        self.local.until(lambda: not is_alive(self.local.supervisor("last")), "its supervisor leaves")
        left = [path.name for path in (self.local.home.root / "queue").iterdir() if not path.name.startswith(".")]
        return [*complaints, *(f"{name} is left in the queue" for name in left)]


def test_storm(local: LocalJobs) -> None:
    seed = int(os.environ.get("LONGBOAT_STORM_SEED") or int.from_bytes(os.urandom(4), "big"))
    storm = Storm(local, seed)
    try:
        storm.rage()
        after = Aftermath(storm)
        complaints = [complaint for name in storm.runs for complaint in after.of_run(name)] + after.of_machine()
    finally:
        for follower in storm.followers.values():
            follower.kill()
            follower.join()
    kinds = Counter(victim.kind for victim in storm.killed)
    print(f"seed {seed}: {len(storm.runs)} runs, killed {dict(kinds)}")
    assert not complaints, f"LONGBOAT_STORM_SEED={seed}\n" + "\n".join(complaints)
    assert set(kinds) == set(KINDS)
