"""PodDisruptionBudgets: how many of whom may be evicted now, and whether a node's pods are within it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from longboat.autoscaler.model.snapshot import DisruptionBudget, SeenPod
from longboat.fitting.model.pods import Pod
from longboat.fitting.model.selectors import matches_labels, requirement_of

Body = Mapping[str, Any]


def budgets_of(bodies: Iterable[Body], pods: Sequence[Pod]) -> Iterator[DisruptionBudget]:
    """From the API's JSON. What the status does not say is counted from the pods."""
    for body in sorted(
        bodies, key=lambda one: (one["metadata"].get("namespace") or "default", one["metadata"]["name"])
    ):
        meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
        selector = spec.get("selector")
        budget = DisruptionBudget(
            namespace=meta.get("namespace") or "default",
            name=meta["name"],
            selector={str(key): str(value) for key, value in ((selector or {}).get("matchLabels") or {}).items()},
            expressions=tuple(requirement_of(one) for one in (selector or {}).get("matchExpressions") or ()),
            selects_nothing=selector is None,
        )
        allowed = status.get("disruptionsAllowed")
        if allowed is None:
            allowed = _allowed(spec, [pod for pod in pods if covers(budget, pod)])
        yield DisruptionBudget(
            namespace=budget.namespace,
            name=budget.name,
            selector=budget.selector,
            expressions=budget.expressions,
            selects_nothing=budget.selects_nothing,
            allowed=max(int(allowed), 0),
            spares_unready=not _frees_unready(spec, status),
        )


def _frees_unready(spec: Body, status: Body) -> bool:
    """Whether a pod that is not ready may be evicted even if no disruption is allowed."""
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = int(status.get("currentHealthy") or 0), int(status.get("desiredHealthy") or 0)
    return healthy >= desired > 0


def covers(budget: DisruptionBudget, pod: Pod) -> bool:
    if budget.selects_nothing or budget.namespace != pod.namespace:
        return False
    labels = pod.labels
    for key, value in budget.selector.items():
        if labels.get(key) != value:
            return False
    return not budget.expressions or matches_labels(budget.expressions, labels)


def _allowed(spec: Body, pods: Sequence[Pod]) -> int:
    there = [pod for pod in pods if not pod.is_finished]
    healthy = sum(1 for pod in there if pod.node is not None and not pod.is_terminating)
    if spec.get("maxUnavailable") is not None:
        return healthy - (len(there) - _share(spec["maxUnavailable"], len(there)))
    least = spec.get("minAvailable")
    return healthy - _share(1 if least is None else least, len(there))


def _share(amount: Any, total: int) -> int:
    """A count, or a percentage rounded up as Kubernetes does."""
    text = str(amount)
    return -(-int(text[:-1]) * total // 100) if text.endswith("%") else int(text)


class DisruptionsAllowed:
    """What the budgets still allow while one node after the other is chosen."""

    def __init__(self, budgets: Sequence[DisruptionBudget]) -> None:
        budgets = sorted(budgets, key=lambda budget: (budget.namespace, budget.name))
        self._left = [budget.allowed for budget in budgets]
        self._by_namespace: dict[str, list[tuple[int, DisruptionBudget]]] = {}
        for number, budget in enumerate(budgets):
            self._by_namespace.setdefault(budget.namespace, []).append((number, budget))

    def why_not(self, pods: Sequence[SeenPod]) -> str | None:
        """Which budget has no room for the eviction of all these pods."""
        for one in pods:
            several = [budget.name for _, budget in self._over(one.pod)]
            if len(several) > 1:
                return f"pod {one.name} has several PodDisruptionBudgets ({', '.join(several)}): eviction is refused"
        for number, (count, budget) in self._counts(pods).items():
            if count > self._left[number]:
                room = self._left[number]
                what = "allows no disruption" if room <= 0 else f"allows only {room} of {count} disruptions"
                return f"the PodDisruptionBudget {budget.namespace}/{budget.name} {what}"
        return None

    def take(self, pods: Sequence[SeenPod]) -> None:
        for number, (count, _) in self._counts(pods).items():
            self._left[number] -= count

    def _counts(self, pods: Sequence[SeenPod]) -> dict[int, tuple[int, DisruptionBudget]]:
        found: dict[int, tuple[int, DisruptionBudget]] = {}
        for one in pods:
            for number, budget in self._over(one.pod):
                if budget.spares_unready or not one.is_unready:
                    found[number] = (found.get(number, (0, budget))[0] + 1, budget)
        return found

    def _over(self, pod: Pod) -> list[tuple[int, DisruptionBudget]]:
        return [pair for pair in self._by_namespace.get(pod.namespace, ()) if covers(pair[1], pod)]
