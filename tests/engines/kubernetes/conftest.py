"""Clients on the test cluster, directly and through the proxy that misbehaves on demand; and an engine there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.kubeapi.client import Client
from testbed import api
from testbed.clusters import Cluster
from testbed.proxy import ApiProxy
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.flavours import queue_of


def opened(kubeconfig: Path, namespace: str) -> Client:
    return Client.open(namespace=namespace, environment={"KUBECONFIG": str(kubeconfig)})


@pytest.fixture
def client(cluster: Cluster, namespace: str) -> Iterator[Client]:
    with opened(cluster.kubeconfig, namespace) as found:
        yield found


@pytest.fixture
def proxied(api_proxy: ApiProxy, namespace: str) -> Iterator[Client]:
    with opened(api_proxy.kubeconfig, namespace) as found:
        yield found


@pytest.fixture
def flavour() -> str:
    """Parametrized by tests that try more than one (`flavours`)."""
    return "job"


@pytest.fixture
def bench(cluster: Cluster, namespace: str, flavour: str, cluster_api: api.Api, tmp_path: Path) -> Iterator[Bench]:
    with queue_of(flavour, cluster_api, namespace) as queue:
        found = Bench(cluster, namespace, tmp_path, queue=queue)
        yield found
        found.close()
