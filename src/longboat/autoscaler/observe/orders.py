"""Orders and refusals between loops, kept in one ConfigMap of the cluster; marks on nodes.

The machines themselves are the provider's to tell (`ProviderAnswer`); an order is written down before it is sent, so
that whoever comes after a crash sends it again under the same token. `OrderStore` reads and writes, the rest is pure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

import msgspec

from longboat.autoscaler.model.backoff import MOST_SAID, is_remembered, is_same
from longboat.autoscaler.model.config import AutoscalerConfig
from longboat.autoscaler.model.snapshot import Order, Pool, ProviderFailure
from longboat.autoscaler.providers.provider import Instance, ProviderAnswer, Refusal
from longboat.core.errors import EngineError, NotFound
from longboat.core.guards.decoding import decode
from longboat.core.jobs import Value
from longboat.core.words import counted
from longboat.kubeapi.client import Client, Object
from longboat.kubeapi.errors import AlreadyExists, Conflict
from longboat.kubeapi.kinds import CONFIG_MAP

NAME = "longboat-autoscaler"
DELETING = "longboat.dev/deleting-at"
"""On a node whose machine is being deleted: whoever sees it finishes that, whatever else is decided."""
LABELS = {"app.kubernetes.io/managed-by": "longboat"}
LAG_S = 120.0
"""So long a machine that was promised may be missing from the provider's list."""
RETRIES = 10
"""Of a change that meets one of the autoscaler: it is made again on what that has written."""


class PlacedOrder(Value, frozen=True):
    """One order: so many machines of a pool, in one zone."""

    token: str
    pool: str
    count: int
    asked: float
    zone: str | None = None
    gang: str | None = None
    machines: tuple[str, ...] = ()  # ids that came of it, those that joined included
    is_confirmed: bool = False  # the provider has taken it

    @property
    def missing(self) -> int:
        return max(self.count - len(self.machines), 0)

    @property
    def is_cancelled(self) -> bool:
        """Nothing more is to be made of it, and the provider has not noted that yet."""
        return self.count <= 0 and not self.is_confirmed

    def placeholder_names(self) -> tuple[str, ...]:
        """Names for machines that have no id yet."""
        return tuple(f"{self.token}/{number}" for number in range(self.missing))


class OrderBook(Value, frozen=True):
    orders: tuple[PlacedOrder, ...] = ()
    failures: tuple[ProviderFailure, ...] = ()
    doubts: dict[str, float] = {}  # pool -> since when its provider's list is not believed
    version: int = 1

    def order(self, token: str) -> PlacedOrder | None:
        return next((placed_order for placed_order in self.orders if placed_order.token == token), None)

    def with_order(self, order: PlacedOrder) -> OrderBook:
        others = tuple(placed_order for placed_order in self.orders if placed_order.token != order.token)
        return msgspec.structs.replace(self, orders=(*others, order))

    def without(self, token: str) -> OrderBook:
        return msgspec.structs.replace(self, orders=tuple(order for order in self.orders if order.token != token))


class OrdersChanged(EngineError):
    """Somebody else has written the memory since it was read: what was decided on it is void."""


class OrderStore:
    """The ConfigMap, replaced only at the version that was read."""

    def __init__(self, client: Client, home: str) -> None:
        self._client, self._home = client, home
        self._body: Object | None = None
        self._read = -math.inf  # when the cluster last had what `book` says, of `time.monotonic`
        self._is_noted = False  # `book` says more than was written
        self.book = OrderBook()

    def note(self, book: OrderBook) -> None:
        """To be written with the next change: what would be found again if this process ended before."""
        self.book, self._is_noted = book, book != self.book or self._is_noted

    def load(self, *, within_s: float = 0.0) -> OrderBook:
        """The book as the cluster has it, or had it so short a time ago.

        Nothing is decided wrongly by one that is a little old: what another has written is noticed by `save`.
        """
        if self._is_noted or time.monotonic() - self._read < within_s:
            return self.book
        self._read = -math.inf
        self._body = self._client.find(CONFIG_MAP, NAME, namespace=self._home)
        text = ((self._body or {}).get("data") or {}).get("memory", "{}")
        try:
            self.book = decode(text, OrderBook)
        except msgspec.DecodeError as bad:
            where = f"the ConfigMap {self._home}/{NAME} is not understood: {bad}"
            raise EngineError(
                where, hint="correct it, or delete it: machines are found again by their provider"
            ) from None
        self._read = time.monotonic()
        return self.book

    def save(self, book: OrderBook) -> None:
        """Raises OrdersChanged. After an error nothing is known: load again."""
        if book == self.book and self._body is not None and not self._is_noted:
            return
        self._read, self._is_noted = -math.inf, False
        data = {"memory": msgspec.json.encode(book).decode()}
        try:
            if self._body is None:
                meta = {"name": NAME, "namespace": self._home, "labels": LABELS}
                body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
                self._body = self._client.create(body)
            else:
                self._body = self._client.replace({**self._body, "data": {**(self._body.get("data") or {}), **data}})
        except (Conflict, AlreadyExists):
            raise OrdersChanged(f"the ConfigMap {self._home}/{NAME} was changed by another process") from None
        self.book, self._read = book, time.monotonic()

    def retry(self, pools: Sequence[str]) -> list[str]:
        """Have these pools, or all, asked again at once; returns those that were in backoff."""
        for attempt in range(RETRIES):
            book = self.load()
            known = sorted({failure.pool for failure in book.failures})
            unknown = [name for name in pools if name not in known]
            if unknown:
                those = f"these are: {', '.join(known)}" if known else "none is"
                raise NotFound(f"pool {unknown[0]} is not in backoff; {those}", hint="longboat autoscaler status")
            try:
                self.save(retried(book, pools or known))
                return [name for name in known if not pools or name in pools]
            except OrdersChanged:
                if attempt == RETRIES - 1:
                    raise
        return []


