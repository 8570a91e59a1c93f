"""Managed instance groups of GKE's node pools as values, out of Google's answers: zones, machines, names. Pure.

A machine is ordered by its name, which has the token of the order in it: a name is given once, so that nothing is made
twice. A node pool has a group in each of its zones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longboat.autoscaler.model.snapshot import POOL_LABEL
from longboat.autoscaler.providers.provider import MachineState
from longboat.core.jobs import Value
from longboat.fitting.model.nodes import Taint

MAX_LABEL, MIN_LABEL = "longboat-max", "longboat-min"
"""Labels of the resources of a node pool: how many machines it may have in all."""
CANCELLED = "longboat-cancelled-"
"""Begins named ports of a group that are none: orders of which nothing is to be made. Groups have no other notes."""
NO_PORT = 65535
MOST_CANCELLED = 16  # the newest; older orders are asked for no more
LONGEST_NAME = 63  # of a machine, as Compute Engine has it
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
_GPU_TAINT = Taint(key="nvidia.com/gpu", effect="NoSchedule", value="present")
_GROUP = re.compile(r".*/zones/([^/]+)/(?:instanceGroupManagers|instanceGroups)/([^/]+)")
_NAME = re.compile(r".+-lb([a-z0-9]+)-([0-9]{1,4})")
MACHINE_ID = re.compile(r"gce://(?P<project>[^/]+)/(?P<zone>[^/]+)/(?P<name>[a-z][-a-z0-9]*)")


class InstanceGroup(Value, frozen=True):
    """The machines of a node pool in one zone."""

    name: str
    zone: str


class NodePool(Value, frozen=True):
    name: str
    pool: str | None
    groups: tuple[InstanceGroup, ...]
    type: str
    spot: bool
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    gpus: int
    pods: int
    min: int
    max: int | None
    flex_start: bool
    """Its machines are made all at once, when there is room, by resize requests."""
    is_managed: bool
    """GKE's own autoscaler changes its size."""


class GroupMachine(Value, frozen=True):
    name: str
    zone: str
    state: MachineState
    token: str | None = None
    code: str = ""
    message: str = ""

    @property
    def path(self) -> str:
        return f"zones/{self.zone}/instances/{self.name}"


def read_pool(body: Mapping[str, Any]) -> NodePool:
    """As GKE describes a node pool."""
    config = body.get("config") or {}
    accelerators: Sequence[Mapping[str, Any]] = config.get("accelerators") or ()
    gpus = sum(int(each.get("acceleratorCount") or 0) for each in accelerators)
    taints = [
        Taint(key=each["key"], effect=_EFFECTS.get(each["effect"], each["effect"]), value=each.get("value") or "")
        for each in config.get("taints") or ()
    ]
    if gpus and all(taint.key != _GPU_TAINT.key for taint in taints):
        taints.append(_GPU_TAINT)  # GKE puts it on every node with GPUs
    spot = bool(config.get("spot") or config.get("preemptible"))
    labels = {"cloud.google.com/gke-nodepool": body["name"], **(config.get("labels") or {})}
    if spot:
        labels["cloud.google.com/gke-spot" if config.get("spot") else "cloud.google.com/gke-preemptible"] = "true"
    if gpus:
        labels["cloud.google.com/gke-accelerator"] = accelerators[0].get("acceleratorType") or ""
    sizes = config.get("resourceLabels") or {}
    urls = body.get("instanceGroupUrls") or ()
    places = [match.groups() for match in map(_GROUP.fullmatch, urls) if match is not None]
    return NodePool(
        name=body["name"],
        pool=labels.get(POOL_LABEL),
        groups=tuple(InstanceGroup(name=name, zone=zone) for zone, name in sorted(places)),
        type=config.get("machineType") or "",
        spot=spot,
        labels=labels,
        taints=tuple(taints),
        gpus=gpus,
        pods=int((body.get("maxPodsConstraint") or {}).get("maxPodsPerNode") or 110),
        min=_number(sizes.get(MIN_LABEL)) or 0,
        max=_number(sizes.get(MAX_LABEL)),
        flex_start=bool(config.get("flexStart")),
        is_managed=bool((body.get("autoscaling") or {}).get("enabled")),
    )


def read_machine(body: Mapping[str, Any], zone: str) -> GroupMachine:
    """As a group lists its machines, those that could not be made yet included."""
    name = body.get("name") or str(body["instance"]).rpartition("/")[2]
    errors = ((body.get("lastAttempt") or {}).get("errors") or {}).get("errors") or ()
    action, status = body.get("currentAction") or "NONE", body.get("instanceStatus") or ""
    error: Mapping[str, Any] = errors[0] if errors and action.startswith(("CREATING", "RECREATING")) else {}
    match = _NAME.fullmatch(name)
    is_taken = status in ("STOPPING", "STOPPED", "TERMINATED", "SUSPENDED", "DEPROVISIONING", "PENDING_STOP")
    state: MachineState = "pending"
    if error:
        state = "failed"
    elif action in ("DELETING", "ABANDONING", "STOPPING") or is_taken:
        state = "stopping"
    elif status == "RUNNING" and action in ("NONE", "VERIFYING", "REFRESHING"):
        state = "running"
    message = " ".join(str(error.get("message") or "").split())[:600]
    if is_taken and action != "DELETING":
        message = "it is stopping: Google takes it back, or somebody did"
    return GroupMachine(
        name=name,
        zone=zone,
        state=state,
        token=match[1] if match else None,
        code=str(error.get("code") or ""),
        message=message,
    )


def machine_names(base: str, token: str, count: int) -> tuple[str, ...]:
    """Names of the machines of an order: the same whenever it is sent."""
    ends = [f"-lb{token}-{number}" for number in range(count)]
    return tuple(base[: LONGEST_NAME - len(end)].rstrip("-") + end for end in ends)


def cancelled_of(ports: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    names = (str(port.get("name") or "") for port in ports)
    return tuple(name.removeprefix(CANCELLED) for name in names if name.startswith(CANCELLED))


def with_cancelled(ports: Iterable[Mapping[str, Any]], tokens: Iterable[str]) -> list[dict[str, Any]]:
    """Named ports with these orders noted; the ports of others stay."""
    before = [dict(port) for port in ports]
    others = [port for port in before if not str(port.get("name") or "").startswith(CANCELLED)]
    known = [token for token in cancelled_of(before) if token not in set(tokens)]
    kept = [*known, *dict.fromkeys(tokens)][-MOST_CANCELLED:]
    return [*others, *({"name": CANCELLED + token, "port": NO_PORT} for token in kept)]


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[0-9]{1,6}", text) else None
