"""Backfill with reservations: which waiting gangs may start now without delaying those that wait before them. Pure.

Gangs are judged in the order of the queue. One that does not fit now gets a reservation: the nodes where it will start,
and when, as far as ends and arrivals of nodes are known. Of these nodes it keeps what nobody gives back until then; a
later gang starts if it fits on the rest, or if it ends in time. Where no end is known, the first of the queue keeps
what is free on the nodes where least has to end for it: that only shrinks, so that it starts once that has ended.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import msgspec

from longboat.core.jobs import Value
from longboat.fitting.earliest_start import COMING, UNKNOWN, EarliestStart, Key, Release
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import NodeConstraints, Pod, PodShape
from longboat.fitting.model.quantities import is_scarce
from longboat.fitting.packing import Placement, place, take

MOST_RESERVED = 16
"""Gangs that get a reservation, the first of the queue: each costs a search. Those behind them move up."""
LONGEST_PASSED_S = 6 * 3600.0
"""The first of the queue is passed for so long. The scheduler chooses the nodes in the end, and pods of others ask
nobody: both may undo a reservation again and again. After that nobody starts who asks for the same."""

_KEPT = "\0kept"
"""Namespace of what is kept for a reservation: no pod of a cluster is called so."""

Shapes = frozenset[tuple[PodShape, int]]


class QueuedGang(Value, frozen=True):
    """Pods that start together, in their place of the queue."""

    name: str
    pods: tuple[Pod, ...]
    lasts_s: float | None = None  # at most, from now on; None: nobody knows
    waited_s: float = 0.0


class UpcomingNode(Value, frozen=True):
    """A machine that has been ordered and is no node yet."""

    shape: NodeShape
    ready: float


class BackfillVerdict(Value, frozen=True):
    starts: bool
    is_possible: bool = True  # on these nodes and those that come, with nothing else on them
    passes: tuple[str, ...] = ()  # earlier gangs that it starts before, and does not delay
    delays: str | None = None  # it would fit, and would delay this one


class Reservation(Value, frozen=True):
    """When and where a gang will start, and what is kept for it until then."""

    name: str
    start: float  # UNKNOWN where that depends on ends that nobody knows
    pods: tuple[Pod, ...]
    nodes: tuple[str, ...]
    kept: tuple[tuple[Pod, str], ...]  # stand-ins for what is kept, each with its node


class Backfill:
    """One decision over a fleet, which is filled up while gangs start. Ends with `close` or `undo`."""

    def __init__(
        self,
        fleet: Fleet,
        now: float,
        *,
        end_of: Callable[[Pod], float | None] = lambda _: None,
        upcoming: Sequence[UpcomingNode] = (),
    ) -> None:
        self.fleet, self.now, self.upcoming = fleet, now, upcoming
        self.reservations: list[Reservation] = []
        self._end_of = end_of
        self._ends: dict[Key, float] = {}  # of those who start now
        self._started: list[Pod] = []
        self._queue: list[QueuedGang] = []  # that wait and have no reservation yet
        self._failed: dict[Shapes, float] = {}  # alike gangs that last at least so long do not fit
        self._strict: QueuedGang | None = None
        self._shadow: Fleet | None = None
        self._planned: set[Key] = set()  # pods of reservations, which the shadow has
        self._plans: dict[str, list[tuple[float, dict[str, int]]]] = {}  # node -> starts, and what they need there
        self._keeping: dict[tuple[str, str], int] = {}  # node and resource -> kept for all reservations together
        self._known: dict[tuple[str, Shapes], bool] = {}
        self._known_releases: list[Release] | None = None
        self._without_end: set[Shapes | None] = set()  # alike gangs that fit after no known end

    @functools.cached_property
    def roomy(self) -> Fleet:
        """All nodes, those that come too, with what is there for good and nothing else."""
        states = self.fleet.states
        coming = [node.shape for node in self.upcoming if node.shape.name not in states]
        lasting = [
            msgspec.structs.replace(pod, node=state.name)
            for state in states.values()
            for pod in state.pods.values()
            if pod.lasts
        ]
        return Fleet([*(state.shape for state in states.values()), *coming], lasting)

    def judge(self, gang: QueuedGang) -> BackfillVerdict:
        """Whether the gang starts now. Call it in the order of the queue."""
        lasts = UNKNOWN if gang.lasts_s is None else gang.lasts_s
        key = self._alike(gang.pods)
        if key is not None and key in self._failed and self._failed[key] <= lasts:
            return self._waits(gang, key, lasts)
        if self._strict is not None and self._meet(gang, self._strict):
            return self._waits(gang, None, lasts, self._strict.name)
        if not self._start(gang, lasts):
            return self._waits(gang, key, lasts)
        if self._queue:
            # Only who could start makes it worth while to find out what those before it need.
            self._withdraw(gang)
            self._reserve_all()
            if not self._start(gang, lasts):
                return self._waits(gang, key, lasts)
        self._note_start(gang, lasts)
        return BackfillVerdict(
            starts=True,
            passes=tuple(reservation.name for reservation in self.reservations if self._meets(gang, reservation)),
        )

    def could_start(self, gang: QueuedGang) -> bool:
        """Whether it would start if it were judged now. It is not queued, and nothing is taken."""
        if self._strict is not None and self._meet(gang, self._strict):
            return False
        lasts = UNKNOWN if gang.lasts_s is None else gang.lasts_s
        if not self._start(gang, lasts):
            return False
        self._withdraw(gang)
        if not self._queue:
            return True
        self._reserve_all()
        if not self._start(gang, lasts):
            return False
        self._withdraw(gang)
        return True

    def start(self, gang: QueuedGang) -> None:
        """Have a gang start that could."""
        lasts = UNKNOWN if gang.lasts_s is None else gang.lasts_s
        if self._start(gang, lasts):
            self._note_start(gang, lasts)

    def competes(self, gang: QueuedGang, waiting: Sequence[QueuedGang]) -> bool:
        """Whether somebody who waits without a reservation asks for something that this gang asks for."""
        self._reserve_all()
        reserved = {reservation.name for reservation in self.reservations}
        return any(other.name not in reserved and self._meet(gang, other) for other in waiting)

    def start_of(self, name: str) -> float | None:
        """When a gang that waits will start, as far as ends are known; None: they are not, or too many are ahead."""
        self._reserve_all()
        reserved = next((reservation for reservation in self.reservations if reservation.name == name), None)
        return None if reserved is None or reserved.start == UNKNOWN else reserved.start

    def close(self) -> None:
        """End the round: places kept for reservations are free in the fleet again."""
        for reservation in self.reservations:
            self._drop(reservation)

    def undo(self) -> None:
        """The fleet as it was before."""
        self.close()
        for pod in self._started:
            self.fleet.remove(pod)

    def _waits(self, gang: QueuedGang, key: Shapes | None, lasts: float, delays: str | None = None) -> BackfillVerdict:
        if key is not None:
            self._failed[key] = min(lasts, self._failed.get(key, UNKNOWN))
        if not self._fits("possible", gang.pods, self.roomy):
            return BackfillVerdict(starts=False, is_possible=False)
        if not self._queue and not self.reservations and gang.waited_s >= LONGEST_PASSED_S:
            self._strict = self._strict or gang
        self._queue.append(gang)
        return BackfillVerdict(starts=False, delays=delays or self._delayed(gang))

    def _delayed(self, gang: QueuedGang) -> str | None:
        """The reserved gang that a start would delay; None if there is none, or the gang would not fit anyway."""
        keeping = [reservation for reservation in self.reservations if reservation.kept]
        if not keeping:
            return None
        for reservation in keeping:
            self._drop(reservation)
        fits = self._fits("free", gang.pods, self.fleet)
        for reservation in keeping:
            self._keep(reservation)
        return (
            next((reservation.name for reservation in keeping if self._meets(gang, reservation)), None)
            if fits
            else None
        )

    def _fits(self, question: str, pods: Sequence[Pod], fleet: Fleet) -> bool:
        """Asked once for gangs that are alike. Room only shrinks: a yes that is given again may be old."""
        key = self._alike(pods)
        if key is None:
            return isinstance(place(pods, fleet, explain=False), Placement)
        if (question, key) not in self._known:
            self._known[(question, key)] = isinstance(place(pods, fleet, explain=False), Placement)
        return self._known[(question, key)]

    def _start(self, gang: QueuedGang, lasts: float) -> bool:
        """Put its pods there, if they fit beside what is kept for those who start before it has ended."""
        over = [
            reservation
            for reservation in self.reservations
            if reservation.start != UNKNOWN and self.now + lasts <= reservation.start
        ]
        for reservation in over:
            self._drop(reservation)
        answer = take(gang.pods, self.fleet, explain=False)
        for reservation in over:
            self._keep(reservation)
        return isinstance(answer, Placement)

    def _withdraw(self, gang: QueuedGang) -> None:
        for pod in gang.pods:
            self.fleet.remove(pod)

    def _note_start(self, gang: QueuedGang, lasts: float) -> None:
        self._started += gang.pods
        for pod in gang.pods:
            if lasts != UNKNOWN:
                self._ends[(pod.namespace, pod.name)] = self.now + lasts
                self._known_releases = None
                self._without_end.clear()
            state = self.fleet.where(pod)
            if self._shadow is not None and state is not None:
                self._shadow.add(pod, self._shadow.states[state.name])

    def _alike(self, pods: Sequence[Pod]) -> Shapes | None:
        """Equal for gangs that fare alike; None where neighbours matter."""
        shapes: dict[PodShape, int] = {}
        for pod in pods:
            shapes[pod.shape] = shapes.get(pod.shape, 0) + 1
        if not self.fleet.topology.is_quiet or any(shape.near or shape.apart or shape.spread for shape in shapes):
            return None
        return frozenset(shapes.items())

    # Reservations

    def _reserve_all(self) -> None:
        for gang in self._queue[: max(MOST_RESERVED - len(self.reservations), 0)]:
            reservation = self._reserve(gang)
            if reservation is not None:
                self.reservations.append(reservation)
                self._keep(reservation)
        self._queue.clear()

    def _keep(self, reservation: Reservation) -> None:
        for pod, node in reservation.kept:
            self.fleet.add(pod, self.fleet.states[node])

    def _drop(self, reservation: Reservation) -> None:
        for pod, _ in reservation.kept:
            self.fleet.remove(pod)

    def _reserve(self, gang: QueuedGang) -> Reservation | None:
        """A reservation at the earliest start; None: that depends on pods without a known end.

        Of such gangs the first has one all the same. If all had, they would keep idle what none of them can use yet.
        """
        shadow = self._shadow or self._make_shadow()
        search = EarliestStart(gang.pods, shadow)
        key = self._alike(gang.pods)
        start = None if key in self._without_end else search.earliest(self._releases(shadow))
        if start is None:
            self._without_end |= {key} - {None}
            if any(reservation.start == UNKNOWN for reservation in self.reservations):
                return None
            start = search.cheapest(self._planned)
        if start is None:
            return None
        kept = tuple(self._kept(gang.name, search, start))
        for pod, node in zip(gang.pods, search.nodes):
            shadow.add(pod, shadow.states[node])
            self._planned.add((pod.namespace, pod.name))
        return Reservation(name=gang.name, start=max(start, self.now), pods=gang.pods, nodes=search.nodes, kept=kept)

    def _make_shadow(self) -> Fleet:
        """The fleet as it will be: with the nodes that come, each full until it is ready."""
        shadow = self._shadow = self.fleet.copy()
        coming = [upcoming_node for upcoming_node in self.upcoming if upcoming_node.shape.name not in shadow.states]
        if coming:
            shadow.add_nodes(node.shape for node in coming)
        for machine in coming:
            pod = Pod(name=machine.shape.name, namespace=COMING, shape=PodShape(requests=machine.shape.allocatable))
            shadow.add(pod, shadow.states[machine.shape.name])
            self._ends[(COMING, machine.shape.name)] = machine.ready
        return shadow

    def _releases(self, shadow: Fleet) -> list[Release]:
        """What ends, and what comes, when that is known; the earliest first."""
        if self._known_releases is not None:
            return self._known_releases
        moments: dict[float, list[Pod]] = {}
        for state in shadow.states.values():
            for key, pod in state.pods.items():
                end = self._ends.get(key) or self._end_of(pod)
                if end is not None and key not in self._planned:
                    moments.setdefault(max(end, self.now), []).append(pod)
        self._known_releases = sorted(moments.items(), key=lambda pair: pair[0])
        return self._known_releases

    def _kept(self, name: str, search: EarliestStart, start: float) -> Iterable[tuple[Pod, str]]:
        """Capacity kept for it: up to a known start, what is not freed by then; else all it needs of what is free."""
        needs: dict[str, dict[str, int]] = {}
        for pod, node in zip(search.pods, search.nodes):
            mine = needs.setdefault(node, {})
            for resource, count in pod.shape.requests:
                mine[resource] = mine.get(resource, 0) + count
        for node, mine in needs.items():
            if node not in self.fleet.states:
                continue
            freed, free = search.freed.get(node, {}), self.fleet.states[node].free
            left = {
                resource: self._owed(node, (resource, count), start, freed.get(resource, 0))
                if start != UNKNOWN
                else min(count, free.get(resource, 0))
                for resource, count in mine.items()
            }
            if start != UNKNOWN:
                self._plans.setdefault(node, []).append((start, mine))
            requests = tuple((resource, count) for resource, count in sorted(left.items()) if count > 0)
            for resource, count in requests:
                self._keeping[node, resource] = self._keeping.get((node, resource), 0) + count
            if requests:
                yield Pod(name=f"{name}/{node}", namespace=_KEPT, shape=PodShape(requests=requests)), node

    def _owed(self, node: str, asked: tuple[str, int], start: float, freed: int) -> int:
        """What more is to be kept on a node: all who start there by one moment share what is given back until then."""
        resource, most = asked[0], 0
        plans = self._plans.get(node, ())
        for moment in {start, *(at for at, _ in plans if at > start)}:
            wanted = asked[1] + sum(needs.get(resource, 0) for at, needs in plans if at <= moment)
            given = freed if moment == start else self._given_back(node, resource, moment)
            most = max(most, wanted - given)
        return max(0, most - self._keeping.get((node, resource), 0))

    def _given_back(self, node: str, resource: str, moment: float) -> int:
        shadow = self._shadow
        assert shadow is not None
        gone = [pod for at, pods in self._releases(shadow) if at <= moment for pod in pods if pod.namespace != COMING]
        return sum(pod.shape.asks(resource) for pod in gone if shadow.where(pod) is shadow.states[node])

    # gangs that compete for the same resource

    def _meets(self, gang: QueuedGang, reservation: Reservation) -> bool:
        return self._meet(gang, QueuedGang(name=reservation.name, pods=reservation.pods))

    def _meet(self, gang: QueuedGang, other: QueuedGang) -> bool:
        """Whether both ask for one resource on some node. Of who asks for devices only these count."""
        mine, theirs = self._wants(gang.pods), self._wants(other.pods)
        return any(
            _overlap(self.fleet.eligible(placing), self.fleet.eligible(second))
            for placing, resources in mine.items()
            for second, others in theirs.items()
            if resources & others
        )

    def _wants(self, pods: Sequence[Pod]) -> dict[NodeConstraints, set[str]]:
        wants: dict[NodeConstraints, set[str]] = {}
        for shape in {pod.shape for pod in pods}:
            asked = {name for name, count in shape.requests if count}
            devices = {name for name in asked if is_scarce(name)}
            wants.setdefault(shape.placing, set()).update(devices or asked)
        return wants


def _overlap(names: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return bool(names) if names is others else not set(names).isdisjoint(others)