def is_another(machine: str, own: str) -> bool:
    """Whether two ids of one cloud are of two machines. Only their ends are compared: accounts and places are not
    written alike everywhere.
    """
    (scheme, mark, place), (other, _, other_place) = machine.partition("://"), own.partition("://")
    return bool(mark) and scheme == other and place.rpartition("/")[2] != other_place.rpartition("/")[2]


class JoinedInstances:
    """Which machines are nodes already: by providerID, by name, or by the name that the provider knows, unless the node
    of this name is a former machine's.
    """

    def __init__(self, nodes: Iterable[tuple[str, str | None]]) -> None:
        self._machines = {name: machine or "" for name, machine in nodes}
        self._ids = {machine for machine in self._machines.values() if machine}

    def has(self, machine: str, node: str | None = None) -> bool:
        if machine in self._ids or machine in self._machines:
            return True
        return node in self._machines and not is_another(machine, self._machines[node])


def reconcile(
    book: OrderBook, seen: ProviderAnswer, joined: JoinedInstances, config: AutoscalerConfig, now: float
) -> OrderBook:
    """Orders as they stand by what the provider shows; every machine that is no node belongs to one afterwards."""
    settings, setups = config.settings, config.setups
    book = _refuse(book, seen.refusals, config, now)
    there = {instance.id: instance for instance in seen.machines}
    by_token: dict[str, list[str]] = {}
    for instance in seen.machines:
        if instance.token:
            by_token.setdefault(instance.token, []).append(instance.id)
    orders = [_with(order, by_token.get(order.token, ())) for order in book.orders]
    claimed = {machine for order in orders for machine in order.machines}
    for instance in sorted(seen.machines, key=lambda instance: instance.id):
        if instance.id not in claimed and instance.state != "stopping" and not joined.has(instance.id, instance.node):
            _adopt(instance, orders, now)
    kept = [
        order
        for order in orders
        if order.missing or not order.is_confirmed or _alive(order, there, joined, now) or is_orphan(order, setups)
    ]
    kept = [order for order in kept if not is_orphan(order, setups) or order.missing or unjoined(order, joined)]
    return msgspec.structs.replace(
        book,
        orders=tuple(sorted(kept, key=lambda order: (order.asked, order.token))),
        failures=tuple(failure for failure in book.failures if is_remembered(failure, settings, now, setups)),
    )


def is_orphan(order: PlacedOrder, pools: Container[str]) -> bool:
    """Its pool is not in the pools file any more: nobody can be asked what became of it, so it is kept."""
    return order.pool not in pools


def orphans(book: OrderBook, pools: Container[str]) -> tuple[str, ...]:
    """Open orders of pools that are not in the pools file any more, as messages."""
    counts: dict[str, int] = {}
    for order in book.orders:
        if is_orphan(order, pools):
            counts[order.pool] = counts.get(order.pool, 0) + order.count
    return tuple(
        f"pool {pool} is not in the pools file any more, and an order for {counted(count, 'machine')} is open there: "
        "they are not forgotten, and nobody looks after them until the pool is back"
        for pool, count in sorted(counts.items())
    )


def unjoined(order: PlacedOrder, joined: JoinedInstances) -> list[str]:
    """Machines of the order that are no node."""
    return [machine for machine in order.machines if not joined.has(machine)]


