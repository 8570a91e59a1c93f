"""The sampler of a node: every few seconds a row for the node, each rank and each GPU, and the trainers' new numbers.

It works in a thread of its own (`thread`), which only reads `state.ranks`; what it gives back are whole values
(`Rank.usage`, `gpus`), which the heartbeat takes along.
"""

from __future__ import annotations

import time

from ..ranks.state import LauncherState
from . import gpus as gpu_columns
from .event_watch import EventWatch
from .gpus import GpuMeter, share
from .packages import software
from .proc import MachineMeter, TreeMeter
from .series_file import NAME, SeriesFile
from .step_series import StepSeries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from typing import Any, Callable

    from ..ranks.ranks import Rank

EVERY_S = 5.0  # curves of hours need no more, and a sample takes milliseconds
IDLE_PERCENT = 5.0
"""A GPU below this computes nothing: a desktop or a monitor may use that much."""
RECENT = 12
"""Samples of the last minute, whose mean is what a rank uses now."""
NODE_COLUMNS = ("cpu", "memory", "network_in", "network_out", "disk_read", "disk_write")
RANK_COLUMNS = (
    "cpu", "memory", "disk_read", "disk_write", "gpu", "gpu_memory", "gpu_power", "gpu_temperature", "gpu_throttle",
)  # fmt: skip
_OF_RANK = (0, 1, 3, 4, 5)  # columns of a GPU that a rank's row has


class RankMeter:
    """What is measured of one rank over time."""

    def __init__(self, rank: Rank, path: str, began: float) -> None:
        self.rank = rank
        self.tree = TreeMeter(began)
        self.series = StepSeries(path)
        self._rows: list[list[float | None]] = []
        self.idle_since: float | None = None
        self.throttled_s = 0.0

    def note(self, row: list[float | None], past_s: float) -> None:
        """Keep the recent rows, and for how long the GPUs are idle or slow."""
        self._rows = (self._rows + [row])[-RECENT:]
        use, slowed = row[4], row[8]
        if use is not None:
            self.idle_since = (self.idle_since or time.time()) if use < IDLE_PERCENT else None
        self.throttled_s += past_s * (slowed or 0.0)

    def usage(self) -> dict[str, Any]:
        """Fields of RankUsage (core/runs.py)."""
        fields: dict[str, Any] = {}
        for at, name in enumerate(RANK_COLUMNS):
            numbers = [row[at] for row in self._rows if row[at] is not None]
            if numbers:
                fields[name] = round(sum(numbers) / len(numbers), 3)  # type: ignore[arg-type]
        pace = self.series.pace()
        if pace is not None:
            fields["steps_per_s"], fields["pace_steps"] = round(pace[0], 6), pace[1]
        if self.idle_since is not None:
            fields["gpu_idle_s"] = round(time.time() - self.idle_since, 1)
        if self.throttled_s:
            fields["gpu_throttled_s"] = round(self.throttled_s, 1)
        if self.series.bad:
            fields["not_finite"] = dict(self.series.bad)
        return fields


