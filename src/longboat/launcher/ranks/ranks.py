"""A rank as its launcher knows it, and the report about its end. Values; the report's words come from
`failure_cause`."""

from __future__ import annotations

import os
import time

from ..node import cgroups
from ..node.jsonfiles import read_json
from ..node.loop import ChildEnd
from ..node.plan import NodePlan, RankPlan
from . import failure_cause
from .streams import RankStream


class Rank:
    def __init__(self, plan: RankPlan, out: RankStream, err: RankStream) -> None:
        self.plan = plan
        self.rank = plan.rank
        self.out = out
        self.err = err
        self.pid = 0
        self.started = 0.0
        self.started_ns = 0
        self.end: ChildEnd | None = None
        self.step: int | None = None
        self.metrics: dict[str, float] = {}
        self.step_time: float | None = None
        self.step_ns = 0
        self.step_stamp = 0  # st_mtime_ns of the step file when it was read last
        self.memory: int | None = None
        self.memory_peak: int | None = None
        self.over_limit: int | None = None
        self.usage: dict[str, object] = {}  # of late, as the sampler tells it
        self.stacks = ""
        self.report: dict[str, object] | None = None

    @property
    def alive(self) -> bool:
        return self.pid > 0 and self.end is None

    def begin(self, pid: int) -> None:
        """Record the start; the pid may follow later."""
        self.pid = pid
        self.end = None
        self.started = time.time()
        self.started_ns = time.monotonic_ns()

    def note_memory(self, used: int) -> None:
        self.memory = used
        self.memory_peak = max(used, self.memory_peak or 0)

    def read_step(self, path: str) -> None:
        """Read the trainer's latest step and metrics."""
        try:
            stamp = os.stat(path).st_mtime_ns
            if stamp == self.step_stamp:
                return
            value = read_json(path)
            self.step_stamp = stamp
            self.step = int(value["step"])
            self.step_time = float(value["time"])
            self.metrics = {str(name): float(number) for name, number in value["metrics"].items() if number is not None}
            self.step_ns = time.monotonic_ns()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
            pass  # none yet, or not a file of ours

    def silent_s(self) -> float:
        """Seconds since the last step or output."""
        latest = max(self.started_ns, self.out.last_ns, self.err.last_ns, self.step_ns)
        return (time.monotonic_ns() - latest) / 1e9

    def beat(self) -> dict[str, object]:
        return {
            "pid": self.pid,
            "alive": self.alive,
            "started": self.started or None,
            "step": self.step,
            "metrics": self.metrics,
            "step_time": self.step_time,
            "output_time": max(self.out.last_time, self.err.last_time) or None,
            "memory": self.memory,
            "usage": self.usage,
        }


def _group() -> tuple[int, int | None] | None:
    """Memory limit and peak of the cgroup, if it has a limit."""
    files = cgroups.find()
    limit = cgroups.limit(files)
    return None if limit is None else (limit, cgroups.peak(files))


def rank_report(plan: NodePlan, rank: Rank, end: ChildEnd, ended_by: str | None, kernel_oom: bool) -> dict[str, object]:
    """Build a report with the fields of RankReport (core/runs.py)."""
    peak = max(end.rss_peak, rank.memory_peak or 0)
    report: dict[str, object] = {
        "rank": rank.rank,
        "role": plan.role,
        "node": plan.node,
        "pid": rank.pid,
        "exit_code": end.code,
        "signal": end.signal,
        "started": rank.started,
        "ended": end.ended,
        "ended_ns": end.ended_ns,
        "ended_by": ended_by,
        "memory_peak": peak or None,
        "memory_limit": plan.memory_limit,
        "step": rank.step,
        "stacks": rank.stacks,
    }
    err = rank.err.tail(failure_cause.TAIL_BYTES)
    if end.code != 0 or ended_by == "timeout":
        report["tail"] = failure_cause.tail_of(err, rank.out.tail(failure_cause.TAIL_BYTES))
    if end.code != 0 and ended_by is None:
        group = _group() if kernel_oom else None
        if group is not None:
            report["memory_limit"] = plan.memory_limit or group[0]
        evidence = failure_cause.EndEvidence(kernel_oom, rank.over_limit, plan.memory_limit, group)
        cause, message, traceback = failure_cause.judge(end.code, end.signal, err, evidence)
        report.update(cause=cause, message=message, traceback=traceback)
    return report
