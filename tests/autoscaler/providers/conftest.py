"""Servers that play clouds: moto for AWS, one for the tests of a process; a simulated Azure or Google for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clouds.aws.moto_cluster import MotoCluster
from tests.clouds.azure.simulated_azure import SimulatedAzure
from tests.clouds.gcp.simulated_google import SimulatedGoogle, use_google
from tests.clusters.cloud import servers
from tests.storage.realstores import Unavailable


@pytest.fixture(scope="session")
def moto_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        servers.moto_python()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with servers.moto_server(tmp_path_factory.mktemp("moto")) as url:
        yield url


@pytest.fixture
def moto(moto_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MotoCluster:
    """A cluster of its own on that server, in the environment of this test."""
    servers.use_server(monkeypatch, moto_url, tmp_path, servers.ADMIN)
    return MotoCluster(moto_url)


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedAzure]:
    """A simulated Azure in the environment of this test; every request was one that Azure describes."""
    pytest.importorskip("azure.identity")
    try:
        simulated = SimulatedAzure()
    except Unavailable as reason:
        pytest.skip(str(reason))
    for name in ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with simulated:
        monkeypatch.setenv("AZURE_RESOURCE_MANAGER_ENDPOINT", simulated.url)
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{simulated.url}/identity")  # as a machine of Azure has it
        monkeypatch.setenv("IDENTITY_HEADER", "simulated")
        yield simulated
    assert simulated.violations == []
    assert simulated.chosen == [], "Azure chose by itself whom to delete"


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedGoogle]:
    """A simulated Google Cloud in the environment of this test; every request was one that Google describes."""
    pytest.importorskip("google.auth")
    try:
        simulated = SimulatedGoogle()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with simulated:
        use_google(simulated, tmp_path, monkeypatch)
        yield simulated
    assert simulated.violations == []


def pytest_itemcollected(item: pytest.Item) -> None:
    if {"moto", "azure", "google"}.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("clouds")
