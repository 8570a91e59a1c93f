"""The predicates against the real kube-scheduler, on simulated nodes (KWOK): a pod that we accept is bound, to a node
that we accept; one that we reject stays pending."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from longboat.engines.kubernetes.gate.node_usage import observe_room
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod, pod_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import NODE, POD
from testbed import api, kwok
from testbed.clusters import Cluster
from tests.fitting.bodies import affinity, term, wants, why_not

pytestmark = pytest.mark.cluster

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
NODES = 8
PODS = 45


@pytest.fixture
def client(cluster: Cluster, namespace: str) -> Iterator[Client]:
    with Client.open(namespace=namespace, environment={"KUBECONFIG": str(cluster.kubeconfig)}) as found:
        yield found


@pytest.fixture
def random_nodes(cluster_api: api.Api, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    chance = random.Random(request.node.name)
    prefix = f"fit-{secrets.token_hex(2)}"
    names = [f"{prefix}-{number}" for number in range(NODES)]
    for name in names:
        cluster_api.create(random_node(name, chance))
    yield names
    cluster_api.close()
    kwok.remove_nodes(cluster_api, names)


def random_node(name: str, chance: random.Random) -> dict[str, Any]:
    shape = kwok.Shape(
        "fit", chance.choice([0, 2, 4, 8]), chance.choice(["2", "3500m", "8"]), chance.choice(["4Gi", "16Gi"]), 12
    )
    labels = {"level": chance.choice(["1", "5", "20", "high"])}
    if chance.random() < 0.8:
        labels[ZONE] = chance.choice("ab")
    if chance.random() < 0.5:
        labels["pool"] = chance.choice(["x", "y"])
    taints = chance.choice(
        [(), (), ("t=1:NoSchedule",), ("t=2:NoExecute",), ("u:PreferNoSchedule",), ("u:NoSchedule",)]
    )
    body = kwok.node_object(name, kwok.Group(1, shape, labels=labels, taints=taints))
    if chance.random() < 0.15:
        body["spec"]["unschedulable"] = True
    return body


def random_pod(name: str, nodes: list[str], chance: random.Random) -> dict[str, Any]:
    requests: dict[str, str] = {}
    for resource, choices in (("cpu", "100m 500m 1 2 3"), ("memory", "128Mi 1Gi 3000M 5e9"), (GPU, "1 2 4")):
        if chance.random() < 0.4:
            requests[resource] = chance.choice(choices.split())
    limits = {GPU: requests[GPU]} if GPU in requests else {}
    container: dict[str, Any] = {"name": "c", "image": "x", "resources": {"requests": requests, "limits": limits}}
    spec: dict[str, Any] = {"containers": [container], "restartPolicy": "Always"}
    if chance.random() < 0.15:
        container["ports"] = [{"containerPort": 80, "hostPort": chance.choice([8080, 8081])}]
    if chance.random() < 0.2:
        always = {"restartPolicy": "Always"} if chance.random() < 0.5 else {}
        resources = {"requests": {"cpu": chance.choice(["250m", "1500m"])}}
        spec["initContainers"] = [{"name": "i", "image": "x", "resources": resources, **always}]
    if chance.random() < 0.5:
        spec["tolerations"] = [random_toleration(chance) for _ in range(chance.randint(1, 2))]
    if chance.random() < 0.15:
        spec["nodeSelector"] = {chance.choice(["pool", ZONE]): chance.choice(["x", "a"])}
    random_affinity(spec, nodes, chance)
    labels = {"app": chance.choice("pqr")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def random_toleration(chance: random.Random) -> dict[str, str]:
    return chance.choice(
        [
            {"operator": "Exists"},
            {"key": "t", "operator": "Exists"},
            {"key": "t", "operator": "Equal", "value": "1", "effect": "NoSchedule"},
            {"key": "t", "value": "2"},
            {"key": "u", "operator": "Exists", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoExecute"},
        ]
    )


def random_affinity(spec: dict[str, Any], nodes: list[str], chance: random.Random) -> None:
    found: dict[str, Any] = {}
    kind = chance.choice(["", "", "", "node", "name", "near", "apart", "apart", "spread"])
    labels = {"app": chance.choice("pqr")}
    if kind == "node":
        rules = [
            wants("pool", "In", "x"), wants("pool", "NotIn", "x"), wants("pool", "Exists"), wants(ZONE, "DoesNotExist"),
            wants("level", "Gt", "4"), wants("level", "Lt", "10"), wants(ZONE, "In", "a", "b"),
        ]  # fmt: skip
        terms = [{"matchExpressions": chance.sample(rules, chance.randint(1, 2))} for _ in range(chance.randint(1, 2))]
        found["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    elif kind == "name":
        fields = [{"matchFields": [wants("metadata.name", chance.choice(["In", "NotIn"]), chance.choice(nodes))]}]
        found["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": fields}}
    elif kind in ("near", "apart"):
        name = "podAffinity" if kind == "near" else "podAntiAffinity"
        found = affinity(name, term(chance.choice([ZONE, HOST]), labels))
    elif kind == "spread":
        spec["topologySpreadConstraints"] = [
            {
                "topologyKey": chance.choice([ZONE, HOST]),
                "maxSkew": chance.randint(1, 2),
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": labels},
                **chance.choice([{}, {"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"}]),
            }
        ]
    if found:
        spec["affinity"] = found


def accepted(client: Client, wanted: Pod, names: list[str]) -> dict[str, str | None]:
    """For every node, why not; from what the cluster says now."""
    room = observe_room(client)
    assert room is not None
    fleet = Fleet([node for node in room.nodes if node.name in names], room.pods)
    return {name: why_not(wanted, fleet, name) for name in fleet.states}


def scheduled(client: Client, name: str) -> str | None:
    """The node that the scheduler chose, or None when it found none."""
    found: dict[str, Any] = {}

    def is_decided() -> bool:
        found.update(client.get(POD, name))
        conditions = found.get("status", {}).get("conditions", [])
        is_unschedulable = any(one.get("reason") == "Unschedulable" for one in conditions)
        return bool(found["spec"].get("nodeName")) or is_unschedulable

    api.wait_for(f"the scheduler looked at {name}", is_decided, 60.0)
    node: str | None = found["spec"].get("nodeName")
    return node


@pytest.mark.parametrize("seed", range(4))
def test_the_scheduler_agrees(client: Client, random_nodes: list[str], seed: int) -> None:
    chance = random.Random(seed)
    api.wait_for("the nodes have settled", lambda: are_settled(client, random_nodes), 60.0)
    bound = rejected = 0
    for number in range(PODS):
        body = random_pod(f"p{number}", random_nodes, chance)
        wanted = pod_of({**body, "metadata": {**body["metadata"], "namespace": client.namespace}})
        expected = accepted(client, wanted, random_nodes)
        client.create(body)
        node = scheduled(client, f"p{number}")
        if node is None:
            rejected += 1
            assert all(expected.values()), f"rejected: {body}, and we say {expected}"
            # It would be looked at again with every change, and take what the next is to be asked about.
            client.delete(POD, f"p{number}", grace_s=0)
        else:
            bound += 1
            assert expected[node] is None, f"bound to {node}: {body}, and we say {expected}"
    assert bound and rejected, "a test that only sees one answer says nothing"


def are_settled(client: Client, names: list[str]) -> bool:
    """A cordon has its taint, and what the node controller put on new nodes is gone again."""
    for name in names:
        spec = client.get(NODE, name)["spec"]
        keys = {taint["key"] for taint in spec.get("taints", [])}
        if "node.kubernetes.io/not-ready" in keys:
            return False
        if bool(spec.get("unschedulable")) is not ("node.kubernetes.io/unschedulable" in keys):
            return False
    return True
