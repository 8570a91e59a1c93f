"""GPUs of several places: how many there are, how many are free, what one costs for an hour. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.engines.kubernetes.gate.decide import ClusterUsage
from longboat.engines.kubernetes.submit.facts.gpu_inventory import GpuOffer, offers_of
from longboat.engines.kubernetes.submit.outlook import INSTANCE_TYPE
from longboat.engines.local.queue.machine import Gpu
from longboat.fitting.fleet import Fleet
from longboat.multicluster.ask import NamedEngine
from longboat.multicluster.prices import gpu_hour_of


class GpuStock(Value, frozen=True):
    """GPUs of one kind in one place. `longboat gpus -o json` prints these fields."""

    on: str
    gpu: str
    total: int
    free: int
    largest: int  # free on one node
    nodes: int
    memory: int | None = None  # bytes of each
    price: float | None = None  # of one for an hour; 0: one's own


def stocks_at(place: NamedEngine) -> list[GpuStock]:
    """Raises where the place does not answer, or may not be looked at."""
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.engines.local.engine import LocalEngine

    engine = place.engine
    if isinstance(engine, LocalEngine):
        from longboat.engines.local.queue.machine import observe_gpus
        from longboat.engines.local.queue.slots import free_gpus

        gpus = observe_gpus(engine.environment)
        return machine_stocks(place.name, gpus, free_gpus(engine.home, gpus), engine.gpu_hour)
    assert isinstance(engine, KubernetesEngine)
    from longboat.engines.kubernetes.gate.node_usage import observe_room

    room = observe_room(engine.client, with_claims=False)
    if room is None:
        raise EngineError("its nodes may not be listed", hint="ask for the right to list nodes")
    return cluster_stocks(place.name, room, engine.settings.gpu_hour)


def machine_stocks(on: str, gpus: Sequence[Gpu], free: Sequence[Gpu], gpu_hour: float) -> list[GpuStock]:
    """Pure."""
    stocks = []
    for kind in dict.fromkeys((gpu.type or "GPU", gpu.memory) for gpu in gpus):
        total = sum((gpu.type or "GPU", gpu.memory) == kind for gpu in gpus)
        left = sum((gpu.type or "GPU", gpu.memory) == kind for gpu in free)
        stocks.append(
            GpuStock(on=on, gpu=kind[0], total=total, free=left, largest=left, nodes=1, memory=kind[1], price=gpu_hour)
        )
    return stocks


def cluster_stocks(on: str, room: ClusterUsage, gpu_hour: float | None) -> list[GpuStock]:
    """Pure. What is free on a node that takes no pods now is not free."""
    fleet = Fleet(room.nodes, room.pods)
    types = {node.name: node.labels.get(INSTANCE_TYPE, "") for node in room.nodes}
    cordoned = {node.name for node in room.nodes if node.is_unschedulable}

    def stock(offer: GpuOffer) -> GpuStock:
        free = [
            max(0, fleet.states[name].free.get(offer.resource, 0)) for name, _ in offer.nodes if name not in cordoned
        ]
        return GpuStock(
            on=on,
            gpu=offer.type or offer.resource,
            total=offer.total,
            free=sum(free),
            largest=max(free, default=0),
            nodes=len(offer.nodes),
            memory=offer.memory,
            price=gpu_hour_of(types[name] for name, _ in offer.nodes) if gpu_hour is None else gpu_hour,
        )

    return [stock(offer) for offer in offers_of(room.nodes)]
