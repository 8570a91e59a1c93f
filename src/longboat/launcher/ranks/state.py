"""The state of a node that its parts share: processes, streams, ranks, how the node ends. It decides no order."""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

from ..node import processes
from ..node.jsonfiles import write_json, write_whole
from ..node.loop import ChildEnd, EventLoop
from ..node.plan import NodePlan
from .pod_log import PodLogWriter, stamp
from .ranks import Rank
from .streams import RECORD, RankStream, pipe_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Callable

    from ..pod.checkpoint_upload import StoreThread
else:
    import _signal as signal

RETRY_S = 0.5
"""How often a full disk is tried again."""
KILL_AGAIN_S = 0.2
"""A tree may fork while it is killed."""
BEGIN_S, BEGIN_LOOK_S = 20.0, 0.1
"""An evaluator that is younger may still be importing its libraries when a short training has ended."""
FOLLOWS = "follows-"
"""Begins the names of files by which ranks say that they follow checkpoints, as in `following`."""


class RankShutdown:
    """Reason and start of the ranks' shutdown."""

    __slots__ = ("by", "since_ns")

    def __init__(self, by: str) -> None:
        self.by = by
        self.since_ns = time.monotonic_ns()


class NodeFailure:
    """The failure in the node's outcome."""

    __slots__ = ("cause", "code", "first", "message", "tail")

    def __init__(self, cause: str, code: int, message: str, first: dict[str, object] | None = None) -> None:
        self.cause = cause
        self.code = code
        self.message = message
        self.first = first
        self.tail: list[str] = []


