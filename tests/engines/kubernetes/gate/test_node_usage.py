"""What the live cluster holds, as fitting sees it; with and without the right to look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from longboat.engines.kubernetes.gate.node_usage import bound_claims, observe_room
from longboat.fitting.model.pods import pod_of
from longboat.kubeapi.client import Client
from testbed import api
from testbed.proxy import ApiProxy

pytestmark = pytest.mark.cluster
GPU = "nvidia.com/gpu"


def pod(name: str, node: str, **annotations: str) -> dict[str, Any]:
    port = {"containerPort": 80, "hostPort": 8080}
    resources = {"limits": {GPU: "2"}, "requests": {"cpu": "250m"}}
    spread = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"longboat.dev/run": "r", "app": name}, "annotations": annotations},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "x", "resources": resources, "ports": [port]}],
            "initContainers": [
                {"name": "side", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
            ],
            "tolerations": [{"key": "t", "operator": "Exists"}],
            "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": {"app": name}}}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }


def test_the_slim_view_decides_like_the_whole_object(
    client: Client, cluster_api: api.Api, kwok_nodes: Callable[..., list[str]]
) -> None:
    (node,) = kwok_nodes("1:h100x8")
    claim(client)
    client.create(pod("runs", node))
    client.create(pod("ends", node, **{"testbed.longboat.test/exit-code": "0"}))
    ended = api.path_of("Pod", "v1", client.namespace, "ends")
    api.wait_for("one has ended", lambda: (cluster_api.get(ended) or {})["status"]["phase"] == "Succeeded", 60.0)
    room = observe_room(client)
    assert room is not None
    shape = next(one for one in room.nodes if one.name == node)
    assert shape.has(GPU) == 8 and shape.has("pods") == 110 and shape.labels["type"] == "kwok"
    (found,) = [one for one in room.pods if one.namespace == client.namespace]
    whole = cluster_api.get(api.path_of("Pod", "v1", client.namespace, "runs")) or {}
    assert found == pod_of(whole, bound_claims(client))
    assert (found.name, found.node, found.run) == ("runs", node, "r")
    assert dict(found.shape.requests) == {"cpu": 1250, GPU: 2}
    assert found.shape.ports and found.shape.spread and found.shape.placing.volumes


def claim(client: Client) -> None:
    """A claim that is bound to a volume of one zone."""
    name = f"pv-{client.namespace}"
    size, mode = {"storage": "1Gi"}, ["ReadWriteOnce"]
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    meta = {"name": "data", "namespace": client.namespace}
    client.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": size,
                "accessModes": mode,
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "none",
                "local": {"path": "/x"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **meta},
            },
        }
    )
    spec = {"accessModes": mode, "resources": {"requests": size}, "volumeName": name, "storageClassName": "none"}
    client.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})


@pytest.fixture(autouse=True)
def no_volume_is_left(cluster_api: api.Api, namespace: str) -> Iterator[None]:
    yield
    cluster_api.close()
    cluster_api.delete(api.path_of("PersistentVolume", "v1", name=f"pv-{namespace}"))


def test_without_the_right_to_look(proxied: Client, api_proxy: ApiProxy) -> None:
    api_proxy.answer(403, only=lambda request: request.path.startswith("/api/v1/nodes"))
    assert observe_room(proxied) is None
    api_proxy.restore()
    api_proxy.answer(403, only=lambda request: request.path.startswith("/api/v1/pods"))
    room = observe_room(proxied)
    assert room is not None and room.pods == (), "only its own namespace, which is empty"
    api_proxy.restore()
    api_proxy.answer(403, only=lambda request: "persistentvolume" in request.path)
    assert bound_claims(proxied) == {}
