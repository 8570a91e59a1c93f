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


@pytest.fixture
def ground(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Ground]:
    with contextlib.closing(Ground(cluster, namespace, tmp_path)) as made:
        yield made


@pytest.fixture
def stormy(cluster: Cluster, namespace: str, api_proxy: ApiProxy, tmp_path: Path) -> Iterator[Ground]:
    """A ground whose engine speaks through `api_proxy`, which behaves again at the end."""
    with contextlib.closing(Ground(cluster, namespace, tmp_path, api_proxy.kubeconfig)) as made:
        yield made
        api_proxy.restore()


@pytest.fixture(scope="session")
def own_cluster_name() -> Iterator[str]:
    """Tests that use it are of one xdist group: they share the cluster one after another."""
    name = f"test-faults-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as last:
        last.callback(cleanup.down, name)
        yield name


@pytest.fixture
def own_cluster(own_cluster_name: str) -> Iterator[Cluster]:
    """Two real nodes that may be hurt; a cluster that has lost a part is replaced before the next test."""
    lacks = requirements.missing("pods")
    if lacks:
        pytest.skip(lacks)
    try:
        cluster = up(own_cluster_name, profiles.combine(["two-nodes"]), lease=True)
    except Missing as error:
        pytest.skip(str(error))
    lease = clusters.hold_lease(cluster.folder)
    yield cluster
    if lease is not None:
        os.close(lease)


@pytest.fixture
def own_ground(own_cluster: Cluster, tmp_path: Path) -> Iterator[Ground]:
    name = f"test-{secrets.token_hex(4)}"
    with contextlib.closing(api.Api(own_cluster)) as with_api:
        with_api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        account = api.path_of("ServiceAccount", "v1", name, "default")
        api.wait_for("the namespace has its service account", lambda: with_api.get(account) is not None, 60.0)
        with contextlib.closing(Ground(own_cluster, name, tmp_path)) as made:
            yield made
        with_api.close()
        with_api.delete(api.path_of("Namespace", "v1", name=name))
