"""The slots of an elastic run: like those of any run, and it takes more of them or gives some back while it runs."""

from __future__ import annotations

import os

from longboat.core.errors import EngineError
from longboat.engines.local.queue.admission import FreeResources, Ticket
from longboat.engines.local.queue.machine import Gpu, LocalMachine
from longboat.engines.local.queue.requests import take_gpus
from longboat.engines.local.queue.sizes import added, gives_back, kept_gpus, room_to_grow
from longboat.engines.local.queue.slots import SlotTicket, free_resources
from longboat.engines.shared.files import locked, log_line


class ElasticSlot(SlotTicket):
    def room(self, machine: LocalMachine) -> int | None:
        """The place of the largest request that there is room for now; None: for none that is larger."""
        with locked(self._folder / ".lock"):
            tickets, free, locks = self._look(machine)
            _close(locks)
            return room_to_grow(self.ticket, tickets, free, self.requests)

    def asked_back(self, machine: LocalMachine) -> str | None:
        """The waiting run for which it goes down to its smallest size."""
        with locked(self._folder / ".lock"):
            tickets, free, locks = self._look(machine)
            _close(locks)
            return gives_back(self.ticket, tickets, free, _by_id(machine))

    def grow(self, machine: LocalMachine) -> int | None:
        """Take what there is room for; the place of the request it holds then, None where there is no room any more, or
        none on the disk to say so."""
        with locked(self._folder / ".lock"):
            tickets, free, locks = self._look(machine)
            try:
                place = room_to_grow(self.ticket, tickets, free, self.requests)
                if place is None:
                    return None
                request = self.requests[place]
                # What it has stays its own: ranks of this attempt still use it.
                more = take_gpus(free.gpus, added(self.ticket.request, request)) or []
                taken = {gpu.id: locks[gpu.id] for node in more for gpu in node}
                try:
                    self._hold({**self._locks, **taken}, request)
                except EngineError as error:
                    log_line(error.message)
                    return None
                locks = {id: lock for id, lock in locks.items() if id not in taken}
                return place
            finally:
                _close(locks)

    def shrink(self, machine: LocalMachine, place: int) -> None:
        """Give back all that a smaller size does not need."""
        with locked(self._folder / ".lock"):
            request = self.requests[place]
            kept = {gpu.id for node in kept_gpus(self.ticket, request, _by_id(machine)) for gpu in node}
            _close({id: lock for id, lock in self._locks.items() if id not in kept})
            locks = {id: lock for id, lock in self._locks.items() if id in kept}
            try:
                self._hold(locks, request)
            except EngineError as error:  # a full disk: the ticket says more than is held, and nobody starts too early
                log_line(error.message)
                self._locks, self.ticket = locks, self._holding(locks, request)

    def gpus_per_node(self, machine: LocalMachine) -> list[tuple[Gpu, ...]] | None:
        """Of those that it holds; None where they are not enough any more: one has gone."""
        held = [gpu for gpu in machine.gpus if gpu.id in self._locks]
        return take_gpus(held, self.ticket.request)

    def _look(self, machine: LocalMachine) -> tuple[list[Ticket], FreeResources, dict[str, int]]:
        """Everybody's tickets, what is free, and the locks of free GPUs."""
        tickets = self._tickets()
        locks: dict[str, int] = {}
        return tickets, free_resources(self._home, machine, self.requests[-1], tickets, locks), locks


def _by_id(machine: LocalMachine) -> dict[str, Gpu]:
    return {gpu.id: gpu for gpu in machine.gpus}


def _close(locks: dict[str, int]) -> None:
    for descriptor in locks.values():
        os.close(descriptor)
