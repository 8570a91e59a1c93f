"""Object stores for the tests of one process: real servers, started when the first test needs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage import realstores
from tests.storage.realstores import Running, Unavailable


def pytest_itemcollected(item: pytest.Item) -> None:
    if {"s3", "azure"}.intersection(getattr(item, "fixturenames", ())):
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


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Azurite; its environment holds the account's key."""
    try:
        realstores.azurite()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with realstores.azure_server(tmp_path_factory.mktemp("azure")) as server:
        yield server
