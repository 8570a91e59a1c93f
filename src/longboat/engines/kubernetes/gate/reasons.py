"""Reasons why a run waits at the gate: what it lacks, who holds that, who is before it in the queue. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from longboat.core.jobs import Value
from longboat.core.words import counted, listing
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod
from longboat.fitting.model.quantities import is_scarce, scarcity, show_asked, show_number
from longboat.fitting.packing import Placement, Shortfall, place

_MOST_NAMES = 4  # in one sentence; `longboat ps` lists all


Wants = tuple[tuple[str, tuple[str, ...]], ...]
"""What a run waits for: (resource, names of the nodes where it could be)."""


class RunsAhead(Value, frozen=True):
    """Runs that wait before another, for something it asks for too."""

    count: int = 0
    names: tuple[str, ...] = ()  # the first of them, with their namespaces
    resources: frozenset[str] = frozenset()


class ResourceStock(Value, frozen=True):
    """One resource on some nodes. Amounts as in `fitting.model.quantities`."""

    free: int
    total: int
    largest: int  # the most that is free on one node
    holders: tuple[str, ...]  # runs that have most of it; where there are none and it is a device, pods
    holder_count: int


class WaitReasons:
    """Builds the reasons of all waiting runs from the fleet as it is after this round of admission."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._waiters: dict[Wants, list[tuple[int, str]]] = {}
        self._count = 0
        self._stocks: dict[tuple[tuple[str, ...], str], ResourceStock] = {}
        self._meets: dict[tuple[int, int], bool] = {}
        self._places: dict[object, Placement | Shortfall] = {}

    def before(self, pods: Sequence[Pod]) -> RunsAhead:
        """Earlier runs that wait for something these pods ask for, on nodes where these could be."""
        asked = [(shape, self.fleet.eligible(shape.placing)) for shape in {pod.shape for pod in pods}]
        count = 0
        first: list[tuple[int, str]] = []
        resources: set[str] = set()
        for wants, runs in self._waiters.items():
            shared = {
                resource
                for resource, names in wants
                for shape, able in asked
                if shape.asks(resource) and self._meet(names, able)
            }
            if shared:
                count += len(runs)
                first += runs[:_MOST_NAMES]
                resources |= shared
        names = tuple(run for _, run in sorted(first)[:_MOST_NAMES])
        return RunsAhead(count=count, names=names, resources=frozenset(resources))

    def _meet(self, names: tuple[str, ...], other: tuple[str, ...]) -> bool:
        if names is other:
            return bool(names)
        key = (id(names), id(other))
        if key not in self._meets:
            self._meets[key] = not set(names).isdisjoint(other)
        return self._meets[key]

    def note(self, run: str, pods: Sequence[Pod], before: RunsAhead) -> Shortfall | None:
        """The run waits: for what those before it wait for, or for what it lacks itself (told by the Shortfall)."""
        shortfall = None if before.count else place(pods, self.fleet)
        lacking = (
            before.resources if not isinstance(shortfall, Shortfall) else {lack.resource for lack in shortfall.lacks}
        )
        self._count += 1
        wants = tuple((resource, self._nodes(pods, resource)) for resource in sorted(lacking, key=scarcity))
        self._waiters.setdefault(wants, []).append((self._count, run))
        return shortfall if isinstance(shortfall, Shortfall) else None

    def words(self, namespace: str, pods: Sequence[Pod], before: RunsAhead, shortfall: Shortfall | None) -> str:
        """The reason: what the run lacks, which runs hold it, which are before it. Called once all runs are judged."""
        lacking = set(before.resources) | {
            resource_shortfall.resource for resource_shortfall in (shortfall.lacks if shortfall else ())
        }
        for resource in {resource for pod in pods for resource, _ in pod.shape.requests}:
            stock = self.stock(self._nodes(pods, resource), resource)
            if stock.free < sum(pod.shape.asks(resource) for pod in pods):
                lacking.add(resource)
        ordered = sorted(lacking, key=scarcity)
        if ordered:
            text = "waits for " + " and ".join(self._shortage_text(pods, resource) for resource in ordered)
        else:
            text = f"no node takes all of it now: {shortfall.reason}" if shortfall else "waits"
        holders = self._holders(pods, ordered, namespace)
        text += f"; held by {holders}" if holders else ""
        return text + _before(namespace, before)

    def never(self, pods: Sequence[Pod]) -> str | None:
        """Why these nodes, as empty as they ever get, cannot hold the run; None if they can."""
        shortfall = self._place(pods)
        if isinstance(shortfall, Placement):
            return None
        if not shortfall.lacks:
            return f"no node takes it: {shortfall.reason}"
        parts = [self._shortage_text(pods, lack.resource, is_empty=True) for lack in shortfall.lacks]
        return f"waits for {' and '.join(parts)} with nothing else on these nodes"

    def _place(self, pods: Sequence[Pod]) -> Placement | Shortfall:
        """`fitting.packing.place`, once for gangs that are alike."""
        shapes = Counter(pod.shape for pod in pods)
        if not self.fleet.topology.is_quiet or any(shape.near or shape.apart or shape.spread for shape in shapes):
            return place(pods, self.fleet)
        key = frozenset(shapes.items())
        answer = self._places.get(key)
        if answer is None:
            answer = self._places[key] = place(pods, self.fleet)
        return answer

    def _shortage_text(self, pods: Sequence[Pod], resource: str, *, is_empty: bool = False) -> str:
        """`is_empty`: of nodes as they would be without what may go from them."""
        each = [pod.shape.asks(resource) for pod in pods if pod.shape.asks(resource)]
        stock = self.stock(self._nodes(pods, resource), resource)
        text = show_asked(resource, sum(each))
        if len(each) > 1 and len(set(each)) == 1:
            text += f" ({len(each)} x {show_number(resource, each[0])})"
        free, total = show_number(resource, stock.free), show_number(resource, stock.total)
        text += f": {free} of {total} would be free" if is_empty else f": {free} free of {total}"
        if stock.free >= sum(each) and stock.largest < max(each):
            text += f", at most {show_number(resource, stock.largest)} on one node"
        return text

    def _nodes(self, pods: Sequence[Pod], resource: str) -> tuple[str, ...]:
        """Nodes on which pods that request the resource could run."""
        choices = {id(names): names for names in self._choices(pods, resource)}
        if len(choices) == 1:
            return next(iter(choices.values()))
        return tuple(sorted({name for names in choices.values() for name in names}))

    def _choices(self, pods: Sequence[Pod], resource: str) -> list[tuple[str, ...]]:
        shapes = {pod.shape for pod in pods if pod.shape.asks(resource)}
        return [self.fleet.eligible(shape.placing) for shape in shapes]

    def stock(self, names: tuple[str, ...], resource: str) -> ResourceStock:
        key = (names, resource)
        resource_stock = self._stocks.get(key)
        if resource_stock is None:
            states = [self.fleet.states[name] for name in names]
            free = [max(0, state.free.get(resource, 0)) for state in states]
            held: dict[str, int] = {}
            for state in states:
                for pod in state.pods.values():
                    count = pod.shape.asks(resource)
                    if count:
                        holder = _holder(pod)
                        held[holder] = held.get(holder, 0) + count
            runs = {name: count for name, count in held.items() if name.startswith("run ")}
            holders = runs or (held if is_scarce(resource) else {})
            resource_stock = self._stocks[key] = ResourceStock(
                free=sum(free),
                total=sum(state.shape.has(resource) for state in states),
                largest=max(free, default=0),
                holders=tuple(sorted(holders, key=lambda name: (-holders[name], name))[:_MOST_NAMES]),
                holder_count=len(holders),
            )
        return resource_stock

    def _holders(self, pods: Sequence[Pod], lacking: list[str], namespace: str) -> str:
        stocks = [self.stock(self._nodes(pods, resource), resource) for resource in lacking]
        names = list(dict.fromkeys(name for stock in stocks for name in stock.holders))[:_MOST_NAMES]
        more = max((stock.holder_count for stock in stocks), default=0) - len(names)
        shown = list(dict.fromkeys(_shown(name, namespace) for name in names))
        return listing(shown, len(shown), count=len(shown) + more)


