"""Ways for a run that waits at the gate to start sooner: ends of other runs, a smaller request, a higher priority.

Each sentence is an answer of the gate itself (`decide.foresee`) to a cluster in which that had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from longboat.core.runs import Explanation
from longboat.core.times import show_age
from longboat.core.words import listing
from longboat.engines.kubernetes.explain.explain import explain_with_files
from longboat.engines.kubernetes.explain.machine_orders import with_orders
from longboat.engines.kubernetes.gate.candidate import ClusterUsage, GateCandidate, Prospect
from longboat.engines.kubernetes.gate.decide import foresee
from longboat.engines.kubernetes.gate.serve import look_around
from longboat.engines.kubernetes.gate.sizes import largest
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.status import full_status, is_at_gate
from longboat.engines.shared.explanations import fewest, with_openings
from longboat.fitting.model.pods import Pod
from longboat.fitting.model.quantities import is_gpu
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError

MOST_TRIED = 8
"""Runs whose end is tried: each costs as much as a turn of the gate, and more of them nobody reads."""
MOST_NAMES = 4  # in one sentence; `longboat ps` lists all


def explain_run(client: Client, snapshot: RunSnapshot, environment: Mapping[str, str]) -> Explanation:
    """The explanation of a run, for one at the gate with what would let it in."""
    status = with_orders(client, [full_status(client, snapshot)])[0]
    explanation = explain_with_files(client, snapshot, status, environment)
    if snapshot.state.is_final or not is_at_gate(snapshot.record, snapshot.state):
        return explanation
    return with_openings(explanation, openings_of(client, snapshot.record.name))


def openings_of(client: Client, run: str) -> tuple[str, ...]:
    """Of a run that waits; none where nodes may not be listed, or it waits for something else."""
    try:
        candidates, room = look_around(client)
    except ApiError:
        return ()
    me = next((each for each in candidates if (each.namespace, each.run) == (client.namespace, run)), None)
    if me is None or me.let_in is not None or me.held or room is None:
        return ()
    return openings(me, [each for each in candidates if each is not me], room, client.now())


def openings(me: GateCandidate, others: Sequence[GateCandidate], room: ClusterUsage, now: float) -> tuple[str, ...]:
    """Sentences, what helps at once first; none for a run that may start. Pure."""

    def asked(candidate: GateCandidate, among: Sequence[GateCandidate], in_room: ClusterUsage) -> Prospect:
        return foresee(candidate, among, in_room, now)

    me = msgspec.structs.replace(me, not_before=0.0)
    prospect = asked(me, others, room)
    if prospect.starts:
        return ()
    sentences = [*_at_once(me, lambda changed: asked(changed, others, room).starts, others)]
    if prospect.is_possible:
        sentences += _ends(me, others, lambda gone: asked(me, *_without(gone, others, room)).starts)
        if prospect.start is not None:
            sentences.append(
                f"it starts within {show_age(max(prospect.start - now, 0.0))}, when timeouts of others are over"
            )
    return tuple(sentences)


def _at_once(
    me: GateCandidate, starts: Callable[[GateCandidate], bool], others: Sequence[GateCandidate]
) -> Iterator[str]:
    smaller = _smaller(me, starts)
    if smaller:
        yield f"it would start now with {smaller}"
    ahead = [each for each in others if each.let_in is None and not each.held and each.order < me.order]
    urgent = msgspec.structs.replace(me, priority=max((each.priority for each in ahead), default=0) + 1)
    if ahead and starts(urgent):
        yield f"it would start now with a higher priority: longboat priority {me.run} {urgent.priority}"


def _smaller(me: GateCandidate, starts: Callable[[GateCandidate], bool]) -> str:
    """The fewer spares or nodes, else GPUs on each, with which it would start; empty: there are none."""
    if me.elastic is not None or me.is_recovering or len({pod.shape for pod in me.pods}) != 1:
        return ""
    pods = largest(range(1, len(me.pods)), lambda number: starts(_asking(me, me.pods[:number])))
    members = len(me.pods) - me.spares
    if pods and pods >= members:
        return f"--spares {pods - members}"
    if pods:
        return f"--nodes {pods}" + (" --spares 0" if me.spares else "")
    gpus = sum(count for name, count in me.pods[0].shape.requests if is_gpu(name))
    fewer = largest(
        range(1, gpus), lambda number: starts(_asking(me, tuple(_with_gpus(pod, number) for pod in me.pods)))
    )
    return f"--gpus {fewer}" if fewer else ""


def _asking(me: GateCandidate, pods: tuple[Pod, ...]) -> GateCandidate:
    return msgspec.structs.replace(me, pods=pods)


def _with_gpus(pod: Pod, count: int) -> Pod:
    requests = tuple((name, count if is_gpu(name) else asked) for name, asked in pod.shape.requests)
    return msgspec.structs.replace(pod, shape=msgspec.structs.replace(pod.shape, requests=requests))


def _ends(
    me: GateCandidate, others: Sequence[GateCandidate], starts_without: Callable[[Sequence[GateCandidate]], bool]
) -> Iterator[str]:
    """The end of each run that would be enough by itself; else of the fewest, those that end soonest first."""
    inside = sorted((each for each in others if each.let_in is not None), key=_end)
    tried = inside[:MOST_TRIED]
    alone = [each for each in tried if starts_without([each])]
    if alone:
        own = [each for each in alone if each.namespace == me.namespace]
        elsewhere = [each for each in alone if each.namespace != me.namespace][:1]  # whichever of them it is
        yield f"it starts when {listing(_named([*own, *elsewhere], me), MOST_NAMES, separator=' or ')} ends"
        return
    names = _named(fewest(tried, starts_without), me)
    if names:
        yield f"it starts when {', '.join(names[:-1])}{' and ' if names[1:] else ''}{names[-1]} have ended"


def _end(candidate: GateCandidate) -> tuple[float, str]:
    """When it ends at the latest; those of which nobody knows last."""
    if candidate.let_in is None or candidate.lasts_s is None:
        return float("inf"), candidate.full_name
    return candidate.let_in + candidate.lasts_s, candidate.full_name


def _named(runs: Sequence[GateCandidate], me: GateCandidate) -> list[str]:
    """Runs of other namespaces without their names: the reader may have no rights there."""
    names = [each.run for each in runs if each.namespace == me.namespace]
    elsewhere = len(runs) - len(names)
    words = [f"{elsewhere} runs of other namespaces" if elsewhere > 1 else "a run of another namespace"]
    return [*names, *(words if elsewhere else ())]


def _without(
    gone: Sequence[GateCandidate], others: Sequence[GateCandidate], room: ClusterUsage
) -> tuple[list[GateCandidate], ClusterUsage]:
    names = {(each.namespace, each.run) for each in gone}
    left = [each for each in others if (each.namespace, each.run) not in names]
    pods = tuple(pod for pod in room.pods if (pod.namespace, pod.run) not in names)
    return left, msgspec.structs.replace(room, pods=pods)
