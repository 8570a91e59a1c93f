"""Taints nodes whose machines their provider takes back, so that runs on them save and leave (`engines.kubernetes.gate.
departure`). Who finds the taint there, of an earlier turn or of a node termination handler, has nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from longboat.autoscaler.model.plan import ScalingAction
from longboat.autoscaler.model.snapshot import POOL_LABEL
from longboat.autoscaler.model.turn import ActionResult
from longboat.autoscaler.observe.from_objects import Body
from longboat.autoscaler.observe.orders import DELETING
from longboat.autoscaler.providers.provider import Instance, ProviderAnswer
from longboat.core.errors import LongboatError
from longboat.fitting.model.nodes import LEAVING
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Conflict, LeaseExpired, Unreachable
from longboat.kubeapi.kinds import NODE


def taken_back(nodes: Sequence[Body], seen: ProviderAnswer) -> Iterator[tuple[str, Instance]]:
    """Nodes to be tainted, each with its machine. Not those that are deleted by us: they are empty. Pure."""
    ending = {name: each for each in seen.machines if each.state == "stopping" for name in (each.id, each.node) if name}
    for body in nodes:
        meta, spec = body["metadata"], body.get("spec") or {}
        machine = ending.get(spec.get("providerID") or "") or ending.get(meta["name"])
        if machine is None or meta.get("deletionTimestamp") or DELETING in (meta.get("annotations") or {}):
            continue
        if machine.pool == (meta.get("labels") or {}).get(POOL_LABEL) and not _is_tainted(body):
            yield meta["name"], machine


def _is_tainted(body: Body) -> bool:
    return any(taint.get("key") == LEAVING for taint in (body.get("spec") or {}).get("taints") or ())


def taint_leaving(
    client: Client, nodes: Sequence[Body], seen: ProviderAnswer, may_work: Callable[[], bool]
) -> list[ActionResult]:
    results = []
    for name, machine in taken_back(nodes, seen):
        if not may_work():
            break
        reason = machine.message or "its provider takes the machine back"
        action = ScalingAction(kind="cordon", node=name, pool=machine.pool, machine=machine.id, reason=reason)
        try:
            if _taint(client, name):
                results.append(ActionResult(action=action, trouble=""))
        except (Unreachable, LeaseExpired):
            raise
        except Conflict:
            results.append(ActionResult(action=action, trouble="the node has changed in this moment"))
        except LongboatError as error:
            results.append(ActionResult(action=action, trouble=error.message))
    return results


def _taint(client: Client, name: str) -> bool:
    """At the version that is read, since the list of taints is written as a whole; False: nothing is to be done."""
    body = client.find(NODE, name)
    if body is None or _is_tainted(body):
        return False
    taints = [*(body["spec"].get("taints") or ()), {"key": LEAVING, "effect": "NoSchedule"}]
    version = {"resourceVersion": body["metadata"]["resourceVersion"]}
    client.patch(NODE, name, {"metadata": version, "spec": {"taints": taints}})
    return True
