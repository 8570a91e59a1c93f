"""Tables: a few words about a cluster in, what the autoscaler plans out. The words become plain Kubernetes objects."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from longboat.autoscaler.decide.decide import decide
from longboat.autoscaler.model.plan import ScalingAction, ScalingPlan
from longboat.autoscaler.model.pools_file import read_pools
from longboat.autoscaler.model.snapshot import AutoscalerSettings, ClusterSnapshot, Order, Pool, ProviderFailure
from longboat.autoscaler.observe.from_objects import by_kind, snapshot_of
from longboat.core.resources import parse_duration
from longboat.core.times import format_time, parse_time

FOLDER = Path(__file__).parent / "tables"
NOW_TEXT = "2026-11-15T12:00:00Z"
NOW = parse_time(NOW_TEXT) or 0.0
GPU = "nvidia.com/gpu"
GPU_TAINT = {"key": GPU, "effect": "NoSchedule"}

LIBRARY: dict[str, dict[str, Any]] = {
    "a100": {
        "max": 10,
        "price": 32,
        "machine": {"cpus": 96, "memory": "1000Gi", "gpus": 8, "labels": {"gpu": "a100"}, "taints": [GPU_TAINT]},
    },
    "spot": {
        "max": 10,
        "price": 10,
        "spot": True,
        "machine": {"cpus": 96, "memory": "1000Gi", "gpus": 8, "labels": {"gpu": "a100"}, "taints": [GPU_TAINT]},
    },
    "t4": {
        "max": 10,
        "price": 5,
        "machine": {"cpus": 8, "memory": "60Gi", "gpus": 1, "labels": {"gpu": "t4"}, "taints": [GPU_TAINT]},
    },
    "open": {"max": 10, "price": 20, "machine": {"cpus": 64, "memory": "500Gi", "gpus": 4}},  # GPUs, no taint
    "cpu": {"max": 10, "price": 1, "machine": {"cpus": 16, "memory": "64Gi"}},
    "big": {"max": 10, "price": 3, "machine": {"cpus": 64, "memory": "256Gi"}},
}


def merged(base: Any, over: Any) -> Any:
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{key: merged(base.get(key), value) for key, value in over.items()}}
    return copy.deepcopy(over)


def pool_file(table: dict[str, Any]) -> dict[str, Any]:
    wanted = table.get("pools", {"a100": {}})
    wanted = {name: {} for name in wanted} if isinstance(wanted, list) else wanted
    pools = []
    for name, own in wanted.items():
        words = dict(own or {})
        pools.append({"name": name, **merged(LIBRARY.get(words.pop("like", name), {}), words)})
    return {"pools": pools, "settings": table.get("settings", {})}


def ago(text: str) -> str:
    return format_time(NOW - parse_duration(str(text)))


def node(name: str, words: dict[str, Any], pools: dict[str, dict[str, Any]]) -> dict[str, Any]:
    pool = words.get("pool", "a100" if "a100" in pools else next(iter(pools), None))
    machine = pools[pool]["machine"] if pool in pools else {"cpus": 16, "memory": "64Gi"}
    has = {"cpu": str(machine["cpus"]), "memory": machine["memory"], "pods": "110", "ephemeral-storage": "1Ti"}
    gpus = words.get("gpus", machine.get("gpus", 0))
    if gpus:
        has[machine.get("gpu_resource", GPU)] = str(gpus)
    has.update({key: str(value) for key, value in words.get("has", {}).items()})
    age = words.get("age", "3d")
    labels = {"kubernetes.io/hostname": name, **machine.get("labels", {}), **words.get("labels", {})}
    if pool and pool != "none":
        labels["longboat.dev/pool"] = pool
    if "zone" in words:
        labels["topology.kubernetes.io/zone"] = words["zone"]
    annotations = dict(words.get("annotations", {}))
    for word, mark in (("idle", "idle-since"), ("cordoned", "cordoned-at"), ("underused", "underused-since")):
        if word in words and words[word] != "person":
            annotations[f"longboat.dev/{mark}"] = ago(words[word])
    ready = words.get("ready", True)
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": ago(words.get("since", age)),
    }
    spec: dict[str, Any] = {"taints": [*machine.get("taints", []), *words.get("taints", [])]}
    if "cordoned" in words:
        spec["unschedulable"] = True
        spec["taints"].append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    if not ready:
        spec["taints"].append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    meta = {"name": name, "labels": labels, "annotations": annotations, "creationTimestamp": ago(age)}
    status = {"allocatable": has, "capacity": has, "conditions": [condition]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status}


def pod_spec(words: dict[str, Any]) -> dict[str, Any]:
    asks = {"cpu": str(words.get("cpus", 1)), "memory": words.get("memory", "1Gi")}
    if words.get("gpus"):
        asks[words.get("resource", GPU)] = str(words["gpus"])
    asks.update({key: str(value) for key, value in words.get("asks", {}).items()})
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": asks}}]}
    tolerates = words.get("tolerates", "gpu" if words.get("gpus") else None)
    if tolerates == "gpu":
        spec["tolerations"] = [{"key": GPU, "operator": "Exists"}]
    elif tolerates:
        spec["tolerations"] = tolerates
    if "priority" in words:
        spec["priority"] = words["priority"]
    if "selector" in words:
        spec["nodeSelector"] = words["selector"]
    if "claim" in words:
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": words["claim"]}]
    return merged(spec, words.get("spec", {}))


def pod(name: str, words: dict[str, Any]) -> dict[str, Any]:
    spec = pod_spec(words)
    phase = "Pending"
    if "on" in words:
        spec["nodeName"], phase = words["on"], "Running"
    status: dict[str, Any] = {"phase": words.get("phase", phase), **words.get("status", {})}
    if "on" in words:
        status["startTime"] = ago(words.get("age", "1h"))
        status["conditions"] = [{"type": "Ready", "status": "True" if words.get("ready", True) else "False"}]
    if "ended" in words:
        status["phase"] = words.get("phase", "Succeeded")
        status["containerStatuses"] = [{"name": "main", "state": {"terminated": {"finishedAt": ago(words["ended"])}}}]
    meta: dict[str, Any] = {
        "name": name.rpartition("/")[2],
        "namespace": name.rpartition("/")[0] or "default",
        "labels": {key: str(value) for key, value in words.get("labels", {}).items()},
        "annotations": {key: str(value) for key, value in words.get("annotations", {}).items()},
        "creationTimestamp": ago(words.get("age", "1m" if "on" not in words else "1h")),
    }
    owner = words.get("owner")
    if owner:
        kind, _, owner_name = owner.partition("/")
        meta["ownerReferences"] = [{"kind": kind, "name": owner_name or "x", "controller": True}]
        if kind == "Job":
            meta["labels"]["batch.kubernetes.io/job-name"] = owner_name or "x"
    if words.get("ending"):
        meta["deletionTimestamp"] = NOW_TEXT
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def job(name: str, words: dict[str, Any]) -> dict[str, Any]:
    labels = {key: str(value) for key, value in words.get("labels", {}).items()}
    inner = {key: str(value) for key, value in words.get("pod_labels", labels).items()}
    template = {"metadata": {"labels": inner}, "spec": pod_spec(words)}
    nodes = words.get("nodes", 1)
    spec = {"suspend": words.get("suspend", False), "parallelism": nodes, "completions": nodes, "template": template}
    meta = {"name": name, "namespace": "default", "labels": labels, "creationTimestamp": ago(words.get("age", "1m"))}
    meta["annotations"] = words.get("annotations", {})
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec, "status": words.get("status", {})}


def times(table: dict[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    """`name: {...}`; `name*3: {...}` stands for name-0, name-1, name-2."""
    found = []
    for name, words in table.get(kind, {}).items():
        base, _, count = name.partition("*")
        names = [f"{base}-{number}" for number in range(int(count))] if count else [base]
        found += [(each, words or {}) for each in names]
    return found


def objects(table: dict[str, Any]) -> list[dict[str, Any]]:
    pools = {pool["name"]: pool for pool in pool_file(table)["pools"]}
    found = [node(name, words, pools) for name, words in times(table, "nodes")]
    found += [pod(name, words) for name, words in times(table, "pods")]
    found += [job(name, words) for name, words in times(table, "jobs")]
    for name, words in table.get("budgets", {}).items():
        status = {"disruptionsAllowed": words["allowed"], **words.get("status", {})} if "allowed" in words else {}
        spec = {"selector": words.get("selector", {"matchLabels": words.get("labels", {})}), **words.get("spec", {})}
        meta = {"name": name, "namespace": "default"}
        found.append(
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec, "status": status}
        )
    return [*found, *claimed(table), *table.get("objects", [])]


def claimed(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Of dynamic resource allocation: `classes` (name: expression), `claims` (name: what is asked), nodes' devices."""
    kind = {"apiVersion": "resource.k8s.io/v1"}
    found: list[dict[str, Any]] = []
    for name, expression in table.get("classes", {}).items():
        spec = {"selectors": [{"cel": {"expression": expression}}] if expression else []}
        found.append({**kind, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec})
    for name, words in table.get("claims", {}).items():
        asked = words if "devices" in words else {"devices": {"requests": [{"name": "main", "exactly": words}]}}
        meta = {"name": name, "namespace": "default"}
        found.append({**kind, "kind": "ResourceClaimTemplate", "metadata": meta, "spec": {"spec": asked}})
    slices = {name: words.get("devices", {}) for name, words in times(table, "nodes")}
    for node_name, drivers in slices.items() if found else ():
        for driver, count in drivers.items():
            devices = [{"name": f"d{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(count)]
            pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": driver, "nodeName": node_name, "pool": pool, "devices": devices}
            found.append({**kind, "kind": "ResourceSlice", "metadata": {"name": f"{node_name}-{driver}"}, "spec": spec})
    if found:  # they can be seen, if there are none
        spec = {"driver": "none", "nodeName": "none", "pool": {"name": "none"}, "devices": []}
        found.append({**kind, "kind": "ResourceSlice", "metadata": {"name": "none"}, "spec": spec})
    return found


def make(table: dict[str, Any], folder: Path) -> tuple[ClusterSnapshot, AutoscalerSettings]:
    path = folder / "pools.yaml"
    path.write_text(yaml.safe_dump(pool_file(table)))
    pools, settings = read_pools(path)
    return with_memory(table, objects(table), pools), settings


def with_memory(table: dict[str, Any], items: list[dict[str, Any]], pools: tuple[Pool, ...]) -> ClusterSnapshot:
    """What a loop remembers besides: refusals of providers, and orders that have not joined."""
    failures = [
        ProviderFailure(
            at=before(each),
            kind=each.get("kind", "stockout"),
            pool=each["pool"],
            zone=each.get("zone"),
            count=each.get("count", 1),
            message=each.get("message", ""),
            provider=next((pool.provider for pool in pools if pool.name == each["pool"]), ""),
            is_blind=each.get("is_blind", False),
        )
        for each in table.get("failures", [])
    ]
    orders = [
        Order(pool=each["pool"], machine=each["machine"], asked=before(each), zone=each.get("zone"))
        for each in table.get("orders", [])
    ]
    seen = snapshot_of(by_kind({"kind": "List", "items": items}), pools)
    return msgspec.structs.replace(seen, failures=tuple(failures), orders=tuple(orders))


def before(words: dict[str, Any]) -> float:
    return NOW - parse_duration(str(words.get("ago", "1m")))


def words_of(action: ScalingAction) -> str:
    if action.kind == "grow":
        return f"grow {action.pool} {action.count}"
    return f"{action.kind} {action.node or action.machine}"


def check(plan: ScalingPlan, want: dict[str, Any]) -> None:
    """The actions are exactly those; what else is named must hold."""
    assert sorted(words_of(one) for one in plan.actions) == sorted(want.get("actions", [])), plan
    waiting = {one.run or one.pod: one for one in plan.waiting}
    for name, text in want.get("waiting", {}).items():
        full = name if "/" in name else f"default/{name}"
        assert full in waiting, (full, sorted(map(str, waiting)))
        assert re.search(text, waiting[full].reason), (text, waiting[full].reason)
    for name, moment in want.get("expected", {}).items():
        found = waiting[f"default/{name}"].expected
        assert found is not None and format_time(found) == moment, (name, found)
    if "waits" in want:
        assert sorted(map(str, waiting)) == sorted(f"default/{name}" for name in want["waits"])
    states = {one.node: one for one in plan.nodes}
    for name, state in want.get("states", {}).items():
        assert states[name].state == state, states[name]
    for name, text in want.get("reasons", {}).items():
        assert re.search(text, states[name].reason), (text, states[name].reason)
    pools = {one.pool: one for one in plan.pools}
    for name, text in want.get("pools", {}).items():
        assert re.search(text, pools[name].reason), (text, pools[name].reason)
    for name, kinds in want.get("backoffs", {}).items():
        assert [one.kind for one in pools[name].backoffs] == kinds, pools[name]
    if "next" in want:
        assert plan.next_s is not None and format_time(NOW + plan.next_s) == want["next"], plan.next_s
    for pool, zones in want.get("zones", {}).items():
        (action,) = [one for one in plan.actions if one.kind == "grow" and one.pool == pool]
        assert action.zones == zones
    assert all(one.reason for part in (plan.actions, plan.waiting, plan.nodes, plan.pools) for one in part)


class Loader(yaml.SafeLoader):
    """`on` is a word here, as in YAML 1.2."""


Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:bool"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


def load() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        for table in yaml.load(path.read_text(), Loader):
            found.append((f"{path.stem}: {table['name']}", table))
    return found


def plan_of(table: dict[str, Any], folder: Path) -> ScalingPlan:
    snapshot, settings = make(table, folder)
    return decide(snapshot, settings, NOW)
