"""PodDisruptionBudgets from the API's JSON: whom they select and how many of those may be evicted now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from longboat.autoscaler.model.snapshot import DisruptionBudget
from longboat.autoscaler.observe.odd_objects import OddObjects
from longboat.fitting.model.pods import Pod
from longboat.fitting.model.selectors import requirement_of

Body = Mapping[str, Any]


def budgets_of(bodies: Iterable[Body], pods: Sequence[Pod], odd: OddObjects) -> Iterator[DisruptionBudget]:
    """From the API's JSON. What the status does not say is counted from the pods."""
    for body in sorted(bodies, key=lambda budget: (_namespace(budget), budget["metadata"]["name"])):
        try:
            yield _budget(body, pods)
        except Exception as bad:  # its selector cannot be read: no eviction is allowed in its namespace
            odd.note(body, bad)
            yield DisruptionBudget(namespace=_namespace(body), name=body["metadata"]["name"])


def _namespace(body: Body) -> str:
    return body["metadata"].get("namespace") or "default"


def _budget(body: Body, pods: Sequence[Pod]) -> DisruptionBudget:
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    selector = spec.get("selector")
    budget = DisruptionBudget(
        namespace=meta.get("namespace") or "default",
        name=meta["name"],
        selector={str(key): str(value) for key, value in ((selector or {}).get("matchLabels") or {}).items()},
        expressions=tuple(requirement_of(expression) for expression in (selector or {}).get("matchExpressions") or ()),
        selects_nothing=selector is None,
    )
    allowed = status.get("disruptionsAllowed")
    if allowed is None:
        allowed = _allowed(spec, [pod for pod in pods if budget.covers(pod)])
    return msgspec.structs.replace(
        budget, allowed=max(int(allowed), 0), spares_unready=not _frees_unready(spec, status)
    )


def _frees_unready(spec: Body, status: Body) -> bool:
    """Whether a pod that is not ready may be evicted even if no disruption is allowed."""
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = int(status.get("currentHealthy") or 0), int(status.get("desiredHealthy") or 0)
    return healthy >= desired > 0


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
