"""The stage of the tests on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.clusters import Cluster
from tests.autoscaler.stages import Stage


@pytest.fixture
def stage(cluster: Cluster, namespace: str) -> Iterator[Stage]:
    found = Stage(cluster, namespace)
    yield found
    found.close()
