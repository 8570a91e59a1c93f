"""Leases and leader election: held by one process at a time, for as long as it renews.

Whether another holder is dead is judged by how long, on our own clock, its Lease has not changed; clocks of different
machines are never compared. Whether we still hold it is judged from the moment before our last successful renewal was
sent, so we stop believing in it before anybody else may take it. Whoever holds one looks at what is left of it before
each write: `Client.within`.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from longboat.core.errors import LongboatError
from longboat.core.times import format_time
from longboat.kubeapi.boottime import clock
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, Conflict, Forbidden, ObjectNotFound
from longboat.kubeapi.kinds import LEASE

GATE = "longboat-gate"
CONTROLLER = "longboat-controller"
TTL_S = 15.0  # as leader election of kube-controller-manager
MANAGED_BY = {"app.kubernetes.io/managed-by": "longboat"}

Object = dict[str, Any]


def process_identity() -> str:
    """What this process is called in a Lease: its pod's name, else host and process."""
    return os.environ.get("LONGBOAT_POD") or f"{socket.gethostname()}-{os.getpid()}"


class Lease:
    """One process's view of one Lease. Not for several threads."""

    def __init__(self, client: Client, namespace: str, name: str, holder: str, ttl_s: float = TTL_S) -> None:
        self.ttl_s = float(max(1, math.ceil(ttl_s)))
        # Waiting longer than the Lease lasts for an answer about it is of no use.
        self._client = client.within(lambda: self.ttl_s)
        self._namespace = namespace
        self.name = name
        # Two processes that call themselves alike are still two.
        self.holder = f"{holder[:200]}_{secrets.token_hex(8)}"
        self._until = -math.inf
        self._body: Object = {}
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0

    @property
    def left_s(self) -> float:
        """How long it is surely ours, if it is not renewed."""
        return max(0.0, self._until - clock())

    @property
    def is_held(self) -> bool:
        return self.left_s > 0

    def try_hold(self) -> bool:
        """Take it if it is free or its holder is dead, renew it if it is ours. False: somebody else has it."""
        before = clock()
        try:
            taken = self._client.create(self._wanted({}, 0)) if not self._body else self._renew()
        except AlreadyExists:
            taken = self._take_over()
        if taken is None:
            return False
        self._body = taken
        self._until = before + self.ttl_s
        return True

    def renew(self, ttl_s: float | None = None) -> bool:
        """Prolong it if nobody else has held it since it was taken; False: somebody may have. Also after it ran out.

        So what was read under it is as good as before. `ttl_s`: for so long from now on.
        """
        before = clock()
        self.ttl_s = self.ttl_s if ttl_s is None else float(max(1, math.ceil(ttl_s)))
        if not self._body:
            return False
        body: Object | None
        try:
            body = self._client.replace(self._wanted(self._body, 0))
        except Conflict:
            # It may be our own renewal, sent twice, that we meet.
            existing = self._client.find(LEASE, self.name, namespace=self._namespace)
            is_ours = existing is not None and (existing.get("spec") or {}).get("holderIdentity") == self.holder
            body = self._replace(existing, 0) if existing is not None and is_ours else None
        except ObjectNotFound:
            body = None
        if body is None:
            self._body, self._until = {}, -math.inf
            return False
        self._body, self._until = body, before + self.ttl_s
        return True

    def _renew(self) -> Object | None:
        try:
            return self._client.replace(self._wanted(self._body, 0))
        except (Conflict, ObjectNotFound):
            # It may be our own renewal, sent twice, that we meet.
            return self._take_over()

    def _take_over(self) -> Object | None:
        existing = self._client.find(LEASE, self.name, namespace=self._namespace)
        if existing is None:
            self._body = {}
            with contextlib.suppress(AlreadyExists):
                return self._client.create(self._wanted({}, 0))
            return None
        spec = existing.get("spec") or {}
        other = spec.get("holderIdentity") or ""
        if other == self.holder:
            return self._replace(existing, 0)
        self._body, self._until = {}, -math.inf
        if other and not self._is_dead(existing, float(spec.get("leaseDurationSeconds") or self.ttl_s)):
            return None
        return self._replace(existing, 1)

    def _is_dead(self, existing: Object, duration_s: float) -> bool:
        meta = existing["metadata"]
        mark = (str(meta.get("uid", "")), str(meta.get("resourceVersion", "")))
        if mark != self._seen:
            self._seen, self._seen_at = mark, clock()
            return False
        return clock() - self._seen_at > duration_s

    def _replace(self, existing: Object, transitions: int) -> Object | None:
        try:
            return self._client.replace(self._wanted(existing, transitions))
        except (Conflict, ObjectNotFound):
            return None

    def _wanted(self, existing: Object, transitions: int) -> Object:
        now = format_time(time.time(), digits=6)
        meta, spec = existing.get("metadata") or {}, existing.get("spec") or {}
        is_mine = spec.get("holderIdentity") == self.holder
        kept = {key: meta[key] for key in ("uid", "resourceVersion", "annotations", "ownerReferences") if key in meta}
        labels = {**(meta.get("labels") or {}), **MANAGED_BY}
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {**kept, "name": self.name, "namespace": self._namespace, "labels": labels},
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": int(self.ttl_s),
                "acquireTime": spec.get("acquireTime") if is_mine else now,
                "renewTime": now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + transitions,
            },
        }

    def release(self) -> None:
        """Let go: the object is removed, if nobody else has changed it; where that is not allowed, it is emptied."""
        body, self._body, self._until = self._body, {}, -math.inf
        if not body:
            return
        meta = body["metadata"]
        precondition = {"uid": meta.get("uid"), "resourceVersion": meta.get("resourceVersion")}
        path = self._client.path(LEASE, self._namespace, self.name)
        with contextlib.suppress(Conflict, ObjectNotFound):
            try:
                self._client.request("DELETE", path, body={"preconditions": precondition})
            except Forbidden:
                emptied = self._wanted(body, 0)
                emptied["spec"].update(holderIdentity="", leaseDurationSeconds=1)
                self._client.replace(emptied)


