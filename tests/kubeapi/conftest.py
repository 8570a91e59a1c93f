"""Clients on the test cluster, directly and through the proxy that misbehaves on demand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.kubeapi.client import Client
from testbed.clusters import Cluster
from testbed.proxy import ApiProxy


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
