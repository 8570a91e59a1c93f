"""Spending of one place: its runs of a period with their GPU-hours and prices, and the machines of its pools. Reads."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from longboat.core.errors import LongboatError
from longboat.core.runs import RunStatus
from longboat.core.times import parse_time
from longboat.engines.lifecycle.budgets import Period
from longboat.multicluster.ask import NamedEngine, set_price
from longboat.multicluster.costs import CostRow, cost_of, mean_use
from longboat.multicluster.prices import gpu_hour_of

AT_ONCE = 8
"""Runs whose metrics are read at the same time: in a cluster each is a request to a pod, or a file of a storage."""
POOL_LABELS = (
    "longboat.dev/pool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
)


def run_costs(place: NamedEngine, period: Period, *, with_use: bool) -> list[tuple[RunStatus, CostRow]]:
    """The runs with GPUs that were there in the period. Raises where the place does not answer."""
    # The runs first: a place that does not answer would be asked for its prices, too, until nobody waits any more.
    runs = [run for run in place.engine.list() if run.gpus and is_within(run, period)]
    gpu_hour = price_at(place)

    def cost(run: RunStatus) -> tuple[RunStatus, CostRow]:
        # A list has no attempts: what was retried may have held nothing in between.
        full = place.engine.status(run.name) if run.attempt else run
        use = mean_use(place.engine.metrics_of(run.name)) if with_use and run.started is not None else None
        return run, cost_of(full, place.name, period, gpu_hour, use)

    def cost_or_list(run: RunStatus) -> tuple[RunStatus, CostRow]:
        try:
            return cost(run)
        except LongboatError:  # removed meanwhile, or its files cannot be read: what the list tells is told
            return run, cost_of(run, place.name, period, gpu_hour, None)

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="costs") as pool:
        return list(pool.map(cost_or_list, runs))


def is_within(run: RunStatus, period: Period) -> bool:
    return run.created <= period.end and (run.ended is None or run.ended >= period.start)


def price_at(place: NamedEngine) -> float | None:
    """Of one GPU for an hour: as it was set; else the cheapest of the machine types that are there now."""
    from longboat.multicluster.inventory import stocks_at

    price = set_price(place.engine)
    if price is not None:
        return price
    try:
        prices = [stock.price for stock in stocks_at(place) if stock.price is not None]
    except LongboatError:
        return None
    return min(prices, default=None)


def pool_costs(place: NamedEngine, period: Period) -> list[CostRow]:
    """GPU-hours that the machines of now were there for, by pool: what is paid, held or not. Raises as `list` does."""
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.engines.local.engine import LocalEngine
    from longboat.kubeapi.kinds import NODE

    if isinstance(place.engine, LocalEngine):
        from longboat.engines.local.queue.machine import observe_gpus

        hours = len(observe_gpus(place.engine.environment)) * period.hours(period.start, None)
        row = CostRow(name="this machine", on=place.name, paid=hours, cost=hours * place.engine.gpu_hour)
        return [row] if hours else []
    assert isinstance(place.engine, KubernetesEngine)
    nodes = place.engine.client.list(NODE).items
    return pools_of(nodes, place.name, period, place.engine.settings.gpu_hour)


def pools_of(nodes: list[dict[str, Any]], on: str, period: Period, gpu_hour: float | None) -> list[CostRow]:
    """Pure."""
    from longboat.engines.kubernetes.submit.facts.gpu_inventory import is_gpu_resource
    from longboat.engines.kubernetes.submit.outlook import INSTANCE_TYPE
    from longboat.fitting.model.nodes import node_of

    hours: dict[str, float] = {}
    paid: dict[str, float] = {}
    for body in nodes:
        node = node_of(body)
        gpus = sum(count for resource, count in node.allocatable if is_gpu_resource(resource))
        if not gpus:
            continue
        name = pool_of(node.labels)
        span = gpus * period.hours(parse_time(body["metadata"].get("creationTimestamp")) or period.start, None)
        price = gpu_hour if gpu_hour is not None else gpu_hour_of([node.labels.get(INSTANCE_TYPE, "")])
        hours[name] = hours.get(name, 0.0) + span
        if price is not None:
            paid[name] = paid.get(name, 0.0) + span * price
    return [CostRow(name=name, on=on, paid=hours[name], cost=paid.get(name)) for name in sorted(hours)]


def pool_of(labels: Mapping[str, str]) -> str:
    return next((labels[label] for label in POOL_LABELS if labels.get(label)), "(no pool)")
