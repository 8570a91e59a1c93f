"""Capacity check: could the nodes of this cluster ever hold this job, and what is the nearest that they could? Pure.

Whether they could is decided as the gate decides it: the run's own pods are placed by `longboat.fitting`, on nodes that
hold nothing but DaemonSets. "Ever" leaves out what passes: other runs, cordons, nodes that are not ready. Only the
words for what does not fit are made here; what is called nearest also leaves room for services that run here already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from longboat.core.jobs import Job, Role, Value
from longboat.core.resources import show_quantity
from longboat.core.words import counted, listing
from longboat.engines.kubernetes.manifests.pod_template import DRA
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.gpu_inventory import is_gpu_resource
from longboat.engines.kubernetes.submit.facts.surroundings import NodeUse
from longboat.engines.refusals import Problem, each_words, gpu_words
from longboat.fitting.eligibility import admits, admits_labels, admits_taints, keys_looked_at
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod
from longboat.fitting.model.quantities import CPU, DISK, MEMORY, PODS
from longboat.fitting.model.selectors import Term
from longboat.fitting.packing import Placement, Shortfall, place

PASSING = "node.kubernetes.io/"
"""Taints of the node controller: not ready, cordoned, under pressure."""

_CARDS = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-1002.present",
)


class NodeRoom(Value, frozen=True):
    """Free capacity of a node: when empty, and with the services that run on it now."""

    name: str
    ever: dict[str, int]
    calm: dict[str, int]

    def has(self, resource: str) -> int:
        return self.ever.get(resource, 0)


def room_of(use: NodeUse) -> NodeRoom:
    return NodeRoom(name=use.node.name, ever=_less(use, use.daemons), calm=_less(use, use.standing))


def _less(use: NodeUse, taken: Iterable[tuple[str, int]]) -> dict[str, int]:
    left = dict(use.node.allocatable)
    for resource, count in taken:
        if resource in left:
            left[resource] = max(0, left[resource] - count)
    return left


def needs_of(role: Role, resource: str | None) -> dict[str, int]:
    """Resource requests of one pod of the role."""
    wanted = role.resources
    needs = {PODS: 1}
    if wanted.cpus:
        needs[CPU] = round(wanted.cpus * 1000)
    if wanted.memory:
        needs[MEMORY] = wanted.memory
    if wanted.disk:
        needs[DISK] = wanted.disk
    if wanted.gpus.count and resource is not None and not resource.startswith(DRA):
        needs[resource] = wanted.gpus.count
    return needs


def capacity_problems(job: Job, capabilities: ClusterFacts, pods: Sequence[Pod]) -> list[Problem]:
    """Why the nodes could never hold the job's pods; empty if they could, or if they are not known."""
    if capabilities.nodes is None:
        return []
    seats = [_Seat(role, capabilities, pods) for role in job.roles]
    problems = [*_gpu_problems(seats, capabilities), *_shm_problems(seats)]
    placed = place(pods, Fleet([ever(use) for use in capabilities.nodes], []))
    if isinstance(placed, Placement):
        return problems
    problems += _pod_problems(seats, capabilities)
    if not problems:
        problems += _gpu_counts([seat for seat in seats if seat.counts_gpus])
        problems += _size_problems(seats, CPU, _cpus, "cpus")
        problems += _size_problems(seats, MEMORY, _memory, "memory")
        problems += _disk_problems(seats)
    return problems or _joint_problems(seats) or [_spread_problem(placed)]


def ever(use: NodeUse) -> NodeShape:
    """The node as it is when it is well and empty: uncordoned, with what DaemonSets leave of it."""
    taints = tuple(taint for taint in use.node.taints if not taint.key.startswith(PASSING))
    left = tuple(_less(use, use.daemons).items())
    return msgspec.structs.replace(use.node, taints=taints, allocatable=left, is_unschedulable=False)


def _spread_problem(placed: Shortfall) -> Problem:
    """Each pod would fit, but not all of them beside each other: anti-affinity, spreading, ports."""
    role = placed.pod.name.rpartition("-")[0]
    reason = f"only {placed.placed} of {placed.wanted} pods of role {role} find a node beside the others"
    hint = f"nearest that fits: `nodes: {placed.placed}` for role {role}; " if placed.placed else ""
    return f"{reason} ({placed.reason})", hint + "see `pod:` in the settings (`longboat config`)"


