"""Leases of the gates that are served, one per namespace: taken together, renewed by a thread, asked for before every
write.

A short time to live lets the next one in soon after a holder was killed. It is safe because it is renewed while the
turn lasts, because nothing is written once it has run out, and because a Lease that somebody else has held since cannot
be renewed: then what was read under it may be old, and the turn ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Iterator, Sequence

from longboat.kubeapi.boottime import clock
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden, ObjectNotFound
from longboat.kubeapi.leases import GATE, Lease

TTL_S = 5.0
"""After so long a killed holder's Lease is taken. Renewed three times meanwhile by one that lives."""
LONGEST_TTL_S = 60.0  # a gate whose holder was killed stays shut no longer, however slow the API server was
PATIENCE = 5.0
"""Against an API server that takes a second to answer, the Lease lasts so many seconds: one renewal may be slow."""
MARGIN_S = 1.0
"""What is not used of the Lease: a write that was sent in its last moment arrives while it is still ours."""
LOOK_S = 0.2
"""How often it is looked whether a renewal is due."""
WAIT_S = 10.0
"""A write waits so long for a renewal that is under way."""

_LEASES: weakref.WeakKeyDictionary[Client, tuple[Lease, threading.Lock]] = weakref.WeakKeyDictionary()
"""One for each client, because a dead holder is known by having been watched for a while. A Lease keeps processes
apart, the lock the threads of this one."""
_MAKING = threading.Lock()


class HeldGate:
    """A gate whose Lease is held for this turn; `client` writes only while it is held."""

    def __init__(self, client: Client, lease: Lease | None, took_s: float = 0.0) -> None:
        self.origin = client
        self.lease = lease  # None: Leases may not be used here, so two may serve at once; putting back heals that
        self.client = client if lease is None else client.within(self.left_s)
        self._is_lost = False
        self._took_s = took_s  # how long the API server took to answer about it
        self._changed = threading.Condition()

    def left_s(self) -> float:
        """Seconds for one more write. A renewal that is under way is waited for."""
        lease = self.lease
        assert lease is not None
        with self._changed:
            self._changed.wait_for(lambda: self._is_lost or lease.left_s > MARGIN_S, WAIT_S)
            return 0.0 if self._is_lost else max(0.0, lease.left_s - MARGIN_S)

    @property
    def is_due(self) -> bool:
        return self.lease is not None and not self._is_lost and self.lease.left_s < self.lease.ttl_s * 2 / 3

    def renew(self) -> None:
        """Renew the Lease, in the renewing thread; retried after an error, as it may still be held."""
        assert self.lease is not None
        began, is_ours = clock(), True
        with contextlib.suppress(Exception):
            is_ours = self.lease.renew(min(LONGEST_TTL_S, max(TTL_S, PATIENCE * self._took_s)))
        self._took_s = clock() - began
        with self._changed:
            self._is_lost = self._is_lost or not is_ours
            self._changed.notify_all()

    def give_up(self) -> None:
        """Mark the Lease as lost; writers that wait for its renewal return."""
        with self._changed:
            self._is_lost = True
            self._changed.notify_all()


@contextlib.contextmanager
def hold_gates(clients: Sequence[Client]) -> Iterator[list[HeldGate]]:
    """Take the Leases of these namespaces' gates, those that are free, and renew them while the block runs."""
    with contextlib.ExitStack() as stack:
        gates = [gate for client in clients if (gate := stack.enter_context(_hold(client))) is not None]
        ending = threading.Event()
        renewed = [gate for gate in gates if gate.lease is not None]
        thread = threading.Thread(target=_renew_all, args=(renewed, ending), name="gate-leases", daemon=True)
        if renewed:
            thread.start()
        try:
            yield gates
        finally:
            ending.set()
            for gate in renewed:
                gate.give_up()
            if renewed:
                thread.join()


def _renew_all(gates: Sequence[HeldGate], ending: threading.Event) -> None:
    while not ending.wait(LOOK_S):
        for gate in gates:
            if gate.is_due and not ending.is_set():
                gate.renew()


@contextlib.contextmanager
def _hold(client: Client) -> Iterator[HeldGate | None]:
    with _MAKING:
        if client not in _LEASES:
            holder = f"{socket.gethostname()}-{os.getpid()}"
            _LEASES[client] = (Lease(client, client.namespace, GATE, holder, TTL_S), threading.Lock())
    lease, lock = _LEASES[client]
    if not lock.acquire(blocking=False):
        yield None
        return
    try:
        lease.ttl_s, began = TTL_S, clock()
        try:
            is_ours = lease.try_hold()
        except Forbidden:
            yield HeldGate(client, None)
            return
        except ObjectNotFound:
            yield None  # the namespace is gone, and nobody waits there
            return
        try:
            yield HeldGate(client, lease, clock() - began) if is_ours else None
        finally:
            if is_ours:
                with contextlib.suppress(ApiError):
                    lease.release()
    finally:
        lock.release()
