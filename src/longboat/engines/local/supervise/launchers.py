"""The launchers of one attempt: started together, watched, ended together."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longboat.core.errors import RUN_SETUP_EXIT
from longboat.core.runs import RankReport
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import LAUNCHER, AttemptNode
from longboat.engines.local.supervise.attempt_files import beat_of, longest_stall, outcome_of, reports_of
from longboat.engines.local.supervise.attempt_folders import note_end
from longboat.engines.local.supervise.attempt_outcome import AttemptEnd, NodeOutcome
from longboat.engines.local.supervise.pipes import close_held, drain, hold, variables_pipe
from longboat.engines.local.supervise.processes import (
    ProcessId,
    descendants,
    is_alive,
    kill_until_gone,
    marked,
    reap,
)
from longboat.engines.shared.files import disk, last_lines_of, read_value, write_value

if TYPE_CHECKING:
    from longboat.engines.local.containers.attempt import ContainerStart

KILL_MARGIN_S = 5.0
"""A launcher that has not ended this long after the grace is killed with all its tree."""


TIDY_S = 10.0
"""What podman leaves behind to tidy up after a container is our child then, and takes a moment; a killed one leaves
locks and mounts."""

_TOLD = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class Launchers:
    """The running launchers. Only the supervisor has one."""

    def __init__(self, nodes: Sequence[AttemptNode], record: LocalRecord, *, attempt: int) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._uid = record.uid
        self._grace_s = record.job.grace_s
        self._timeout_s = record.job.timeout_s
        self.attempt = attempt
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
        self._has_stdin = record.job.ranks == 1
        self._has_store = record.checkpoint_store is not None
        self._program = record.containers
        self.containers: Mapping[str, ContainerStart] = {}  # by node; a node without one is a process of this machine
        self._holds: list[int] = []  # stdin of the containers' launchers: its end tells them that we are gone
        self._untold: dict[str, int] = {}  # signals for launchers that have yet to come up in their container
        self._cut: float | None = None  # when a launcher that only sends checkpoints must have ended

    def start(
        self,
        environment: Mapping[str, str],
        inherited: Sequence[int],
        stdin: int | None = None,
        before_node: Callable[[], None] = lambda: None,
    ) -> None:
        """`stdin`: of the submitter, for the only rank of a run; several would take each other's input away.

        `before_node` is called before each launcher, and may raise: starting a thousand takes minutes. Whatever is
        raised, nothing that had started is left: it would run beside the next attempt.
        """
        self._stdin = stdin if self._has_stdin else None
        with disk("open a pipe"):
            self._lifeline = os.pipe()
        self._secrets = [environment.get(name, "") for name in self._names]
        os.set_inheritable(self._lifeline[0], True)
        for descriptor in inherited:
            os.set_inheritable(descriptor, True)
        try:
            for node in self.nodes.values():
                before_node()
                self._held.update(hold(node.pipes()))
                self._spawn(node, environment)
        except BaseException:
            self.close()
            raise
        finally:
            for descriptor in (*(self._lifeline or ())[:1], *inherited):
                os.set_inheritable(descriptor, False)

    def _spawn(self, node: AttemptNode, environment: Mapping[str, str]) -> None:
        assert self._lifeline is not None
        marks = {
            "LONGBOAT_RUN_UID": self._uid,
            "LONGBOAT_NODE": node.name,
            "LONGBOAT_ATTEMPT": str(self.attempt),
        }
        if node.name in self.containers:
            self._spawn_container(node, marks)
            return
        variables = {**environment, **marks, "LONGBOAT_LIFELINE_FD": str(self._lifeline[0])}
        command = (sys.executable, "-I", "-S", LAUNCHER, os.fspath(node.plan))
        with disk(f"start the launcher of {node.name}"):
            self._execute(node, command, variables, self._stdin, blocked=_TOLD)  # unblocked once it listens

    def _spawn_container(self, node: AttemptNode, marks: Mapping[str, str]) -> None:
        """podman or docker stays in the foreground as our child: it ends when the container has."""
        start = self.containers[node.name]
        reader, writer = variables_pipe(start.variables)
        self._holds.append(writer)
        try:
            with disk(f"start the container of {node.name}"):
                self._execute(node, start.command, {**os.environ, **marks}, reader)
        finally:
            os.close(reader)

    def _execute(
        self,
        node: AttemptNode,
        command: tuple[str, ...],
        variables: Mapping[str, str],
        stdin: int | None,
        *,
        blocked: Iterable[int] = (),
    ) -> None:
        """Start it as our child; what it says itself is in the node's `launcher.log`."""
        log = os.fspath(node.directory / "launcher.log")
        pid = os.posix_spawn(
            command[0],
            command,
            variables,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
                if stdin is None
                else (os.POSIX_SPAWN_DUP2, stdin, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=blocked,
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD],
        )
        self._pids[pid] = node.name

    @property
    def is_over(self) -> bool:
        return len(self._ended) == len(self.nodes)

    @property
    def are_staying(self) -> bool:
        """Whether every launcher has outlived its ranks' failure and waits for the next attempt."""
        return self.is_over and len(self._pids) == len(self.nodes)

    def still_stay(self, secrets: Mapping[str, str]) -> bool:
        """Whether they all do, now, and have these secrets; else none of them is left."""
        self.note_exits(reap())
        if not self.are_staying or self._secrets != [secrets.get(name, "") for name in self._names]:
            self.close()
        return self.are_staying

    def restart(self, before: Launchers) -> None:
        """Have the launchers of the attempt before, which are staying, start the ranks of this one."""
        self._pids, before._pids = before._pids, {}
        self._lifeline, before._lifeline = before._lifeline, None
        self._stdin, self._secrets = before._stdin, before._secrets
        try:
            for pid, name in self._pids.items():
                self._held.update(hold(self.nodes[name].pipes()))
                order = {"plan": os.fspath(self.nodes[name].plan), "attempt": self.attempt}
                write_value(before.nodes[name].directory / "next.json", order)
                os.kill(pid, signal.SIGUSR2)
        except BaseException:
            self.close()
            raise

    def rest(self) -> None:
        """Remove all of the attempt but its launchers, which stay."""
        kill_until_gone(lambda: set(marked(self._uid, attempt=self.attempt)) - set(self._pids))
        self._close_pipes()

    def note_exits(self, exits: Sequence[tuple[int, int]]) -> None:
        """Children that ended: a launcher's end may end the gang, an adopted orphan's means nothing.

        One that stays has ended, too.
        """
        going = set(self._pids.values()) - self._ended
        self._ended |= {node for node in going if (self.nodes[node].directory / "stays.json").exists()}
        for pid, status in exits:
            name = self._pids.pop(pid, None)
            if name is not None:
                if name in self.containers:
                    self._note_container(name, status)
                self._note_end(name)
        self._follow()

    def _note_end(self, name: str) -> None:
        node = self.nodes[name]
        if outcome_of(node.directory) is None:
            # A launcher lost while the gang is being ended is not why it ends, and what it leaves is swept with the
            # rest (`close`): a look at every process of the machine for each of a thousand launchers takes minutes.
            if self.reason is None:
                self._lost_ns[name] = time.monotonic_ns()
                self._drain(node)
                kill_until_gone(lambda: marked(self._uid, node=name, attempt=self.attempt))
            self._drain(node)
        self._ended.add(name)

    def _note_container(self, name: str, status: int) -> None:
        """A container whose launcher never came up has an outcome all the same: what podman or docker said."""
        folder = self.nodes[name].directory
        if outcome_of(folder) is None and not (folder / "launcher.json").exists() and self.reason is None:
            from longboat.engines.local.containers.image import start_message

            lines = last_lines_of(folder / "launcher.log")
            message = start_message(self.containers[name].image, os.waitstatus_to_exitcode(status), lines)
            outcome = NodeOutcome(
                exit_code=RUN_SETUP_EXIT, cause="image", message=message, ended_ns=time.monotonic_ns()
            )
            write_value(folder / "outcome.json", outcome)

    def _follow(self) -> None:
        """End the rest when a node failed, or when the deciding roles have succeeded."""
        if self.reason is not None or self.is_over or not self._ended:
            return
        outcomes = {name: outcome_of(self.nodes[name].directory) for name in self._ended}
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
                self._signal(pid, name, note_end(self.nodes[name].directory, reason, grace))

    def dump(self) -> None:
        """Ask every launcher for the Python stacks of its ranks; they end with that."""
        self.reason = self.reason or "hang"
        self._deadline = time.monotonic() + 2 * KILL_MARGIN_S + self._grace_s
        for pid, name in list(self._pids.items()):
            with contextlib.suppress(OSError):
                self._signal(pid, name, signal.SIGUSR1)

    def _signal(self, pid: int, name: str, number: int) -> None:
        """A container's launcher is told itself, once it is up: podman and docker pass on no signal before that."""
        if name not in self.containers:
            os.kill(pid, number)
            return
        launcher = read_value(self.nodes[name].directory / "launcher.json", ProcessId)
        self._untold[name] = number
        if launcher is not None:
            del self._untold[name]
            if is_alive(launcher):
                os.kill(launcher.pid, number)

    def check(self) -> None:
        """Called now and then: hung ranks, launchers that do not end."""
        if self.reason is None and any((node.directory / "stall.json").exists() for node in self.nodes.values()):
            self.dump()
        if self.reason is None and self._has_failed():
            self.end("failure")
        for pid, name in list(self._pids.items()):
            if name in self._untold:
                with contextlib.suppress(OSError):
                    self._signal(pid, name, self._untold[name])
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
        return self._has_store and all(outcome_of(node.directory) is not None for node in self.nodes.values())

    def _may_send(self, name: str) -> bool:
        """Whether a launcher that has not ended may go on: it sends the last checkpoint, and nobody stopped the run."""
        is_hurried = self.reason in ("stop", "timeout")
        return self._has_store and not is_hurried and outcome_of(self.nodes[name].directory) is not None

    def kill(self, launchers: Iterable[int]) -> None:
        """SIGKILL to these launchers and everything below."""
        for pid in list(launchers):
            name = self._pids.get(pid)
            contained = marked(self._uid, node=name, attempt=self.attempt) if name in self.containers else []
            below = [*contained, *descendants(pid)]
            for each in (pid, *below):
                with contextlib.suppress(OSError):
                    os.kill(each, signal.SIGKILL)

    def phase(self) -> tuple[str, tuple[str, ...]]:
        """("running", ()) once every node runs its ranks, else what the slowest node does and whom it misses."""
        slowest = "running"
        missing: tuple[str, ...] = ()
        for node in self.nodes.values():
            beat = beat_of(node.directory)
            phase = beat.phase if beat else "starting"
            if node.name in self._ended or phase in ("running", "ending"):
                continue
            slowest = phase
            missing = missing or (beat.missing if beat else ())
        return slowest, missing

    def ending(self) -> AttemptEnd:
        return AttemptEnd(
            outcomes={name: outcome for name, node in self.nodes.items() if (outcome := outcome_of(node.directory))},
            reports=[report for node in self.nodes.values() for report in reports_of(node.directory)],
            nodes=list(self.nodes),
            deciding=self._deciding,
            lost_ns=self._lost_ns,
            reason=self.reason,
            stalled=longest_stall(node.directory for node in self.nodes.values()),
            timeout_s=self._timeout_s,
            lost_message=self._last_words(),
        )

    def _last_words(self) -> str:
        """Last output of a launcher that left no outcome."""
        for name in self._lost_ns:
            with contextlib.suppress(OSError):
                words = last_lines_of(self.nodes[name].directory / "launcher.log")
                if words:
                    return f"its launcher failed: {words[-1]}"
        return "its launcher was killed"

    def close(self) -> None:
        """Remove all of the attempt: containers, processes, pipes, descriptors."""
        if self.containers:
            self._close_containers()
        kill_until_gone(lambda: [*marked(self._uid, attempt=self.attempt), *descendants(os.getpid())])
        self._close_pipes()
        for end in self._lifeline or ():
            os.close(end)
        self._lifeline = None

    def _close_pipes(self) -> None:
        for node in self.nodes.values():
            self._drain(node)
        close_held(self._held)
        self._held = {}

    def _close_containers(self) -> None:
        from longboat.engines.local.containers.program import remove_containers

        assert self._program is not None
        kill_until_gone(lambda: marked(self._uid, attempt=self.attempt))
        remove_containers(self._program, self._uid, os.environ)
        for writer in self._holds:
            os.close(writer)
        self._holds = []
        deadline = time.monotonic() + TIDY_S
        while descendants(os.getpid()) and time.monotonic() < deadline:
            reap()
            time.sleep(0.02)

    def _drain(self, node: AttemptNode) -> None:
        drain({pipe: self._held[pipe] for pipe in node.pipes() if pipe in self._held}, self._secrets)


def live_launchers(nodes: Sequence[Path]) -> list[ProcessId]:
    """Launchers of these node folders that still run."""
    ids = [read_value(node / "launcher.json", ProcessId) for node in nodes]
    return [process for process in ids if process is not None and is_alive(process)]