class _Seat:
    """A role, what one of its pods needs, and the nodes that would take it by their labels and taints."""

    def __init__(self, role: Role, capabilities: ClusterFacts, pods: Sequence[Pod]) -> None:
        self.role = role
        self.gpus = role.resources.gpus
        self.resource = capabilities.gpu_resource(self.gpus)
        self.pod = next(pod for pod in pods if pod.name == f"{role.name}-0")
        self.needs = {PODS: 1, **dict(self.pod.shape.requests)}
        self.rooms = [room_of(use) for use in capabilities.nodes or () if admits(self.pod.shape.placing, ever(use))]

    @property
    def counts_gpus(self) -> bool:
        return bool(self.gpus.count) and self.resource in self.needs

    @property
    def with_gpus(self) -> list[NodeRoom]:
        """Nodes that have as many GPUs as one pod asks for; all, where none has (that is told elsewhere)."""
        if self.resource is None or self.resource not in self.needs:
            return self.rooms
        return [room for room in self.rooms if room.has(self.resource) >= self.gpus.count] or self.rooms


def times(rooms: Sequence[NodeRoom], needs: dict[str, int]) -> int:
    """How many pods of one shape the nodes could hold: exact, as all are alike."""
    return sum(min(room.has(name) // count for name, count in needs.items()) for room in rooms) if needs else 0


def _gpu_problems(seats: list[_Seat], capabilities: ClusterFacts) -> list[Problem]:
    asking = [seat for seat in seats if seat.gpus.count]
    if not asking or any((seat.resource or "").startswith(DRA) for seat in asking):
        return []
    offers = capabilities.offers
    if not offers:
        return [_no_gpus(asking, capabilities)]
    for seat in asking:
        if not any(offer.matches(seat.gpus) for offer in offers):
            kinds = ", ".join(str(offer) for offer in offers)
            reason = f"role {seat.role.name} asks for {gpu_words(seat.gpus)} and the GPUs here are: {kinds}"
            return [(reason, f"drop the GPU's type or memory (`gpus: {seat.gpus.count}`), or name a type from here")]
    return []


def _no_gpus(asking: list[_Seat], capabilities: ClusterFacts) -> Problem:
    wanted = sum(seat.role.pods * seat.gpus.count for seat in asking)
    reason = f"it asks for {counted(wanted, 'GPU')} ({_shape(asking)}) and there are 0: no node offers a GPU resource"
    dark = [use.node.name for use in capabilities.nodes or () if any(label in use.node.labels for label in _CARDS)]
    hint = "nearest that fits: `gpus: 0`"
    if dark:
        hint += f"; {_some(dark)} have GPUs by their labels: is the device plugin running there?"
    return reason, hint


def _gpu_counts(asking: list[_Seat]) -> list[Problem]:
    if not asking:
        return []
    nodes = {room.name: room for seat in asking for room in seat.rooms}
    counts = {
        name: sum(count for key, count in room.ever.items() if is_gpu_resource(key)) for name, room in nodes.items()
    }
    have, most = sum(counts.values()), max(counts.values(), default=0)
    wanted = sum(seat.role.pods * seat.gpus.count for seat in asking)
    alone = [seat for seat in asking if _placed(seat) < seat.role.pods]
    if wanted <= have and not alone:
        return []
    reason = f"it asks for {counted(wanted, 'GPU')} ({_shape(asking)}) and there are {have}"
    if len(counts) > 1:
        reason += f", at most {most} on one node ({max(counts, key=lambda name: counts[name])})"
    if len(asking) > 1 and (not alone or wanted > have):
        return [(reason, f"nearest that fits: at most {counted(have, 'GPU')} over all roles")]
    return [(reason, _nearest_gpus(alone[0] if alone else asking[0]))]


def _placed(seat: _Seat) -> int:
    return times(seat.rooms, {str(seat.resource): seat.gpus.count})


def _nearest_gpus(seat: _Seat) -> str:
    resource, each = str(seat.resource), seat.gpus.count
    most = max((room.has(resource) for room in seat.rooms), default=0)
    if not most:
        return "nearest that fits: `gpus: 0`"
    if each <= most:
        return f"nearest that fits: `nodes: {_placed(seat)}` with `gpus: {each}` each"
    nodes = min(-(-seat.role.pods * each // most), times(seat.rooms, {resource: most}))
    return f"nearest that fits: `nodes: {nodes}` with `gpus: {most}`" + (" each" if nodes > 1 else "")


def _size_problems(seats: list[_Seat], resource: str, show: Callable[[int], str], field: str) -> list[Problem]:
    """CPUs or memory: of one pod, of all pods of a role, of all roles together."""
    asking = [seat for seat in seats if resource in seat.needs]
    if not asking:
        return []
    nodes = sum(seat.role.pods for seat in asking)
    wanted = sum(seat.role.pods * seat.needs[resource] for seat in asking)
    rooms = {room.name: room for seat in asking for room in seat.with_gpus}
    have = sum(room.has(resource) for room in rooms.values())
    tight = [seat for seat in asking if times(seat.with_gpus, {resource: seat.needs[resource]}) < seat.role.pods]
    if not tight and wanted <= have:
        return []
    over = f"over {nodes} nodes" if nodes > 1 else "for its node"
    largest = max(rooms.values(), key=lambda room: room.has(resource), default=None)
    there = (
        f"the largest node, {largest.name}, has {show(largest.has(resource))}" if largest else "no node would take it"
    )
    if tight and largest is not None and all(seat.needs[resource] <= largest.has(resource) for seat in tight):
        there = f"there are {show(have)} in all, {there}"
    each = _most_each(list(rooms.values()), resource, nodes)
    hint = f"nearest that fits: `{field}: {_as_field(resource, each)}` per node" if each else f"drop `{field}:`"
    return [(f"it asks for {show(wanted)} {over} and {there}", hint)]


def _most_each(rooms: list[NodeRoom], resource: str, nodes: int) -> int:
    """The most that each of so many pods could have, with the services that run here now left in peace."""
    free = [room.calm.get(resource, 0) for room in rooms]
    tries = sorted({space // count for space in free for count in range(1, min(nodes, 64) + 1)}, reverse=True)
    return next((each for each in tries if each and sum(space // each for space in free) >= nodes), 0)


def _as_field(resource: str, count: int) -> str:
    return f"{count // 10 / 100:g}" if resource == CPU else f"{count >> 20}Mi"


def _cpus(count: int) -> str:
    return counted(count / 1000, "CPU")


def _memory(count: int) -> str:
    return f"{show_quantity(count)} of memory"


def _disk_problems(seats: list[_Seat]) -> list[Problem]:
    problems: list[Problem] = []
    for seat in seats:
        asked = seat.needs.get(DISK)
        most = max((room.has(DISK) for room in seat.rooms), default=0)
        if asked is None or asked <= most:
            continue
        there = f"the largest node has {show_quantity(most)}" if most else "no node offers ephemeral storage"
        hint = f"nearest that fits: `disk: {most >> 20}Mi`" if most else "leave `disk:` out"
        problems.append((f"role {seat.role.name} asks for {show_quantity(asked)} of disk and {there}", hint))
    return problems


def _shm_problems(seats: list[_Seat]) -> list[Problem]:
    """/dev/shm is memory of the node, and counts within the memory that the role asks for."""
    problems: list[Problem] = []
    for seat in seats:
        asked, memory = seat.role.resources.shm, seat.role.resources.memory
        most = max((room.has(MEMORY) for room in seat.rooms), default=0)
        if asked is not None and most and asked > most:
            reason = (
                f"role {seat.role.name} asks for {show_quantity(asked)} of shm and the largest node has {_memory(most)}"
            )
            problems.append((reason, f"nearest that fits: `shm: {(memory or most) // 2 >> 20}Mi`"))
        elif asked is not None and memory is not None and asked > memory:
            both = f"{show_quantity(asked)} of shm, which is part of its memory, and for {_memory(memory)}"
            reason = f"role {seat.role.name} asks for {both}"
            problems.append((reason, f"nearest that fits: `memory: {format_up(asked)}`, or `shm: {memory >> 20}Mi`"))
    return problems


def format_up(count: int) -> str:
    return f"{-(-count >> 20)}Mi"


def _joint_problems(seats: list[_Seat]) -> list[Problem]:
    """Each resource alone would fit, but not all of them on the same nodes."""
    problems: list[Problem] = []
    for seat in seats:
        if times(seat.rooms, seat.needs) >= seat.role.pods or not seat.rooms:
            continue
        asked = ", ".join(_amount_text(name, count) for name, count in seat.needs.items() if name != PODS)
        count = times(seat.rooms, seat.needs)
        nodes = f"{seat.role.pods} nodes" if seat.role.pods > 1 else "one node"
        fits = counted(count, "time")
        reason = f"role {seat.role.name} asks for {nodes} of {asked} each, and such a node would fit {fits}"
        hint = f"nearest that fits: `nodes: {count}`" if count else f"nearest that fits: {_nearest_shape(seat)}"
        problems.append((reason, hint))
    return problems


def _nearest_shape(seat: _Seat) -> str:
    """The node with most of what is scarcest here."""
    scarce = seat.resource if seat.resource in seat.needs else MEMORY if MEMORY in seat.needs else CPU
    best = max(seat.with_gpus, key=lambda room: (room.has(str(scarce)), room.has(MEMORY), room.has(CPU)))
    fields = {CPU: "cpus", MEMORY: "memory", DISK: "disk"}
    parts = [
        f"`{fields[name]}: {_as_field(name, min(count, best.calm.get(name, 0)))}`"
        for name, count in seat.needs.items()
        if name in fields
    ]
    return " with ".join(parts) + f" (node {best.name})"


def _pod_problems(seats: list[_Seat], capabilities: ClusterFacts) -> list[Problem]:
    """A role that no node would take, however much it asks for."""
    nodes = [ever(use) for use in capabilities.nodes or ()]
    for seat in seats:
        if seat.rooms:
            continue
        placing = seat.pod.shape.placing
        labelled = [node for node in nodes if admits_labels(placing, node)]
        reason = f"no node takes pods of role {seat.role.name}: "
        if not nodes:
            return [(reason + "there is none", "add a node, or an autoscaler")]
        if not labelled:
            asked = _shown_terms([placing.selector, *(placing.affinity or ())])
            return [(f"{reason}none has the labels that they ask for ({asked})", _labels_there(seat.pod, nodes))]
        if not any(admits_taints(placing, node) for node in labelled):
            taints = sorted({str(taint) for node in labelled for taint in node.taints})
            hint = "tolerate one of these taints (`pod: {spec: {tolerations: ...}}` in the settings), or add a node"
            return [(f"{reason}all have taints that they do not tolerate ({', '.join(taints[:3])})", hint)]
        return [(f"{reason}their volumes can be reached from none that would take them", "mount other claims")]
    return []


def _shown_terms(terms: Iterable[Term]) -> str:
    """Requirements as one would write them."""
    shown = [f"{key} {how.lower()} {', '.join(values)}".rstrip() for term in terms for key, how, values in term]
    return "; ".join(shown[:3])


def _labels_there(pod: Pod, nodes: Sequence[NodeShape]) -> str:
    """Values that the nodes have for the labels the pod selects by."""
    parts = []
    for key in keys_looked_at(pod.shape.placing):
        values = sorted({node.labels[key] for node in nodes if key in node.labels})
        parts.append(f"{key}={', '.join(values[:5])}" if values else f"no {key}")
    return f"nodes here have: {'; '.join(parts)}"


def _amount_text(resource: str, count: int) -> str:
    if resource == CPU:
        return _cpus(count)
    return (
        _memory(count)
        if resource == MEMORY
        else f"{count} {resource}"
        if resource != DISK
        else f"{show_quantity(count)} of disk"
    )


def _shape(asking: list[_Seat]) -> str:
    return " + ".join(f"{seat.role.pods} x {each_words(seat.gpus)}" for seat in asking)


def _some(names: Sequence[str]) -> str:
    return ("node " if len(names) == 1 else "nodes ") + listing(names, 3)
