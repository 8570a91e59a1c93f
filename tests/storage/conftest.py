"""Object stores for the tests of one process: real servers, started when the first test needs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import network
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.benches import Bench
from tests.storage import realstores
from tests.storage.realstores import Running, Unavailable


def pytest_itemcollected(item: pytest.Item) -> None:
    if {"s3", "azure", "store"}.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("stores")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """SeaweedFS; its environment is that of an administrator."""
    try:
        realstores.weed()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with realstores.s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def store(cluster: Cluster, tmp_path: Path) -> Iterator[Running]:
    """An S3 that pods reach: at the machine's end of their node's cable."""
    try:
        realstores.weed()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with realstores.s3_server(tmp_path / "s3", network.gateway_address(cluster, 0)) as server:
        yield server


@pytest.fixture
def bench(cluster: Cluster, namespace: str, tmp_path: Path, kubectl: Kubectl) -> Iterator[Bench]:
    kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    found = Bench(cluster, namespace, tmp_path / "bench")
    yield found
    found.close()


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Azurite; its environment holds the account's key."""
    try:
        realstores.azurite()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with realstores.azure_server(tmp_path_factory.mktemp("azure")) as server:
        yield server
