"""Grounds on the shared cluster, and on one of their own for tests that hurt the cluster itself."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import api, cleanup, clusters, profiles, requirements
from testbed.clusters import Cluster
from testbed.errors import Missing
from testbed.proxy import ApiProxy
from testbed.up import up
from tests.engines.kubernetes.faults.grounds import Ground
from tests.engines.kubernetes.flavours import queue_of


@pytest.fixture
def queue(flavour: str, cluster_api: api.Api, namespace: str) -> Iterator[str | None]:
    with queue_of(flavour, cluster_api, namespace) as made:
        yield made


@pytest.fixture
def ground(cluster: Cluster, namespace: str, queue: str | None, tmp_path: Path) -> Iterator[Ground]:
    with contextlib.closing(Ground(cluster, namespace, tmp_path, queue=queue)) as made:
        yield made


@pytest.fixture
def stormy(
    cluster: Cluster, namespace: str, queue: str | None, api_proxy: ApiProxy, tmp_path: Path
) -> Iterator[Ground]:
    """A ground whose engine speaks through `api_proxy`, which behaves again at the end."""
    with contextlib.closing(Ground(cluster, namespace, tmp_path, api_proxy.kubeconfig, queue=queue)) as made:
        yield made
        api_proxy.restore()


PROFILES = {
    "job": ("two-nodes",),
    "jobset": ("two-nodes", "jobset", "kueue"),
    "kueue": ("two-nodes", "jobset", "kueue"),
}
"""What a run is made of, and so what its cluster has: Kueue looks after runs that name a queue."""


@pytest.fixture(scope="session")
def own_cluster_name() -> Iterator[str]:
    """Tests that use it are of one xdist group: they share the cluster one after another."""
    name = f"test-faults-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as last:
        for one in set(PROFILES.values()):
            last.callback(cleanup.down, own_name(name, one))
        yield name


def own_name(name: str, wanted: tuple[str, ...]) -> str:
    return f"{name}-{len(wanted)}"


@pytest.fixture
def own_cluster(own_cluster_name: str, flavour: str) -> Iterator[Cluster]:
    """Two real nodes that may be hurt; a cluster that has lost a part is replaced before the next test."""
    lacks = requirements.missing("pods" if flavour == "job" else "controllers")
    if lacks:
        pytest.skip(lacks)
    wanted = PROFILES[flavour]
    try:
        cluster = up(own_name(own_cluster_name, wanted), profiles.combine(wanted), lease=True)
    except Missing as error:
        pytest.skip(str(error))
    lease = clusters.hold_lease(cluster.folder)
    yield cluster
    if lease is not None:
        os.close(lease)


@pytest.fixture
def own_ground(own_cluster: Cluster, flavour: str, tmp_path: Path) -> Iterator[Ground]:
    name = f"test-{secrets.token_hex(4)}"
    with contextlib.closing(api.Api(own_cluster)) as with_api:
        with_api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        account = api.path_of("ServiceAccount", "v1", name, "default")
        api.wait_for("the namespace has its service account", lambda: with_api.get(account) is not None, 60.0)
        with queue_of(flavour, with_api, name) as queue:
            with contextlib.closing(Ground(own_cluster, name, tmp_path, queue=queue)) as made:
                yield made
            with_api.close()
            with_api.delete(api.path_of("Namespace", "v1", name=name))
