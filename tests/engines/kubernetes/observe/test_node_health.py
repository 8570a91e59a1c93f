"""What speaks against nodes that a run's pods are on, and what follows."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.cli.commands.runs.status import numbers
from longboat.core.jobs import Retries
from longboat.core.runs import RunStatus
from longboat.engines.kubernetes.explain.explain import node_facts
from longboat.engines.kubernetes.observe.node_health import node_troubles
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot, pod_view
from longboat.engines.kubernetes.observe.termination import PodEnd
from longboat.engines.kubernetes.records import State
from tests.engines.kubernetes.manifest_samples import job, record, role

SINCE = "2026-01-01T00:00:00Z"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": SINCE}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}


def pod(index: int, host: str, **fields: Any) -> PodView:
    base = {"name": f"p{index}", "uid": "u", "role": "worker", "attempt": 0, "is_running": True, "is_started": True}
    return PodView(**base, index=index, host=host, tolerations=(TOLERATION,), **fields)


def seen(*pods: PodView, retries: int = 1) -> RunSnapshot:
    what = job(role(nodes=2, procs=4), retries=Retries(count=retries))
    return RunSnapshot(record=record(what=what), state=State(phase="running"), uid="u", version="1", pods=pods)


def node(*conditions: dict[str, Any], taints: tuple[dict[str, Any], ...] = (), **fields: Any) -> dict[str, Any]:
    spec = {"taints": [GPU_TAINT, *taints], **{key: fields.pop(key) for key in ("unschedulable",) if key in fields}}
    return {"metadata": {"name": "n1", **fields}, "spec": spec, "status": {"conditions": [READY, *conditions]}}


def said(kind: str, status: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "message": message, "lastTransitionTime": SINCE}


THEN = "then the next attempt"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (node(), []),
        (node(said("MemoryPressure", "False"), said("AcceleratedHardwareReady", "True")), []),
        (node(said("EtcdIsVoter", "True"), said("NetworkUnavailable", "False")), []),
        (None, [("is gone from the cluster", THEN)]),
        (
            node(said("DiskPressure", "True")),
            [("is short of disk", f"its kubelet may evict pods of the run, {THEN}")],
        ),
        (
            node(said("XidCriticalError", "True", "Xid 79: GPU has\nfallen off the bus")),
            [("reports XidCriticalError: Xid 79: GPU has fallen off the bus", f"if a rank fails of it, {THEN}")],
        ),
        (
            node(said("AcceleratedHardwareReady", "False", "NvidiaXID13Error")),
            [("reports AcceleratedHardwareReady: NvidiaXID13Error", f"if a rank fails of it, {THEN}")],
        ),
        (node(said("NetworkUnavailable", "True")), [("reports NetworkUnavailable", f"if a rank fails of it, {THEN}")]),
        (
            node(taints=({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},)),
            [("is about to go (taint karpenter.sh/disrupted)", f"its pods end with it, {THEN}")],
        ),
        (
            node(taints=({"key": "repair", "value": "rma", "effect": "NoExecute"},)),
            [("has the taint repair=rma:NoExecute", f"pods of the run are evicted, {THEN}")],
        ),
        (
            node(taints=({"key": "repair", "effect": "NoSchedule"},)),
            [("has the taint repair:NoSchedule", "the run goes on; its next attempt goes elsewhere")],
        ),
        (node(taints=({"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"},)), []),
        (node(deletionTimestamp=SINCE), [("is being deleted", f"its pods end with it, {THEN}")]),
    ],
)
def test_node_conditions_become_troubles(body: dict[str, Any] | None, expected: list[tuple[str, str]]) -> None:
    found = node_troubles(seen(pod(0, "n0"), pod(1, "n1")), {"n1": body})
    assert [(trouble.what, trouble.follows) for trouble in found] == expected
    assert all(
        (trouble.node, trouble.members, trouble.ranks) == ("n1", ("worker-1",), (4, 5, 6, 7)) for trouble in found
    )


GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (None, ("reports 1 of 8 nvidia.com/gpu unhealthy", f"if a rank fails of it, {THEN}")),
        ((), ("reports 1 of 8 nvidia.com/gpu unhealthy", "not those of the run: it goes on")),
        (("GPU-3",), ("reports 1 of 8 nvidia.com/gpu unhealthy, of the run: GPU-3", f"if a rank fails of it, {THEN}")),
    ],
)
def test_gpus_that_their_plugin_has_given_up(devices: tuple[str, ...] | None, expected: tuple[str, str]) -> None:
    """Capacity counts all devices, allocatable the healthy ones; of memory and the like the difference is kept back."""
    body = node()
    body["status"] |= {"capacity": {GPU: "8", "memory": "64Gi"}, "allocatable": {GPU: "7", "memory": "60Gi"}}
    (trouble,) = node_troubles(seen(pod(1, "n1", unhealthy_devices=devices)), {"n1": body})
    assert (trouble.what, trouble.follows) == expected
    body["status"]["allocatable"][GPU] = "8"
    assert node_troubles(seen(pod(1, "n1", unhealthy_devices=devices)), {"n1": body}) == ()


def test_the_health_of_a_pod_s_own_devices() -> None:
    """As a kubelet from 1.36 on tells it; devices whose health is not known are no trouble."""
    devices = [
        {"resourceID": "GPU-3", "health": "Unhealthy"},
        {"resourceID": "GPU-4", "health": "Healthy"},
        {"resourceID": "GPU-5", "health": "Unknown"},
    ]
    status = {"name": "main", "allocatedResourcesStatus": [{"name": GPU, "resources": devices}]}
    assert pod_view({"status": {"containerStatuses": [status]}}).unhealthy_devices == ("GPU-3",)
    assert pod_view({"status": {"containerStatuses": [{"name": "main"}]}}).unhealthy_devices is None


def test_a_silent_node_and_one_that_says_no() -> None:
    silent = {"status": {"conditions": [said("Ready", "Unknown", "Kubelet stopped posting node status.")]}}
    broken = {"status": {"conditions": [said("Ready", "False", "runtime is down")]}}
    first, second = node_troubles(seen(pod(0, "n0"), pod(1, "n1"), retries=0), {"n0": silent, "n1": broken})
    fails = "then the run fails: it has no retries left"
    assert (first.what, first.since, first.follows) == ("is silent", 1767225600.0, f"given up after 60 s, {fails}")
    assert second.what == "is not ready: runtime is down"


def test_a_cordon_and_since_when() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": SINCE}
    (trouble,) = node_troubles(seen(pod(0, "n1"), pod(1, "n1")), {"n1": node(taints=(taint,), unschedulable=True)})
    assert (trouble.what, trouble.since) == ("is cordoned", 1767225600.0)
    assert trouble.ranks == tuple(range(8)) and "a drain waits for its end" in trouble.follows
    status = RunStatus(
        name="a", uid="0", job="a", phase="running", engine="kubernetes", created=0, nodes=2, gpus=0,
        node_troubles=(trouble,),
    )  # fmt: skip
    (fact,) = node_facts(status, 1767225600.0 + 600)
    assert fact.startswith("node n1 (worker-0, worker-1) is cordoned, for 10m: the run goes on")


def test_nodes_of_pods_that_have_ended_concern_nobody() -> None:
    assert node_troubles(seen(pod(0, "n1", end=PodEnd(exit_code=0))), {"n1": None}) == ()


def test_ranks_in_few_characters() -> None:
    assert [numbers(ranks) for ranks in ((), (3,), (0, 1, 2, 7, 9, 8))] == ["", "3", "0-2, 7-9"]
