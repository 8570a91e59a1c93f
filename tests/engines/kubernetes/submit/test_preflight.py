"""What can never run is refused, with the reason and the nearest that fits: as data, and in clusters that forbid it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import Refused
from longboat.engines.kubernetes.records import GpuDriver, Storage
from longboat.engines.kubernetes.settings import ClusterSettings
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.gpu_inventory import LEGACY_GPU
from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS, Permission
from longboat.engines.kubernetes.submit.facts.surroundings import (
    Autoscaler,
    ClaimView,
    Limit,
    LocalQueue,
    NodeUse,
    Quota,
    StorageClass,
)
from longboat.engines.kubernetes.submit.preflight import check
from longboat.fitting.model.nodes import NodeShape, Taint
from longboat.fitting.model.quantities import amounts
from tests.engines.kubernetes.broken import job_of

KUEUE = {"kueue.x-k8s.io": ("v1beta2",)}


def node(
    name: str = "a", *, labels: dict[str, str] | None = None, taints: tuple[Taint, ...] = (), **more: Any
) -> NodeUse:
    has = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110", **more.pop("has", {})}
    return NodeUse(node=NodeShape(name=name, labels=labels or {}, taints=taints, allocatable=amounts(has)), **more)


def gpu_node(name: str, count: int, product: str = "NVIDIA-A100", **more: Any) -> NodeUse:
    return node(name, labels={"nvidia.com/gpu.product": product}, has={"nvidia.com/gpu": str(count)}, **more)


def seen(*nodes: NodeUse, **more: Any) -> ClusterFacts:
    fields: dict[str, Any] = {"namespace": "team", "version": "v1.36.4", "nodes": nodes or (node(),), **more}
    return ClusterFacts(**fields)


PENDING = {"claims": {"data": ClaimView(name="data", phase="Pending", storage_class="fast")}}
SHARED = {"volumes": {"/data": {"claim": "data"}}}


def claims(*modes: str, phase: str = "Bound") -> dict[str, Any]:
    return {"claims": {"data": ClaimView(name="data", phase=phase, access_modes=modes)}}


REFUSED: list[tuple[str, dict[str, Any], ClusterFacts, list[str], list[str]]] = [
    ("gpus of one node", {"gpus": 3}, seen(gpu_node("a", 2)), ["3 GPUs", "there are 2"], ["`gpus: 2`"]),
    ("gpus of all", {"nodes": 3, "gpus": 1}, seen(gpu_node("a", 2)), ["3 GPUs", "there are 2"], ["`nodes: 2`"]),
    (
        "gpus by their old name",
        {"gpus": 3},
        seen(node("a", has={LEGACY_GPU: "2"}), node("b", has={LEGACY_GPU: "2"})),
        ["3 GPUs", "2"],
        ["`gpus: 2`"],
    ),
    (
        "gpus over several nodes",
        {"nodes": 2, "gpus": 8},
        seen(*(gpu_node(name, 4) for name in "abcd")),
        ["16 GPUs (2 x 8) and there are 16, at most 4 on one node"],
        ["`nodes: 4` with `gpus: 4` each"],
    ),
    (
        "gpus in pieces",
        {"nodes": 3, "gpus": 5},
        seen(gpu_node("a", 8), gpu_node("b", 8)),
        ["15 GPUs (3 x 5)", "there are 16"],
        ["`nodes: 2` with `gpus: 5` each"],
    ),
    ("gpus of roles", {"roles": {"a": {"gpus": 2}, "b": {"gpus": 1}}}, seen(gpu_node("a", 2)), ["3 GPUs"], ["2 GPUs"]),
    ("no gpus of a type", {"gpus": "H100:8"}, seen(), ["8 GPUs (1 x 8 H100) and there are 0"], ["`gpus: 0`"]),
    ("no gpus", {"gpus": 1}, seen(), ["1 GPU", "there are 0"], ["`gpus: 0`"]),
    (
        "gpus without plugin",
        {"gpus": 1},
        seen(node("dark", labels={"nvidia.com/gpu.present": "true"})),
        ["no node offers"],
        ["dark", "device plugin"],
    ),
    ("gpu type", {"gpus": "H100:1"}, seen(gpu_node("a", 2)), ["H100", "NVIDIA-A100 (2 on 1 node)"], ["type"]),
    ("cpus", {"cpus": 4096}, seen(node("a"), node("b")), ["4096 CPUs", "largest node"], ["`cpus: 16` per node"]),
    ("cpus of all", {"nodes": 4, "cpus": 2000}, seen(), ["8000 CPUs over 4 nodes"], ["`cpus: 4` per node"]),
    (
        "cpus together",
        {"nodes": 3, "cpus": 10},
        seen(node("a"), node("b")),
        ["30 CPUs", "32 CPUs in all"],
        ["`cpus: 8`"],
    ),
    (
        "cpus beside services",
        {"cpus": 17},
        seen(node("a", standing=amounts({"cpu": "500m"}))),
        ["has 16 CPUs"],
        ["`cpus: 15.5`"],
    ),
    ("cpus beside daemons", {"cpus": 16}, seen(node("a", daemons=amounts({"cpu": "1"}))), ["has 15 CPUs"], ["cpus: "]),
    ("memory", {"memory": "900Ti"}, seen(), ["900Ti of memory", "64Gi"], ["`memory: 65536Mi`"]),
    ("shm", {"shm": "900Ti"}, seen(), ["shm"], ["`shm: "]),
    ("shm over memory", {"shm": "8Gi", "memory": "4Gi"}, seen(), ["part of its memory"], ["`memory: 8192Mi`"]),
    ("disk", {"disk": "1Pi"}, seen(), ["disk", "100Gi"], ["`disk: 102400Mi`"]),
    (
        "everything",
        {"gpus": 3, "cpus": 4096, "memory": "900Ti"},
        seen(gpu_node("a", 2)),
        ["GPUs", "CPUs", "memory"],
        ["gpus: 2", "cpus:", "memory:"],
    ),
    (
        "gpus and memory on different nodes",
        {"gpus": 1, "memory": "60Gi"},
        seen(gpu_node("a", 1, daemons=amounts({"memory": "10Gi"})), node("big")),
        ["60Gi of memory", "largest node, a, has 54Gi"],
        ["`memory: "],
    ),
    (
        "cpus and memory on different nodes",
        {"cpus": 12, "memory": "60Gi"},
        seen(node("a", has={"cpu": "4"}), node("b", has={"memory": "8Gi"})),
        ["one node of 12 CPUs, 60Gi of memory each", "0 times"],
        ["`cpus: 4`", "`memory: 61440Mi`", "node a"],
    ),
    (
        "taints",
        {},
        seen(node("a", taints=(Taint(key="team", effect="NoSchedule"),))),
        ["no node takes pods"],
        ["taints"],
    ),
    (
        "quota",
        {"nodes": 3, "cpus": 2},
        seen(quotas=(Quota(name="q", hard={"requests.cpu": "4"}),)),
        ["quota q allows 4 CPUs"],
        ["`nodes: 2`"],
    ),
    (
        "quota of gpus",
        {"gpus": 4},
        seen(gpu_node("a", 8), quotas=(Quota(name="q", hard={"requests.nvidia.com/gpu": "2"}),)),
        ["quota q allows 2 nvidia.com/gpu"],
        ["`gpus: 2`"],
    ),
    ("quota of pods", {"nodes": 3}, seen(quotas=(Quota(name="q", hard={"pods": "2"}),)), ["2 pods"], ["`nodes: 2`"]),
    (
        "quota unstated",
        {},
        seen(quotas=(Quota(name="q", hard={"limits.memory": "4Gi"}),)),
        ["state their memory"],
        ["`memory: "],
    ),
    (
        "quota of limits",
        {"cpus": 1},
        seen(quotas=(Quota(name="q", hard={"limits.cpu": "4"}),)),
        ["CPU limit"],
        ["LimitRange"],
    ),
    (
        "limit",
        {"cpus": 4},
        seen(limits=(Limit(name="l", type="Container", max={"cpu": "2"}),)),
        ["LimitRange l", "2 CPUs"],
        ["`cpus: 2`"],
    ),
    (
        "least",
        {"memory": "1Mi"},
        seen(limits=(Limit(name="l", type="Pod", min={"memory": "1Gi"}),)),
        ["at least 1Gi"],
        ["`memory: 1Gi`"],
    ),
    ("no kueue", {"queue": "research"}, seen(), ["queue: research", "Kueue"], ["queue=null"]),
    (
        "queue",
        {"queue": "x"},
        seen(groups=KUEUE, queues=(LocalQueue(name="research"),)),
        ["no queue x"],
        ["queues here: research"],
    ),
    (
        "host folder",
        {"volumes": {"/d": {"path": "/srv"}}},
        seen(security="baseline"),
        ["volumes./d", "baseline"],
        ["claim"],
    ),
    ("nfs", {"volumes": {"/d": {"nfs": "s:/x"}}}, seen(security="restricted"), ["volumes./d", "NFS"], ["claim"]),
    ("no claim", SHARED, seen(claims={}), ["no claim data"], ["volume create data"]),
    (
        "one machine",
        {**SHARED, "nodes": 2},
        seen(node("a"), node("b"), **claims("ReadWriteOnce")),
        ["one machine only"],
        ["`nodes: 1`", "ReadWriteMany"],
    ),
    ("one pod", {**SHARED, "nodes": 2}, seen(**claims("ReadWriteOncePod")), ["one pod only"], ["`nodes: 1`"]),
    ("read only", SHARED, seen(**claims("ReadOnlyMany")), ["only be read"], ["read_only"]),
    ("lost claim", SHARED, seen(**claims("ReadWriteMany", phase="Lost")), ["lost its volume"], []),
    (
        "no class",
        SHARED,
        seen(**PENDING, storage_classes=(StorageClass(name="slow"),)),
        ["no storage class fast"],
        ["slow"],
    ),
    (
        "no default class",
        SHARED,
        seen(**claims("ReadWriteMany", phase="Pending"), storage_classes=()),
        ["no default"],
        ["none"],
    ),
    (
        "a file of ours",
        {"data": [{"url": "file:///d.tar", "to": "d"}]},
        seen(),
        ["file:///d.tar", "no pod can see"],
        ["https"],
    ),
    (
        "the hash of many objects",
        {"data": [{"url": "s3://bucket/d/", "to": "d", "sha256": "0" * 64}]},
        seen(),
        ["s3://bucket/d/", "sha256"],
        ["one object"],
    ),
    ("no namespace", {}, seen(has_namespace=False), ["no namespace team"], ["create namespace team"]),
    ("dying namespace", {}, seen(is_terminating=True), ["being deleted"], ["--namespace"]),
    ("no account", {}, seen(has_service_account=False), ["service account default"], ["create serviceaccount default"]),
    (
        "permission",
        {},
        seen(denied=(PERMISSIONS[0],)),
        ["may not: get configmaps (the record of a run)"],
        ["get on configmaps"],
    ),
    (
        "an autoscaler that cannot grow",
        {"gpus": 9},
        seen(gpu_node("a", 8), autoscaler=Autoscaler(name="cluster-autoscaler", can_grow=False)),
        ["9 GPUs"],
        ["`gpus: 8`"],
    ),
]


@pytest.mark.parametrize(
    ("fields", "cluster_seen", "reason", "hint"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused_with_reason_and_nearest(
    tmp_path: Path, fields: dict[str, Any], cluster_seen: ClusterFacts, reason: list[str], hint: list[str]
) -> None:
    with pytest.raises(Refused) as refusal:
        check(job_of(tmp_path, **fields), cluster_seen)
    for words in reason:
        assert words in refusal.value.message
    for words in hint:
        assert words in (refusal.value.hint or "")


ALLOWED: list[tuple[str, dict[str, Any], ClusterFacts, list[str]]] = [
    ("nothing asked", {}, seen(), []),
    ("all gpus", {"nodes": 2, "gpus": 8}, seen(gpu_node("a", 8), gpu_node("b", 8)), []),
    (
        "tainted gpus",
        {"gpus": 1},
        seen(gpu_node("a", 1, taints=(Taint(key="nvidia.com/gpu", effect="NoSchedule"),))),
        [],
    ),
    (
        "a cordoned node may come back",
        {"cpus": 16},
        seen(node("a", taints=(Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),))),
        [],
    ),
    ("nodes not known", {"gpus": 64, "cpus": 4096}, seen(nodes=None), ["may not be listed"]),
    (
        "an autoscaler may help",
        {"gpus": 9},
        seen(gpu_node("a", 8), autoscaler=Autoscaler(name="karpenter")),
        ["9 GPUs", "karpenter may add"],
    ),
    (
        "quota used by others",
        {"cpus": 2},
        seen(quotas=(Quota(name="q", hard={"requests.cpu": "4"}, used={"requests.cpu": "3"}),)),
        ["1 CPU left", "waits"],
    ),
    ("quota of others", {"cpus": 9}, seen(quotas=(Quota(name="q", hard={"cpu": "4"}, scopes=("Terminating",)),)), []),
    ("best effort quota", {"cpus": 9}, seen(quotas=(Quota(name="q", hard={"pods": "0"}, scopes=("BestEffort",)),)), []),
    (
        "a limit fills in",
        {},
        seen(
            quotas=(Quota(name="q", hard={"limits.cpu": "4"}),),
            limits=(Limit(name="l", type="Container", default={"cpu": "1"}),),
        ),
        [],
    ),
    ("one machine for all", {**SHARED, "nodes": 2}, seen(**claims("ReadWriteOnce")), []),
    ("many", {**SHARED, "nodes": 2}, seen(node("a"), node("b"), **claims("ReadWriteMany")), []),
    (
        "read by all",
        {"volumes": {"/data": {"claim": "data", "read_only": True}}, "nodes": 2},
        seen(node("a"), node("b"), **claims("ReadOnlyMany")),
        [],
    ),
    (
        "a file of a volume",
        {**SHARED, "data": [{"url": "file:///data/d.tar", "to": "d"}]},
        seen(**claims("ReadWriteMany")),
        [],
    ),
    ("claims not known", SHARED, seen(claims=None), []),
    (
        "not bound yet",
        SHARED,
        seen(**PENDING, storage_classes=(StorageClass(name="fast"),)),
        ["claim data is not bound yet"],
    ),
    (
        "sleeping queue",
        {"queue": "q"},
        seen(groups=KUEUE, queues=(LocalQueue(name="q", is_active=False, message="stopped"),)),
        ["queue q lets nothing in now: stopped"],
    ),
    ("queues not known", {"queue": "q"}, seen(groups=KUEUE, queues=None), []),
    (
        "a comfort",
        {},
        seen(denied=(Permission(verb="create", resource="pods", subresource="exec", why="`exec`", need="optional"),)),
        ["create pods/exec"],
    ),
    ("old", {}, seen(version="v1.27.3"), ["v1.27.3 is older"]),
    ("restricted", {"volumes": {"/d": {"claim": "data"}}}, seen(security="restricted"), []),
    ("a secret that is gone", {}, seen(lost_secrets=("registry",)), ["image pull secret registry does not exist"]),
    ("dra", {"gpus": 1}, seen(device_classes=("gpu.nvidia.com",)), []),
    ("old name of GPUs", {"gpus": 2}, seen(node("a", has={LEGACY_GPU: "4"})), ["are asked for as alpha.kubernetes.io"]),
    ("old name, none asked for", {}, seen(node("a", has={LEGACY_GPU: "4"})), []),
]


@pytest.mark.parametrize(
    ("fields", "cluster_seen", "words"), [row[1:] for row in ALLOWED], ids=[row[0] for row in ALLOWED]
)
def test_allowed_with_notices(
    tmp_path: Path, fields: dict[str, Any], cluster_seen: ClusterFacts, words: list[str]
) -> None:
    notices = check(job_of(tmp_path, **fields), cluster_seen)
    assert bool(notices) == bool(words), notices
    for word in words:
        assert word in "; ".join(notices)


def test_the_settings_of_the_context_count_too(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    with pytest.raises(Refused, match="no claim keep"):
        check(job, seen(claims={}), ClusterSettings(storage=Storage(claim="keep")))
    with pytest.raises(Refused, match="storage of this context: .*restricted allows no NFS"):
        check(job, seen(security="restricted"), ClusterSettings(storage=Storage(nfs="server:/export")))
    with pytest.raises(Refused, match="no queue research"):
        check(job, seen(groups=KUEUE, queues=()), ClusterSettings(queue="research"))


def test_the_driver_of_the_nodes_needs_a_namespace_that_allows_its_mount(tmp_path: Path) -> None:
    settings = ClusterSettings(gpu_driver=GpuDriver(folder="/usr/lib/nvidia-384"))
    gpus = job_of(tmp_path, gpus=1)
    with pytest.raises(Refused, match="mounts /usr/lib/nvidia-384 .* level baseline does not allow"):
        check(gpus, seen(gpu_node("a", 1), security="baseline"), settings)
    check(gpus, seen(gpu_node("a", 1), security="privileged"), settings)
    check(job_of(tmp_path), seen(gpu_node("a", 1), security="baseline"), settings)
