"""An engine on the test cluster, and clients there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import api
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.flavours import queue_of
from tests.kubeapi.conftest import client, proxied

__all__ = ["client", "proxied"]  # fixtures


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