def passing(namespace: str, passes: Sequence[str]) -> str:
    """Why a run starts before others that wait for longer; empty: it passes nobody."""
    if not passes:
        return ""
    names, others = _named(namespace, passes)
    them = "it" if len(passes) == 1 else "them"
    return f"may start before {listing(names + others, _MOST_NAMES)}: it will not delay {them}"


def delaying(namespace: str, delayed: str, before: RunsAhead) -> str:
    names, others = _named(namespace, [delayed])
    return f"waits: would delay {(names + others)[0]}{_before(namespace, before)}"


def _named(namespace: str, runs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Runs of the namespace by name, and words for those of others."""
    names = [run.removeprefix(f"{namespace}/") for run in runs if run.startswith(f"{namespace}/")]
    others = len(runs) - len(names)
    anonymous = "a run of another namespace" if others == 1 else "runs of other namespaces"
    return names, [anonymous] if others else []


def _before(namespace: str, before: RunsAhead) -> str:
    if not before.count:
        return ""
    mine, _ = _named(namespace, before.names)
    names = ", ".join(mine) + (", ..." if before.count > len(mine) and mine else "")
    return f"; {counted(before.count, 'run')} before it" + (f" ({names})" if names else "")


def _holder(pod: Pod) -> str:
    return f"run {pod.namespace}/{pod.run}" if pod.run else f"pod {pod.namespace}/{pod.name}"


def _shown(holder: str, namespace: str) -> str:
    """Holders of the same namespace by name; others without, since the reader may have no rights there."""
    kind, _, name = holder.partition(" ")
    if name.partition("/")[0] != namespace:
        return f"{kind}s of other namespaces"
    return name.removeprefix(f"{namespace}/") if kind == "run" else f"the pod {name}"
