"""Load balancers are given back before a cluster goes: on a real API server, whose Services have a finalizer as those
of clouds do.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from longboat.clusters.cloud import load_balancers
from longboat.clusters.cloud.load_balancers import give_back
from longboat.core.errors import EngineError
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import SERVICE, Kind
from testbed.clusters import Cluster

pytestmark = pytest.mark.cluster
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"


@pytest.fixture
def client(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Of one namespace: the cluster is that of other tests, too."""
    monkeypatch.setattr(load_balancers, "_LOOK_S", 0.1)
    client = Client.open(namespace=namespace, environment={"KUBECONFIG": str(cluster.kubeconfig)})
    whole = client.list
    monkeypatch.setattr(client, "list", lambda kind, **_: whole(kind, namespace=namespace))
    for name, kind in (("web", "LoadBalancer"), ("inside", "ClusterIP")):
        meta = {"name": name, "namespace": namespace, "finalizers": [FINALIZER] if kind == "LoadBalancer" else []}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": meta}
        client.create({**body, "spec": {"type": kind, "ports": [{"port": 80}]}})
    return client


def release(client: Client) -> None:
    client.patch(SERVICE, "web", {"metadata": {"finalizers": None}})


def test_the_cloud_is_waited_for_and_other_services_stay(client: Client, namespace: str) -> None:
    said: list[str] = []
    cloud = threading.Timer(0.0, lambda: None)

    def hear(text: str) -> None:
        nonlocal cloud
        said.append(text)
        cloud = threading.Timer(0.5, release, (client,))
        cloud.start()

    assert give_back(client, hear, timeout_s=60.0) == 1
    cloud.join()
    assert said == [f"longboat: the load balancer of the Service {namespace}/web is given back"]
    assert client.find(SERVICE, "web") is None and client.find(SERVICE, "inside") is not None
    assert give_back(client, said.append) == 0


def test_one_that_is_made_anew_is_not_the_one_that_was_given_back(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller of GitOps does that at once; its cluster could not be taken down."""
    whole = client.list

    def at_work(kind: Kind, **fields: Any) -> Any:
        web = client.find(SERVICE, "web")
        if web is not None and web["metadata"].get("deletionTimestamp"):
            release(client)
            meta = {"name": "web", "namespace": namespace}
            spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
            client.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
        return whole(kind, **fields)

    monkeypatch.setattr(client, "list", at_work)
    assert give_back(client, lambda _: None, timeout_s=5.0) == 1
    assert client.find(SERVICE, "web") is not None


def test_one_that_stays_is_named(client: Client, namespace: str) -> None:
    with pytest.raises(EngineError, match=f"Service {namespace}/web does not go"):
        give_back(client, lambda _: None, timeout_s=0.0)
    release(client)
