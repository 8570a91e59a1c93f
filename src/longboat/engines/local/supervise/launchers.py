"""The launchers of one attempt: started together, watched, ended together."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from longboat.core.guards.masking import Masker
from longboat.core.runs import RankReport
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.supervise.attempt_files import Heartbeat, Stall, reports_of
from longboat.engines.local.supervise.attempt_folders import AttemptNode
from longboat.engines.local.supervise.attempt_outcome import AttemptEnd, NodeOutcome
from longboat.engines.local.supervise.processes import (
    ProcessId,
    descendants,
    is_alive,
    kill_until_gone,
    marked,
)
from longboat.engines.shared.files import disk, last_lines_of, read_value, write_value

LAUNCHER = Path(__file__).parents[3] / "launcher" / "__main__.py"
KILL_MARGIN_S = 5.0
"""A launcher that has not ended this long after the grace is killed with all its tree."""


_TOLD = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class Launchers:
    """The running launchers. Only the supervisor has one."""

    def __init__(self, nodes: Sequence[AttemptNode], record: LocalRecord, *, attempt: int) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._uid = record.uid
        self._grace_s = record.job.grace_s
        self._timeout_s = record.job.timeout_s
        self._attempt = attempt
        # A follower ends when it is told to, never by itself.
        deciding = [node for node in nodes if node.layout.role in record.job.ends]
        self._deciding = [node.name for node in deciding if node.layout.starter != "follower"]
        self._read: set[Path] = set()
        self._pids: dict[int, str] = {}
        self._held: dict[Path, int] = {}
        self._lost_ns: dict[str, int] = {}
        self._ended: set[str] = set()
        self.reason: str | None = None
        self._deadline: float | None = None
        self._lifeline: tuple[int, int] | None = None
        self._secrets: list[str] = []  # their values, for what a killed launcher leaves
        self._names = [secret.name for secret in record.job.secrets]
        self._stdin: int | None = None
        self._has_stdin = sum(role.nodes * role.procs for role in record.job.roles) == 1
        self._has_store = record.checkpoint_store is not None
        self._cut: float | None = None  # when a launcher that only sends checkpoints must have ended

    def start(self, environment: Mapping[str, str], inherited: Sequence[int], stdin: int | None = None) -> None:
        """`stdin`: of the submitter, for the only rank of a run; several would take each other's input away."""
        self._stdin = stdin if self._has_stdin else None
        self._lifeline = os.pipe()
        self._secrets = [environment.get(name, "") for name in self._names]
        os.set_inheritable(self._lifeline[0], True)
        for descriptor in inherited:
            os.set_inheritable(descriptor, True)
        try:
            for node in self.nodes.values():
                self._held.update(hold(node.pipes()))
                self._spawn(node, environment)
        finally:
            for descriptor in (self._lifeline[0], *inherited):
                os.set_inheritable(descriptor, False)

    def _spawn(self, node: AttemptNode, environment: Mapping[str, str]) -> None:
        assert self._lifeline is not None
        variables = {
            **environment,
            "LONGBOAT_RUN_UID": self._uid,
            "LONGBOAT_NODE": node.name,
            "LONGBOAT_ATTEMPT": str(self._attempt),
            "LONGBOAT_LIFELINE_FD": str(self._lifeline[0]),
        }
        log = os.fspath(node.directory / "launcher.log")
        with disk(f"start the launcher of {node.name}"):
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", os.fspath(LAUNCHER), os.fspath(node.plan)],
                variables,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
                    if self._stdin is None
                    else (os.POSIX_SPAWN_DUP2, self._stdin, 0),
                    (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
                setsigmask=_TOLD,  # the launcher unblocks them once it listens
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD],
            )
        self._pids[pid] = node.name

    @property
    def is_over(self) -> bool:
        return len(self._ended) == len(self.nodes)

    def note_exits(self, exits: Sequence[tuple[int, int]]) -> None:
        """Children that ended: a launcher's end may end the gang, an adopted orphan's means nothing."""
        for pid, _status in exits:
            name = self._pids.pop(pid, None)
            if name is not None:
                self._note_end(name)
        self._follow()

    def _note_end(self, name: str) -> None:
        node = self.nodes[name]
        if outcome_of(node) is None:
            if self.reason is None:  # a launcher lost while the gang is being ended is not why it ends
                self._lost_ns[name] = time.monotonic_ns()
            self._drain(node)
            kill_until_gone(lambda: marked(self._uid, node=name, attempt=self._attempt))
            self._drain(node)
        self._ended.add(name)

    def _follow(self) -> None:
        """End the rest when a node failed, or when the deciding roles have succeeded."""
        if self.reason is not None or self.is_over or not self._ended:
            return
        outcomes = {name: outcome_of(self.nodes[name]) for name in self._ended}
        if any(outcome is None or outcome.exit_code for outcome in outcomes.values()):
            self.end("failure")
        elif all(name in self._ended for name in self._deciding):
            self.end("success")

    def end(self, reason: str, *, grace_s: float | None = None) -> None:
        """Ask every launcher to end its ranks. Asked again, it may only hasten the end."""
        grace = self._grace_s if grace_s is None else grace_s
        if self._is_sending():
            if reason == "stop" and self._cut is None:
                self._cut = time.monotonic() + grace
            return
        deadline = time.monotonic() + grace + KILL_MARGIN_S
        if self._deadline is not None and deadline >= self._deadline:
            return
        self._deadline = deadline
        self.reason = self.reason or reason
        for pid, name in list(self._pids.items()):
            with contextlib.suppress(OSError):
                write_value(self.nodes[name].directory / "ending.json", {"reason": reason, "grace_s": grace})
                os.kill(pid, signal.SIGUSR2)

    def dump(self) -> None:
        """Ask every launcher for the Python stacks of its ranks; they end with that."""
        self.reason = self.reason or "hang"
        self._deadline = time.monotonic() + 2 * KILL_MARGIN_S + self._grace_s
        for pid in list(self._pids):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)

    def check(self) -> None:
        """Called now and then: hung ranks, launchers that do not end."""
        if self.reason is None and any((node.directory / "stall.json").exists() for node in self.nodes.values()):
            self.dump()
        if self.reason is None and self._has_failed():
            self.end("failure")
        now = time.monotonic()
        if self._cut is not None and now >= self._cut:
            self.kill(self._pids)
        elif self._deadline is not None and now >= self._deadline:
            self.kill([pid for pid, name in self._pids.items() if not self._may_send(name)])

    def _has_failed(self) -> bool:
        """Whether a rank has failed by itself: the other nodes need not wait until its own node has ended."""
        new = {path for node in self.nodes.values() for path in node.directory.glob("rank-*.json")} - self._read
        self._read |= new
        reports = [read_value(path, RankReport) for path in new]
        return any(report is not None and report.exit_code and report.ended_by is None for report in reports)

    def _is_sending(self) -> bool:
        """Whether all ranks have ended, and only checkpoints are still on their way to an object store."""
        return self._has_store and all(outcome_of(node) is not None for node in self.nodes.values())

    def _may_send(self, name: str) -> bool:
        """Whether a launcher that has not ended may go on: it sends the last checkpoint, and nobody stopped the run."""
        is_hurried = self.reason in ("stop", "timeout")
        return self._has_store and not is_hurried and outcome_of(self.nodes[name]) is not None

    def kill(self, launchers: Iterable[int]) -> None:
        """SIGKILL to these launchers and everything below."""
        for pid in list(launchers):
            below = descendants(pid)
            for each in (pid, *below):
                with contextlib.suppress(OSError):
                    os.kill(each, signal.SIGKILL)

    def phase(self) -> tuple[str, tuple[str, ...]]:
        """("running", ()) once every node runs its ranks, else what the slowest node does and whom it misses."""
        slowest = "running"
        missing: tuple[str, ...] = ()
        for node in self.nodes.values():
            beat = beat_of(node)
            phase = beat.phase if beat else "starting"
            if node.name in self._ended or phase in ("running", "ending"):
                continue
            slowest = phase
            missing = missing or (beat.missing if beat else ())
        return slowest, missing

    def ending(self) -> AttemptEnd:
        return AttemptEnd(
            outcomes={name: outcome for name, node in self.nodes.items() if (outcome := outcome_of(node))},
            reports=[report for node in self.nodes.values() for report in reports_of(node.directory)],
            nodes=list(self.nodes),
            deciding=self._deciding,
            lost_ns=self._lost_ns,
            reason=self.reason,
            stalled=self._stalled(),
            timeout_s=self._timeout_s,
            lost_message=self._last_words(),
        )

    def _stalled(self) -> tuple[int, float] | None:
        """The rank that was silent for the longest time."""
        stalls = [read_value(node.directory / "stall.json", Stall) for node in self.nodes.values()]
        longest = max((stall for stall in stalls if stall), key=lambda stall: stall.silent_s, default=None)
        return (longest.rank, longest.silent_s) if longest else None

    def _last_words(self) -> str:
        """What a launcher that left no outcome had said."""
        for name in self._lost_ns:
            with contextlib.suppress(OSError):
                words = last_lines_of(self.nodes[name].directory / "launcher.log")
                if words:
                    return f"its launcher failed: {words[-1]}"
        return "its launcher was killed"

    def close(self) -> None:
        """Nothing of the attempt stays: processes, pipes, descriptors."""
        kill_until_gone(lambda: [*marked(self._uid, attempt=self._attempt), *descendants(os.getpid())])
        for node in self.nodes.values():
            self._drain(node)
        let_go(self._held)
        self._held = {}
        for end in self._lifeline or ():
            os.close(end)
        self._lifeline = None

    def _drain(self, node: AttemptNode) -> None:
        drain({pipe: self._held[pipe] for pipe in node.pipes() if pipe in self._held}, self._secrets)