def without_machine(book: OrderBook, machine: str) -> OrderBook:
    """After its deletion: an order that counts it no more."""
    orders = []
    for order in book.orders:
        left = tuple(name for name in order.machines if name != machine)
        gone = len(order.machines) - len(left)
        order = msgspec.structs.replace(order, machines=left, count=order.count - gone) if gone else order
        if order.count > 0 or order.is_cancelled:
            orders.append(order)
    return msgspec.structs.replace(book, orders=tuple(orders))


def orders_of(book: OrderBook, seen: ProviderAnswer, joined: JoinedInstances, now: float) -> tuple[Order, ...]:
    """For `decide`: every machine that was ordered and is no node yet."""
    there = {instance.id: instance for instance in seen.machines}
    orders = []
    for order in book.orders:
        alive = _alive(order, there, joined, now)
        for machine in (*alive, *order.placeholder_names()):
            known = there.get(machine)
            failed = known is not None and known.state == "failed"
            orders.append(
                Order(
                    pool=order.pool,
                    machine=machine,
                    asked=0.0 if failed else order.asked,
                    zone=(known.zone if known is not None else None) or order.zone,
                    gang=order.gang,
                )
            )
    return tuple(orders)


def failed(book: OrderBook, failure: ProviderFailure) -> OrderBook:
    """Count one more refusal of this kind in a row."""
    before = [known for known in book.failures if is_same(known, failure)]
    others = [known for known in book.failures if known not in before]
    count = failure.count + max((provider_failure.count for provider_failure in before), default=0)
    new = msgspec.structs.replace(failure, count=count, message=failure.message[:MOST_SAID])
    return msgspec.structs.replace(book, failures=(*others, new))


def worked(book: OrderBook, pool: Pool, zone: str | None) -> OrderBook:
    """After an order that was taken."""
    return _without(
        book, lambda failure: _is_over(failure, pool) or (failure.pool == pool.name and failure.zone in (None, zone))
    )


def note_deletion(book: OrderBook, pool: Pool) -> OrderBook:
    """After a deletion that was taken: that says nothing about stock or quota."""
    return _without(book, lambda failure: _is_over(failure, pool))


def retried(book: OrderBook, pools: Sequence[str]) -> OrderBook:
    """What a person says: these may be asked again at once."""
    return _without(book, lambda failure: failure.pool in pools)


def _is_over(failure: ProviderFailure, pool: Pool) -> bool:
    if failure.kind == "throttled":
        return failure.provider == pool.provider
    return failure.kind == "auth" and failure.pool == pool.name


def _without(book: OrderBook, is_over: Callable[[ProviderFailure], bool]) -> OrderBook:
    left = tuple(failure for failure in book.failures if not is_over(failure))
    return book if left == book.failures else msgspec.structs.replace(book, failures=left)


def _with(order: PlacedOrder, machines: Sequence[str]) -> PlacedOrder:
    new = [machine for machine in machines if machine not in order.machines]
    if not new:
        return order
    return msgspec.structs.replace(order, machines=(*order.machines, *new), is_confirmed=not order.is_cancelled)


def _adopt(machine: Instance, orders: list[PlacedOrder], now: float) -> None:
    """A machine that bears no token: of an order that still lacks one, else found."""
    for number, order in enumerate(orders):
        fits = order.pool == machine.pool and order.zone in (None, machine.zone)
        if fits and order.missing and order.is_confirmed and not machine.token:
            orders[number] = _with(order, (machine.id,))
            return
    orders.append(
        PlacedOrder(
            token=f"found-{machine.id}",
            pool=machine.pool,
            count=1,
            asked=now,
            zone=machine.zone,
            machines=(machine.id,),
            is_confirmed=True,
        )
    )


def _alive(order: PlacedOrder, there: Mapping[str, Instance], joined: JoinedInstances, now: float) -> list[str]:
    alive = []
    for machine in order.machines:
        known = there.get(machine)
        is_coming = now - order.asked < LAG_S if known is None else known.state != "stopping"
        if is_coming and not joined.has(machine, known.node if known is not None else None):
            alive.append(machine)
    return alive


def _refuse(book: OrderBook, refusals: Sequence[Refusal], config: AutoscalerConfig, now: float) -> OrderBook:
    for refusal in refusals:
        order = book.order(refusal.token) if refusal.token else None
        if refusal.token is None:
            waiting = (
                placed_order
                for placed_order in book.orders
                if placed_order.pool == refusal.pool and placed_order.is_confirmed and placed_order.missing
            )
            order = next(waiting, None)
        if order is not None and order.missing:
            new = config.refusal(order.pool, refusal.kind, now, zone=refusal.zone or order.zone)
            book = failed(book, msgspec.structs.replace(new, message=refusal.message))
            ended = msgspec.structs.replace(order, count=len(order.machines), is_confirmed=True)
            book = book.with_order(ended)
    return book
