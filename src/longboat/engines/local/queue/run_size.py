"""The size of an elastic run while it runs: whether it is to change, and when. What there is room for is decided in
`queue/sizes`; ending the attempt and making the next one is the supervisor's affair."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from longboat.core.elastic.sizes import MOST_RESIZES
from longboat.core.errors import EngineError
from longboat.core.jobs import Job, Value
from longboat.core.words import counted
from longboat.engines.local.queue.elastic_slot import ElasticSlot
from longboat.engines.local.queue.machine import Gpu, LocalMachine
from longboat.engines.local.queue.requests import local_sizes
from longboat.engines.local.records import LocalState
from longboat.engines.shared.files import log_line
from longboat.storage.checkpoints import newest_complete

LOOK_S = 2.0
"""How often it is looked for room, and for runs that wait for what this one has too much."""
POLL_S = 0.2
"""How often a checkpoint is looked for that a change waits for: what is computed after it is lost."""


class WantedChange(Value, frozen=True):
    """Another size, and what it waits for."""

    size: int
    reason: str
    waits: bool = True  # for the next checkpoint
    is_growth: bool = True


class RunSize:
    """Not for a job of one size."""

    def __init__(self, job: Job, checkpoints: Path, machine: Callable[[], LocalMachine]) -> None:
        self._job, self._checkpoints, self._machine = job, checkpoints, machine
        self._sizes = local_sizes(job)
        self._wanted: WantedChange | None = None
        self._seen: str | None = None  # the newest checkpoint when the change came to be wanted
        self._looked = float("-inf")

    @property
    def is_wanted(self) -> bool:
        return self._wanted is not None

    def size_at(self, place: int) -> int:
        return self._sizes[place]

    def words(self, place: int, reason: str) -> str:
        """Why a run starts with this size and no larger one."""
        if place + 1 >= len(self._sizes) or not reason:
            return ""
        return f"with {counted(self._sizes[place + 1], 'node')} it {reason}"

    def begin(self) -> None:
        """Another attempt: what was wanted of the one before is decided anew."""
        self._wanted, self._looked = None, float("-inf")

    def look(self, slot: ElasticSlot, state: LocalState, now: float) -> tuple[str, int | None]:
        """Why the size is as it is or what it waits for; and the size that it is to have now, None: it stays."""
        try:
            return self._look(slot, state, now)
        except EngineError as error:  # a full disk, for one: it ends no training
            log_line(error.message)
            return state.size_reason, None

    def _look(self, slot: ElasticSlot, state: LocalState, now: float) -> tuple[str, int | None]:
        if now - self._looked >= LOOK_S and state.resizes < MOST_RESIZES:
            self._looked = now
            wanted = self._change(slot)
            if wanted is None or self._wanted is None or wanted.is_growth is not self._wanted.is_growth:
                self._seen = self._newest()
            if wanted is None and self._wanted is not None:
                self._wanted = None
                return "", None
            self._wanted = wanted
        wanted = self._wanted
        if wanted is None:
            return state.size_reason, None
        if wanted.waits and self._newest() in (None, self._seen):
            return f"{wanted.reason} at its next checkpoint", None
        if not wanted.is_growth:
            return wanted.reason, wanted.size
        place = slot.grow(self._machine())  # held from now on, while the ranks end
        self._wanted = None
        return (state.size_reason, None) if place is None else (wanted.reason, self._sizes[place])

    def settle(self, slot: ElasticSlot, size: int) -> Sequence[tuple[Gpu, ...]] | None:
        """The ranks have ended: give back what the new size does not need. GPUs for each node of it; None where it has
        to wait for them."""
        machine = self._machine()
        place = self._sizes.index(size) if size in self._sizes else 0
        if place < slot.place:
            slot.shrink(machine, place)
        return slot.gpus_per_node(machine)

    def _change(self, slot: ElasticSlot) -> WantedChange | None:
        machine, now = self._machine(), self._job.grow == "now"
        size = self._sizes[slot.place]
        if slot.place and (run := slot.asked_back(machine)) is not None:
            least = self._sizes[0]
            text = f"goes from {size} to {counted(least, 'node')} for {run}"
            return WantedChange(size=least, reason=text, waits=not now, is_growth=False)
        if self._job.grow == "never" or slot.place == len(self._sizes) - 1:
            return None
        place = slot.room(machine)
        if place is None:
            return None
        text = f"grows from {size} to {counted(self._sizes[place], 'node')}"
        return WantedChange(size=self._sizes[place], reason=text, waits=not now)

    def _newest(self) -> str | None:
        try:
            newest = newest_complete(self._checkpoints)
            return None if newest is None else f"{newest} {os.stat(newest).st_mtime_ns}"
        except (EngineError, OSError):
            return None