class LauncherState:
    def __init__(self, plan: NodePlan, loop: EventLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.env: dict[str, str] = {}
        self.phase = "setup"
        self.missing: list[str] = []  # peers waited for
        self.gpus: list[dict[str, object]] = []  # of this node, as the sampler tells them
        # Takes the last numbers of ranks that have ended, and copies the metrics to the log if nothing else keeps them.
        self.stop_sampling: Callable[[bool], None] = lambda is_copied: None
        self.on_change: Callable[[], None] = lambda: None  # phase or missing peers are not what the last beat said
        self.ranks: list[Rank] = []
        self.streams: list[RankStream] = []
        self.running: dict[int, Callable[[ChildEnd], None]] = {}  # first processes: ranks, starter, setup, remote ones
        self.groups: list[int] = []  # process groups ever made, for systems without sub-reapers
        self.asked: set[int] = set()  # process groups that were sent SIGTERM
        self.ending: RankShutdown | None = None
        self.failure: NodeFailure | None = None
        self.unwritten: dict[str, object] = {}  # output files that the disk had no room for
        self.is_done = False  # the first processes have ended: nothing said from now on changes how
        self.on_remote_end: Callable[[ChildEnd], None] = lambda end: None
        self.killing = False
        self.is_serving = False  # a follower: stay until told to end
        self.is_asking = False  # stacks are being taken: wait for them even when no process is left
        self.pod_log = PodLogWriter(loop, 1, is_pod=plan.echo == "pod") if plan.echo else None
        self.sender: StoreThread | None = None  # of checkpoints, to an object store and from there
        self.awaited_step: int | None = None  # of the last checkpoint that the training wrote, when it has ended
        self._said = 0
        self._has_refused = False
        self._saying = allocate_lock()  # a thread that sends checkpoints says what it cannot
        self._kill_at: float | None = None
        self._setup: RankStream | None = None
        loop.on_child = self._child_ended

    @property
    def is_over(self) -> bool:
        return self.ending is not None or self.failure is not None

    def path(self, *names: str) -> str:
        return os.path.join(self.plan.directory, *names)

    def write(self, name: str, value: object) -> bool:
        """Write an output file. A full disk is reported on stderr and retried later: it must not end a training."""
        try:
            write_json(self.path(name), value)
            self.unwritten.pop(name, None)
            return True
        except OSError as error:
            if name not in self.unwritten:
                self.say("%s: %s" % (self.path(name), error.strerror))
            self.unwritten[name] = value
            return False

    def say(self, text: str) -> None:
        """Print a message of the launcher to stderr."""
        with self._saying:
            if self.plan.echo == "pod":
                now = stamp(time.time_ns())
                said = enumerate(text.splitlines(), self._said)
                lines = ["node.err%s %d %s %s\n" % (self.plan.mark, number, now, line) for number, line in said]
                self._said += len(lines)
                self._log_own_text(text)
            else:
                lines = ["longboat [%s]: %s\n" % (self.plan.node, text)]
            try:
                os.write(2, "".join(lines).encode("utf-8", "replace"))
            except OSError:
                pass

    def refused(self, address: str, reason: str) -> None:
        """Report a refused connection, only once: an attacker may repeat it without end."""
        if not self._has_refused:
            self._has_refused = True
            self.say("a connection from %s was refused, as all such are from now on: %s" % (address, reason))

    def _log_own_text(self, text: str) -> None:
        """Write the launcher's messages to a log file, in pods. Best effort: the disk may be full."""
        path = self.path("logs", "node.err" + self.plan.mark)
        try:
            with open(path, "ab") as log, open(path + ".idx", "ab") as index:
                log.write("".join(line + "\n" for line in text.splitlines()).encode("utf-8", "replace"))
                index.write(RECORD.pack(log.tell(), time.time_ns()))
        except OSError:
            pass

    def setup_stream(self) -> RankStream:
        """The log of preparation and setup."""
        if self._setup is None:
            self._setup = self.open_stream("setup.out", "%s setup" % self.plan.node, pipe_size(1))
        return self._setup

    def open_stream(self, name: str, label: str, size: int) -> RankStream:
        """Create the pipe and log of this name (`3.out`) and start copying."""
        stream = RankStream(self.path("pipes", name), self.path("logs", name + self.plan.mark), size, self._masker())
        self.streams.append(stream)
        if self.pod_log:
            self.pod_log.add(stream, label)
        self.loop.watch(stream.fd, lambda: self.tee(stream))
        return stream

    def _masker(self) -> Any:
        """A masker of secrets for one stream; None where the run has none to mask."""
        values = [os.environ.get(name, "") for name in self.plan.mask]
        if not any(values):
            return None
        from ..vendored import load

        return load("core.guards.masking").Masker(values) or None

    def tee(self, stream: RankStream) -> None:
        moved = stream.move()
        if stream.problem and not moved:
            self.loop.unwatch(stream.fd)
            self.loop.after(stream, RETRY_S, lambda: self._tee_again(stream))
        elif moved and self.pod_log:
            self.pod_log.more()

    def _tee_again(self, stream: RankStream) -> None:
        self.loop.watch(stream.fd, lambda: self.tee(stream))
        self.tee(stream)

    def catch_up(self, *streams: RankStream) -> None:
        """Copy what is in the pipes now, up to a bound, since processes may still write."""
        for stream in streams:
            for _ in range(64):
                if not stream.move():
                    break
        if self.pod_log:
            self.pod_log.more()

    def problems(self) -> list[str]:
        return sorted({"%s: %s" % (stream.log, stream.problem) for stream in self.streams if stream.problem})

    def start(
        self,
        command: str | list[str],
        env: dict[str, str],
        stdio: tuple[str | int, str | int, str | int],
        on_end: Callable[[ChildEnd], None],
    ) -> int:
        """Start a process in its own group. Raises StartError."""
        pid = processes.spawn(command, env, stdio)
        self.running[pid] = on_end
        self.groups.append(pid)
        self.loop.has_children = True
        return pid

    def _child_ended(self, end: ChildEnd) -> None:
        on_end = self.running.pop(end.pid, None)
        if on_end is not None:
            on_end(end)

    def left_behind(self, asked: bool) -> list[int]:
        """Descendants inside (or outside) the process groups that got SIGTERM."""
        groups = {pid: processes.stat_fields(pid)[2:3] for pid in processes.tree(os.getpid())[1:]}
        return [pid for pid, group in groups.items() if group and (int(group[0]) in self.asked) == asked]

    def end_by(self, reason: str) -> bool:
        """Record why the ranks are ended. False: they have ended or are being ended for an earlier reason."""
        if self.ending is not None or self.is_done:
            return False
        self.ending = RankShutdown(reason)
        self.phase = "ending"
        return True

    def terminate(self, grace_s: float, *, lets_begin: bool = False) -> None:
        """Send SIGTERM to every group, and SIGKILL to the whole tree after the grace. `lets_begin`: to young ranks only
        when they follow checkpoints, and so take it for a word to end after the last one.
        """
        self._kill_at = time.monotonic() + grace_s
        try:
            write_whole(self.path("stop"), b"")
        except OSError:
            pass
        self._ask(lets_begin)
        for pid in processes.tree(os.getpid())[1:]:
            if processes.stat_fields(pid)[:1] in ([], ["T"]):  # a stopped process cannot use its grace
                processes.send(pid, signal.SIGCONT)
        self.loop.after("kill", grace_s, self.kill)

    def save(self) -> None:
        """Ask the ranks for a checkpoint soon (`longboat.should_save`): a node of the run is about to go."""
        self.say("the ranks are asked for a checkpoint: a node of the run is about to go")
        try:
            write_whole(self.path("save"), b"")
        except OSError as error:
            self.say("they could not be asked: %s" % error)

    def _ask(self, lets_begin: bool) -> None:
        """Send SIGTERM to the groups that have not got it yet."""
        beginning = {rank.pid for rank in self.ranks if lets_begin and self._is_beginning(rank)}
        for pid in list(self.running):
            if pid not in self.asked and pid not in beginning:
                self.asked.add(pid)
                processes.send_group(pid, signal.SIGTERM)
        if beginning & set(self.running):
            self.loop.after("begin", BEGIN_LOOK_S, lambda: self._ask(True))

    def _is_beginning(self, rank: Rank) -> bool:
        age_s = (time.monotonic_ns() - rank.started_ns) / 1e9
        return age_s < BEGIN_S and not os.path.exists(self.path(FOLLOWS + str(rank.rank)))

    def hasten(self, grace_s: float) -> None:
        """Shorten the grace after a second request to end."""
        self._ask(False)
        if self._kill_at is None or time.monotonic() + grace_s < self._kill_at:
            self._kill_at = time.monotonic() + grace_s
            self.loop.after("kill", grace_s, self.kill)

    def grace_left_s(self) -> float:
        """Seconds until SIGKILL; 0 if no SIGTERM was sent."""
        return 0.0 if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())

    def kill(self) -> None:
        """Send SIGKILL to the whole tree, repeatedly, since it may fork."""
        self.killing = True
        for pid in self.running if processes.HAS_PROC else self.groups:
            processes.send_group(pid, signal.SIGKILL)
        for pid in processes.tree(os.getpid())[1:]:
            processes.send(pid, signal.SIGKILL)
        self.loop.after("kill", KILL_AGAIN_S, self.kill)

    def outcome(self) -> dict[str, object]:
        failure, ending = self.failure, self.ending
        code, cause, message, first = self.result()
        return {
            "exit_code": code,
            "cause": cause,
            "message": message,
            "first": first,
            "tail": failure.tail if failure else [],
            "ended": time.time(),
            "ended_ns": time.monotonic_ns(),
            "ended_by": ending.by if ending else None,
        }

    def result(self) -> tuple[int, str | None, str, dict[str, object] | None]:
        if self.failure is not None:
            return self.failure.code, self.failure.cause, self.failure.message, self.failure.first
        if self.ending is not None and self.ending.by == "success":
            return 0, None, "", None
        ends = sorted((rank.end.ended_ns, rank.end.code) for rank in self.ranks if rank.end is not None)
        return next((code for _, code in ends if code != 0), 0), None, "", None
