"""Taints nodes whose machines their provider takes back, so that runs on them save and leave (`engines.kubernetes.gate.
departure`). Who finds the taint there, of an earlier turn or of a node termination handler, has nothing to do.

A machine that was stopped may run again, under the name and the Node object that it had: then the taint goes after a
while, if it is ours. Anybody may set one, and takes his own away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from longboat.autoscaler.model.plan import ActionKind, ScalingAction
from longboat.autoscaler.model.snapshot import POOL_LABEL
from longboat.autoscaler.model.turn import ActionResult
from longboat.autoscaler.observe.from_objects import Body
from longboat.autoscaler.observe.instances import NodeInstances
from longboat.autoscaler.observe.orders import DELETING
from longboat.autoscaler.providers.provider import Instance, ProviderAnswer
from longboat.core.errors import LongboatError
from longboat.fitting.model.nodes import LEAVING
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Conflict, LeaseExpired, Unreachable
from longboat.kubeapi.kinds import NODE

STAYS_S = 300.0
"""A machine that runs so long after its notice is not taken back: AWS waits for two minutes, the others for less. Right
before its end a cloud may say for a moment that it runs, and no more that it goes.
"""
ATTEMPTS = 3  # of a change that meets a kubelet's report: a notice may be of half a minute, a turn of ten seconds
_OURS = re.compile(r"[0-9]{9,11}")
"""The value of our taint: when it was set, in seconds since 1970."""


class TaintChange(NamedTuple):
    """A node that is to get the taint, or to lose it."""

    node: str
    machine: Instance
    is_leaving: bool


def our_taint(now: float) -> dict[str, str]:
    return {"key": LEAVING, "value": str(int(now)), "effect": "NoSchedule"}


def taint_changes(nodes: Sequence[Body], seen: ProviderAnswer, now: float) -> Iterator[TaintChange]:
    """Not of nodes that are deleted by us: they are empty. Pure."""
    instances = NodeInstances(seen)
    for body in nodes:
        meta, machine = body["metadata"], instances.of(body)
        name = meta["name"]
        if machine is None or meta.get("deletionTimestamp") or DELETING in (meta.get("annotations") or {}):
            continue
        if machine.pool != (meta.get("labels") or {}).get(POOL_LABEL):
            continue
        if machine.state == "stopping" and not _is_tainted(body):
            yield TaintChange(name, machine, is_leaving=True)
        elif machine.state == "running" and _is_outlived(body, now):
            yield TaintChange(name, machine, is_leaving=False)


def _is_tainted(body: Body) -> bool:
    return any(taint.get("key") == LEAVING for taint in (body.get("spec") or {}).get("taints") or ())


def _is_outlived(body: Body, now: float) -> bool:
    """Whether we set the taint so long ago."""
    taints = (body.get("spec") or {}).get("taints") or ()
    return any(_is_ours(taint) and now - int(taint["value"]) > STAYS_S for taint in taints)


def _is_ours(taint: Body) -> bool:
    return taint.get("key") == LEAVING and _OURS.fullmatch(taint.get("value") or "") is not None


def taint_leaving(
    client: Client, nodes: Sequence[Body], seen: ProviderAnswer, may_work: Callable[[], bool]
) -> list[ActionResult]:
    results = []
    for change in taint_changes(nodes, seen, client.now()):
        if not may_work():
            break
        action = _action(change)
        try:
            if _changed(client, change):
                results.append(ActionResult(action=action, trouble=""))
        except (Unreachable, LeaseExpired):
            raise
        except Conflict:
            results.append(ActionResult(action=action, trouble="the node has changed in this moment"))
        except LongboatError as error:
            results.append(ActionResult(action=action, trouble=error.message))
    return results


def _action(change: TaintChange) -> ScalingAction:
    machine = change.machine
    reason = "its machine runs again"
    if change.is_leaving:
        reason = machine.message or "its provider takes the machine back"
    kind: ActionKind = "taint" if change.is_leaving else "untaint"
    return ScalingAction(kind=kind, node=change.node, pool=machine.pool, machine=machine.id, reason=reason)


def _changed(client: Client, change: TaintChange) -> bool:
    """Whether the node has the taint, or has lost it, by this; read and decided anew after a conflict."""
    for _ in range(ATTEMPTS - 1):
        with suppress(Conflict):
            return _change_taint(client, change)
    return _change_taint(client, change)


def _change_taint(client: Client, change: TaintChange) -> bool:
    """At the version that is read, since the list of taints is written as a whole; False: nothing is to be done."""
    body = client.find(NODE, change.node)
    if body is None or NodeInstances(ProviderAnswer(machines=(change.machine,))).of(body) is None:
        return False  # gone, or made anew for another machine
    if _is_tainted(body) if change.is_leaving else not _is_outlived(body, client.now()):
        return False
    taints = [taint for taint in body["spec"].get("taints") or () if not _is_ours(taint)]
    version = {"resourceVersion": body["metadata"]["resourceVersion"]}
    spec = {"taints": [*taints, our_taint(client.now())] if change.is_leaving else taints}
    client.patch(NODE, change.node, {"metadata": version, "spec": spec})
    return True
