"""Evictions that PodDisruptionBudgets still allow while nodes are chosen to be drained. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from longboat.autoscaler.model.snapshot import DisruptionBudget, SeenPod
from longboat.fitting.model.pods import Pod


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
        for pod in pods:
            several = [budget.name for _, budget in self._over(pod.pod)]
            if len(several) > 1:
                return f"pod {pod.name} has several PodDisruptionBudgets ({', '.join(several)}): eviction is refused"
        for number, (count, budget) in self._counts(pods).items():
            if count > self._left[number]:
                room = self._left[number]
                text = "allows no disruption" if room <= 0 else f"allows only {room} of {count} disruptions"
                return f"the PodDisruptionBudget {budget.namespace}/{budget.name} {text}"
        return None

    def take(self, pods: Sequence[SeenPod]) -> None:
        for number, (count, _) in self._counts(pods).items():
            self._left[number] -= count

    def _counts(self, pods: Sequence[SeenPod]) -> dict[int, tuple[int, DisruptionBudget]]:
        counts: dict[int, tuple[int, DisruptionBudget]] = {}
        for pod in pods:
            for number, budget in self._over(pod.pod):
                if budget.spares_unready or not pod.is_unready:
                    counts[number] = (counts.get(number, (0, budget))[0] + 1, budget)
        return counts

    def _over(self, pod: Pod) -> list[tuple[int, DisruptionBudget]]:
        return [pair for pair in self._by_namespace.get(pod.namespace, ()) if pair[1].covers(pod)]