class Sampler:
    def __init__(
        self, state: LauncherState, trees: Callable[[], dict[Rank, list[int]]], began: tuple[float, float]
    ) -> None:
        """`began`: when the ranks were started, of `time.monotonic` and `time.time`."""
        self._state = state
        self._trees = trees
        self._file = SeriesFile(state.path(NAME), len(state.ranks))
        self._file.describe(
            v=1,
            node=state.plan.node,
            role=state.plan.role,
            attempt=state.plan.attempt,
            columns={"node": NODE_COLUMNS, "rank": RANK_COLUMNS, "gpu": gpu_columns.COLUMNS},
        )
        if not state.plan.node_rank:
            pids = next(iter(trees().values()), [])
            self._file.describe(**software(state.plan.command, state.env, state.plan.workdir, pids))
        self._meters = [RankMeter(rank, state.path("steps", "%d.series" % rank.rank), began[0]) for rank in state.ranks]
        self._machine = MachineMeter()
        folders = [state.plan.workdir, state.plan.artifacts_dir or "", state.plan.checkpoint_dir or ""]
        self._events = EventWatch(folders, began[1])
        self._gpus: GpuMeter | None = None
        self._at = began[0]

    def run(self, stop: LockType) -> None:
        """Sample until the lock is free."""
        self._gpus = GpuMeter(self._state.env.get("CUDA_VISIBLE_DEVICES"))
        described = {str(number): [uuid, name] for number, uuid, name, _ in self._gpus.devices}
        if described:
            self._file.describe(gpus=described, driver=self._gpus.driver)
        while True:
            self._sample()
            if stop.acquire(timeout=EVERY_S):
                break
        self.take_steps(is_last=True)  # before event files: the end of the node does not wait for long ones
        self._take_events([], is_last=True)
        self._file.flush()

    def _sample(self) -> None:
        now = time.monotonic()
        past_s, self._at = now - self._at, now
        at = round(time.time(), 3)
        numbers = self._gpus.measure() if self._gpus is not None else []
        self._file.add(["node", at, self._state.plan.node, *self._machine.measure()])
        for (number, _, _, _), row in zip(self._gpus.devices if self._gpus else (), numbers):
            self._file.add(["gpu", at, number, *row])
        trees = self._trees()
        for index, meter in enumerate(self._meters):
            pids = trees.get(meter.rank)
            if not pids:
                continue
            chosen = [numbers[each] for each in share(len(numbers), len(self._meters), index)]
            row = [*meter.tree.measure(pids), *_joined(chosen)]
            self._file.add(["rank", at, meter.rank.rank, *row])
            meter.note(row, past_s)
        self._take_events([pids[0] for pids in trees.values() if pids], is_last=False)
        self.take_steps(is_last=False)
        self._state.gpus = self._described(numbers)

    def _take_events(self, pids: list[int], *, is_last: bool) -> None:
        for at, folder, step, numbers in self._events.take(pids, self._file.width_s[True] / 2, is_last=is_last):
            self._file.add(["event", at, folder, step, numbers])
        for meter in self._meters[:1]:  # whose they are is not known
            for name, step in self._events.bad.items():
                meter.series.bad.setdefault(name, step)
            meter.rank.usage = meter.usage()

    def take_steps(self, *, is_last: bool) -> None:
        for meter in self._meters:
            for at, step, numbers in meter.series.take(self._file.width_s[True] / 2, is_last=is_last):
                self._file.add(["step", at, meter.rank.rank, step, numbers])
            meter.rank.usage = meter.usage()
        self._file.flush()

    def _described(self, numbers: list[list[float | None]]) -> list[dict[str, Any]]:
        """The GPUs as the heartbeat tells them."""
        devices = self._gpus.devices if self._gpus is not None else []
        ranks = len(self._meters)
        holders = [
            [meter.rank.rank for index, meter in enumerate(self._meters) if at in share(len(devices), ranks, index)]
            for at in range(len(devices))
        ]
        return [
            {"number": number, "uuid": uuid, "name": name, "ranks": holder, **dict(zip(gpu_columns.COLUMNS, row))}
            for (number, uuid, name, _), row, holder in zip(devices, numbers, holders)
        ]


def _joined(rows: list[list[float | None]]) -> list[float | None]:
    """A rank's GPUs as one: mean use and throttling, memory and power of all, the highest temperature. Pure."""
    use, memory, power, degrees, slowed = ([row[at] for row in rows if row[at] is not None] for at in _OF_RANK)
    return [
        round(sum(use) / len(use), 3) if use else None,  # type: ignore[arg-type]
        sum(memory) if memory else None,  # type: ignore[arg-type]
        sum(power) if power else None,  # type: ignore[arg-type]
        max(degrees) if degrees else None,  # type: ignore[type-var]
        round(sum(slowed) / len(slowed), 3) if slowed else None,  # type: ignore[arg-type]
    ]
