"""The ranks of a node: starting them, noticing their ends, keeping the first failure, writing their reports."""

from __future__ import annotations

import os

from . import processes
from .environment import rank_environment
from .loop import ChildEnd
from .ranks import Rank, rank_report
from .state import Failure, State
from .streams import pipe_size


class Gang:
    def __init__(self, state: State) -> None:
        self._state = state
        self._oom_kills = 0
        size = pipe_size(2 * len(state.plan.ranks))
        for plan in state.plan.ranks:
            label = "%s rank %d" % (state.plan.node, plan.rank)
            out, err = (state.open_stream("%d.%s" % (plan.rank, stream), label, size) for stream in ("out", "err"))
            state.ranks.append(Rank(plan, out, err))

    def start(self) -> None:
        """Start one process per rank. A rank that cannot be started has failed like one that exits with 127 or 126."""
        self._oom_kills = processes.oom_kills()
        for rank in self._state.ranks:
            if self._state.is_over:
                return
            self._start_rank(rank)

    def _start_rank(self, rank: Rank) -> None:
        state = self._state
        env = rank_environment(state.env, rank.plan)
        stdio = (os.devnull, rank.out.pipe, rank.err.pipe)
        try:
            rank.begin(state.start(state.plan.command, env, stdio, lambda end: self.ended(rank, end)))
        except processes.StartError as error:
            rank.begin(0)
            rank.err.add_line("longboat: %s" % error)
            self.ended(rank, ChildEnd(0, error.exit_code << 8, 0), message=str(error))

    def ended(self, rank: Rank, end: ChildEnd, message: str = "") -> None:
        """A rank has ended: write its report; the first that failed by itself ends the others."""
        state = self._state
        rank.end = end
        state.catch_up(rank.out, rank.err)
        ending = state.ending
        ended_by = ending.by if ending is not None and end.ended_ns >= ending.since_ns else None
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
            state.failure = Failure(str(report["cause"]), end.code, str(report["message"]), report)
        if state.end_by("failure"):
            state.terminate(state.plan.grace_s)

    def rewrite_reports(self) -> None:
        """Write the reports again with what was learnt after the end: stacks."""
        for rank in self._state.ranks:
            if rank.report is not None and rank.stacks and not rank.report["stacks"]:
                rank.report["stacks"] = rank.stacks
                self._state.write("rank-%d.json" % rank.rank, rank.report)
