"""The ranks of a node: starting them, noticing their ends, keeping the first failure, writing their reports."""

from __future__ import annotations

import os

from ..node import processes
from ..node.environment import rank_environment
from ..node.loop import ChildEnd
from . import failure_cause
from .ranks import Rank, rank_report
from .state import LauncherState, NodeFailure
from .streams import pipe_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

SETTLE_S = 3.0
"""How long torchrun may tidy up by itself after a worker has failed, before it is told to end."""


def node_of_rank(hosts: str, rank: int) -> str | None:
    """The node of an mpirun rank, from `worker-0:2,worker-1:2`."""
    for host in hosts.split(","):
        name, _, slots = host.rpartition(":")
        if not slots.isdecimal():
            return None
        if rank < int(slots):
            return name
        rank -= int(slots)
    return None


class RankGroup:
    def __init__(self, state: LauncherState) -> None:
        self._state = state
        self._oom_kills = processes.oom_kills()
        self._starter: int | None = None  # pid of torchrun or mpirun
        self._survived: tuple[Rank, ChildEnd] | None = None  # a worker's failure after which torchrun started it again
        self._read_events: Callable[[], None] = lambda: None
        size = pipe_size(2 * len(state.plan.ranks))
        for plan in state.plan.ranks:
            label = "%s rank %d" % (state.plan.node, plan.rank)
            out, err = (state.open_stream("%d.%s" % (plan.rank, stream), label, size) for stream in ("out", "err"))
            state.ranks.append(Rank(plan, out, err))

    def start(self) -> None:
        """Start all ranks. One that cannot be started fails like one that exits with 127 or 126."""
        starter = self._state.plan.starter
        if starter == "follower":
            self._state.is_serving = True
            self._state.on_remote_end = self._remote_ended
        elif starter in ("torchrun", "mpirun"):
            self._start_starter(starter)
        else:
            for rank in self._state.ranks:
                if not self._state.is_over:
                    env = rank_environment(self._state.env, rank.plan)
                    self._start([rank], env, lambda end, rank=rank: self.ended(rank, end))  # type: ignore[misc]

    def _start_starter(self, starter: str) -> None:
        from ..starters.starters import torchrun_environment, watch_workers

        env = self._state.env
        if starter == "torchrun":
            env = torchrun_environment(self._state.plan, env)
            self._read_events = watch_workers(self._state, self._worker_event)
        self._starter = self._start(self._state.ranks, env, self._starter_ended)

    def _start(self, ranks: list[Rank], env: dict[str, str], on_end: Callable[[ChildEnd], None]) -> int | None:
        """Start a command whose output goes to the first of the ranks."""
        state = self._state
        # Our own stdin is /dev/null, or what the submitter gave to a run of one rank.
        stdio = (0 if len(state.ranks) == 1 else os.devnull, ranks[0].out.pipe, ranks[0].err.pipe)
        for rank in ranks:
            rank.begin(0)
        try:
            pid = state.start(state.plan.command, env, stdio, on_end)
        except processes.StartError as error:
            ranks[0].err.add_line("longboat: %s" % error)
            self.ended(ranks[0], ChildEnd(0, error.exit_code << 8, 0), message=str(error))
            return None
        for rank in ranks:
            rank.pid = pid
        return pid

    def ended(self, rank: Rank, end: ChildEnd, ended_by: str | None = None, message: str = "") -> None:
        """Handle the end of a rank: write its report; the first failure ends the others."""
        state = self._state
        if isinstance(state.plan.command, str) and state.plan.starter == "longboat":
            end.through_shell()
        rank.end = end
        state.catch_up(rank.out, rank.err)
        rank.read_step(state.path("steps", str(rank.rank)))
        ending = state.ending
        if ended_by is None and ending is not None and end.ended_ns >= ending.since_ns:
            ended_by = ending.by
        kernel_oom = end.signal == 9 and processes.oom_kills() > self._oom_kills
        report = rank_report(state.plan, rank, end, ended_by, kernel_oom)
        if message:
            report["message"] = message
        rank.report = report
        state.write("rank-%d.json" % rank.rank, report)
        if end.code != 0 and ended_by is None:
            self._failed(report, end)

    def _failed(self, report: dict[str, object], end: ChildEnd) -> None:
        state = self._state
        first = state.failure.first if state.failure else None
        if state.failure is None or (first is not None and int(str(first["ended_ns"])) > end.ended_ns):
            state.failure = NodeFailure(str(report["cause"]), end.code, str(report["message"]), report)
        if state.end_by("failure"):
            if self._starter in state.running:
                # torchrun may have begun to end the others before this was read.
                assert state.ending is not None
                state.ending.since_ns = end.ended_ns + 1
                state.loop.after("settle", SETTLE_S, lambda: state.terminate(state.plan.grace_s))
            else:
                state.terminate(state.plan.grace_s)

    def _worker_event(self, event: dict[str, Any]) -> None:
        """Handle the start or end of a torchrun worker."""
        rank = next((rank for rank in self._state.ranks if rank.rank == event.get("rank")), None)
        if rank is None:
            return
        if event["event"] == "started":
            rank.begin(int(event["pid"]))
            return
        end = ChildEnd(int(event["pid"]), int(event["status"]), int(event["rss_peak"]))
        end.ended, end.ended_ns = float(event["ended"]), int(event["ended_ns"])
        if end.code != 0 and not event["is_final"] and self._state.ending is None:
            rank.end = end
            self._survived = (rank, end)
        else:
            self.ended(rank, end)

    def _starter_ended(self, end: ChildEnd) -> None:
        """Handle the end of torchrun or mpirun: its exit code counts for ranks whose own is unknown."""
        state = self._state
        self._read_events()
        state.loop.cancel("settle")
        if end.code != 0 and state.failure is None and state.ending is None:
            rank, own = self._survived or (state.ranks[0], end)
            self.ended(rank, own)
            if state.plan.starter == "mpirun":
                self._blame(rank)
        ended_by = state.ending.by if state.ending is not None else None
        for rank in state.ranks:
            if rank.report is None:
                self.ended(rank, rank.end or end, ended_by=ended_by)

    def _blame(self, first: Rank) -> None:
        """Attribute the failure to the rank that mpirun's output names."""
        state = self._state
        culprit = failure_cause.mpirun_culprit(failure_cause.lines_of(first.err.tail(failure_cause.TAIL_BYTES)))
        if culprit is None or first.report is None or state.failure is None:
            return
        number, signal_number = culprit
        node = node_of_rank(state.env.get("LONGBOAT_MPI_HOSTS", ""), number) or state.plan.node
        report = dict(first.report, rank=number, node=node, role=node.rpartition("-")[0])
        if signal_number is not None:
            killed = "killed by " + failure_cause.signal_name(signal_number)
            report.update(signal=signal_number, cause="signal", message=killed, traceback="")
        elif report["cause"] == "exit":
            report["message"] = "exit code %s" % report["exit_code"]
        if number != first.rank:
            first.report.update(ended_by="failure", cause=None, message="")
            state.write("rank-%d.json" % first.rank, first.report)
        else:
            first.report = report
        state.write("rank-%d.json" % number, report)
        state.failure = NodeFailure(str(report["cause"]), state.failure.code, str(report["message"]), report)

    def _remote_ended(self, end: ChildEnd) -> None:
        """Record the end of a command that mpirun started here; mpirun judges it."""
        for rank in self._state.ranks:
            if rank.pid == end.pid:
                rank.end = end

    def killed(self, rank: Rank) -> None:
        """Handle a kill by the memory limit: under mpirun no child's exit reports it."""
        if self._state.plan.starter in ("mpirun", "follower"):
            self.ended(rank, ChildEnd(rank.pid, 9, 0))

    def finish(self) -> None:
        """Complete the reports when nothing runs any more, with late events and stacks."""
        self._read_events()
        ended_by = self._state.ending.by if self._state.ending else None
        for rank in self._state.ranks:
            if rank.report is None and rank.end is not None:
                self.ended(rank, rank.end, ended_by=ended_by)
        for rank in self._state.ranks:
            if rank.report is not None and rank.stacks and not rank.report["stacks"]:
                rank.report["stacks"] = rank.stacks
                self._state.write("rank-%d.json" % rank.rank, rank.report)
