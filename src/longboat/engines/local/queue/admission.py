"""The queue of this machine, and which run may start now: first come, first served, and no later run may delay an
earlier one. Pure.

A run that does not fit reserves what it waits for: later runs only get what is left after that. So a run without GPUs
passes one that waits for GPUs, and nobody starves.
"""

from __future__ import annotations

from collections.abc import Sequence

from longboat.core.jobs import Value
from longboat.core.resources import show_quantity
from longboat.core.words import counted, listing
from longboat.engines.local.queue.machine import Gpu
from longboat.engines.local.queue.requests import RequestedResources, take_gpus

_MOST_NAMES = 4  # in one sentence; `longboat ps` lists all


class Ticket(Value, frozen=True):
    """A run's place in the queue, or what it holds."""

    run: str
    number: int
    request: RequestedResources
    priority: int = 0
    holds: bool = False  # False: still waiting
    is_held: bool = False  # a budget holds it back: it waits for nothing that others could have
    gpus: tuple[str, ...] = ()  # ids held
    least: RequestedResources | None = None  # of an elastic run: with as few nodes as it may have

    @property
    def claim(self) -> tuple[int, int]:
        """Its place in the order of the queue: the smaller one goes first."""
        return (-self.priority, self.number)


class FreeResources(Value, frozen=True):
    gpus: tuple[Gpu, ...]
    cpus: float
    memory: int


def queue_order(tickets: Sequence[Ticket]) -> list[Ticket]:
    """The waiting ones, in the order they will be served."""
    return sorted((t for t in tickets if not (t.holds or t.is_held)), key=lambda t: t.claim)


def reserve(free: FreeResources, request: RequestedResources) -> FreeResources:
    """Resources left for later runs while this one waits."""
    gpus = free.gpus
    if request.gpu_count:
        taken = take_gpus(gpus, request)
        held = {gpu.id for node in taken for gpu in node} if taken else {gpu.id for gpu in gpus}
        gpus = tuple(gpu for gpu in gpus if gpu.id not in held)
    return FreeResources(
        gpus=gpus, cpus=max(0.0, free.cpus - request.cpus), memory=max(0, free.memory - request.memory)
    )


def decide_admission(me: Ticket, tickets: Sequence[Ticket], free: FreeResources) -> str | None:
    """None when the run may start now, else what it waits for. `free` is what nobody holds."""
    ahead: list[str] = []
    left = free
    for other in queue_order(tickets):
        if other.run == me.run:
            break
        left = reserve(left, other.request)
        ahead.append(other.run)
    lacking = lacking_of(me.request, left)
    if not lacking:
        return None
    if not lacking_of(me.request, free):  # enough is free, and kept
        lacking = [
            f"{text[:-1]}, kept for {listing(ahead, _MOST_NAMES)})" for text in lacking_of(me.request, left, free)
        ]
        return f"waits for {' and '.join(lacking)}"
    holders = ", ".join(sorted(t.run for t in tickets if t.holds and _conflicts(t.request, me.request))[:4])
    text = "waits for " + " and ".join(lacking)
    if holders:
        text += f"; held by {holders}"
    if ahead:
        text += f"; {counted(len(ahead), 'run')} before it"
    return text


def lacking_of(request: RequestedResources, left: FreeResources, free: FreeResources | None = None) -> list[str]:
    """What is more than what is left, with what is free: also for others, where `free` is given."""
    free = free or left
    lacking = []
    if request.gpu_count and take_gpus(left.gpus, request) is None:
        lacking.append(f"{counted(request.gpu_count, 'GPU')} ({len(free.gpus)} free)")
    if request.cpus > left.cpus + 1e-9:
        lacking.append(f"{counted(request.cpus, 'CPU')} ({free.cpus:g} free)")
    if request.memory > left.memory:
        lacking.append(f"{show_quantity(request.memory)} of memory ({show_quantity(free.memory)} free)")
    return lacking


def _conflicts(held: RequestedResources, wanted: RequestedResources) -> bool:
    return bool((held.gpu_count and wanted.gpu_count) or (held.cpus and wanted.cpus) or (held.memory and wanted.memory))