def hold(pipes: Iterable[Path]) -> dict[Path, int]:
    """Open the read ends: what is in a pipe stays there as long as somebody holds it."""
    held: dict[Path, int] = {}
    for pipe in pipes:
        with disk(f"open {pipe}"):
            held[pipe] = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return held


def drain(held: Mapping[Path, int], secrets: Sequence[str] = ()) -> None:
    """Save what ranks had written and a killed launcher had not read, values of secrets masked as it would have."""
    for pipe, descriptor in held.items():
        log = pipe.parent.parent / "logs" / pipe.name
        masker = Masker(secrets)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(descriptor, 1 << 20):
                append_log(log, masker.feed(data))
        if rest := masker.finish():
            append_log(log, rest)


def let_go(held: Mapping[Path, int]) -> None:
    for pipe, descriptor in held.items():
        os.close(descriptor)
        pipe.unlink(missing_ok=True)


def append_log(path: Path, data: bytes) -> None:
    with disk(f"write {path}"), open(path, "ab") as log, open(f"{path}.idx", "ab") as index:
        log.write(data)
        log.flush()
        index.write(struct.pack("<QQ", log.tell(), time.time_ns()))


def outcome_of(node: AttemptNode) -> NodeOutcome | None:
    return read_value(node.directory / "outcome.json", NodeOutcome)


def beat_of(node: AttemptNode) -> Heartbeat | None:
    return read_value(node.directory / "beat.json", Heartbeat)


def live_launchers(nodes: Sequence[Path]) -> list[ProcessId]:
    """Launchers of these node folders that still run."""
    ids = [read_value(node / "launcher.json", ProcessId) for node in nodes]
    return [process for process in ids if process is not None and is_alive(process)]