class Leader:
    """Takes part in an election until it is stopped; a thread renews. Work only while `is_leader`."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        holder: str,
        *,
        name: str = CONTROLLER,
        ttl_s: float = TTL_S,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self._lease = Lease(client, namespace, name, holder, ttl_s)
        self._pause_s = ttl_s / 3
        self._on_lost = on_lost
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._was_leader = False
        self._term = 0  # another number whenever somebody else may have led in between
        self._threads = [
            threading.Thread(target=work, name=f"leader {name}", daemon=True) for work in (self._renew, self._watch)
        ]
        self.trouble = ""  # what the last attempt met, for a person
        self.identity = self._lease.holder

    @property
    def is_leader(self) -> bool:
        return self._lease.is_held and not self._stopping.is_set()

    def remaining_term(self) -> Callable[[], float]:
        """How many seconds of this leadership are surely left, to be asked again and again.

        Once somebody else may have led it is 0 for good, though we lead again: what was decided before is void.
        """
        term = self._term

        def left_s() -> float:
            is_over = self._stopping.is_set() or self._term != term
            return 0.0 if is_over else self._lease.left_s

        return left_s

    @property
    def is_alive(self) -> bool:
        """Whether its threads work. One that was not started or was stopped has none to miss."""
        return self._stopping.is_set() or all(thread.ident is None or thread.is_alive() for thread in self._threads)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it leads; False on timeout or when it was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_leader or self._stopping.is_set(), timeout_s)
        return self.is_leader

    def stop(self) -> None:
        """Leave the election; another may lead at once."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()

    def _renew(self) -> None:
        while not self._stopping.is_set():
            try:
                if not self._lease.renew():
                    self._term += 1
                    self._lease.try_hold()
                self.trouble = ""
            except LongboatError as error:
                self.trouble = error.message
            except Exception as error:  # the thread must live: with it goes the Lease
                self.trouble = f"{type(error).__name__}: {error}"
            self._tell()
            self._stopping.wait(self._pause_s)
        with contextlib.suppress(Exception):
            self._lease.release()

    def _watch(self) -> None:
        """A renewal that hangs must not keep the loss from being told."""
        while not self._stopping.is_set():
            self._stopping.wait(max(0.05, min(self._lease.left_s or self._pause_s, self._pause_s)))
            self._tell()

    def _tell(self) -> None:
        with self._changed:
            leads = self._lease.is_held
            was, self._was_leader = self._was_leader, leads
            self._changed.notify_all()
        if was and not leads and not self._stopping.is_set() and self._on_lost is not None:
            try:
                self._on_lost()
            except Exception as error:
                self.trouble = f"{type(error).__name__}: {error}"
