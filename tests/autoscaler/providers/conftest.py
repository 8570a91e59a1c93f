"""A server that plays AWS's Auto Scaling groups, one for the tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clouds.aws.moto_cluster import MotoCluster
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


def pytest_itemcollected(item: pytest.Item) -> None:
    if "moto" in getattr(item, "fixturenames", ()):
        item.add_marker("clouds")
