"""Fixtures for tests on a real cluster: `cluster`, `namespace`, `kwok_nodes`, `kubectl`; and on SSH hosts: `hosts`.
Faults on demand: `api_proxy`, `registry`. Containers of this machine: `podman`.

A test marked `pods` gets a cluster with a real node, shared by all workers of the test run; one marked `cluster` gets a
control plane with KWOK, one for each worker, so that tests may add simulated nodes without seeing each other's. With
`pytest.mark.pods("controllers")` the real node runs JobSet and Kueue as well, with `pods("nvidia")` it has GPUs of a
stand-in driver and NVIDIA's device plugin: clusters of their own, also shared. They are started when first asked for
and removed by the last one who used them. What an earlier, killed run left is removed first. Where a machine lacks
something, the test is skipped with one line that names it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed import api, binaries, cleanup, clusters, kwok, profiles, requirements, settings, stages
from testbed import hosts as machines
from testbed.clusters import Cluster
from testbed.errors import Missing
from testbed.podman import Podman
from testbed.proxy import ApiProxy
from testbed.registry import Registry
from testbed.up import up

RUN = pytest.StashKey[str]()
COMMAND_S = 120.0


class Kubectl:
    """kubectl on one cluster and namespace: `kubectl("get", "pods")` returns what it printed."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.program = str(binaries.find(("kubernetes",))["kubectl"])
        self.options = [f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}"]

    def command(self, *arguments: str) -> list[str]:
        return [self.program, *self.options, *arguments]

    def __call__(self, *arguments: str, text: str | None = None, within_s: float = COMMAND_S) -> str:
        done = subprocess.run(
            self.command(*arguments), input=text, capture_output=True, text=True, timeout=within_s, check=False
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout


@contextlib.contextmanager
def own_cluster(name: str, profile: profiles.Parts, kind: str) -> Iterator[Cluster]:
    """A cluster for the tests of one module, removed after them; skipped where the machine lacks what `kind` needs."""
    lacks = requirements.missing(kind)
    if lacks:
        pytest.skip(lacks)
    full = f"{name}-{secrets.token_hex(4)}"
    try:
        made = up(full, profile, lease=True)
    except Missing as error:
        pytest.skip(str(error))
    lease = clusters.hold_lease(made.folder)
    try:
        yield made
    finally:
        if lease is not None:
            os.close(lease)
        cleanup.down(full)


class Clusters:
    """The clusters of one test session, started when first asked for."""

    def __init__(self, run: str, worker: str) -> None:
        self.run = run
        self.worker = worker
        self.held: dict[str, tuple[Cluster, int]] = {}
        self.cleaned = False

    def get(self, kind: str) -> Cluster:
        if kind not in self.held:
            if not self.cleaned:
                cleanup.clean()
                self.cleaned = True
            name = f"test-{kind}-{self.run}" + (f"-{self.worker}" if kind == "cluster" else "")
            self.held[kind] = self.acquire(name, requirements.KINDS[kind])
        return self.held[kind][0]

    def acquire(self, name: str, wanted: tuple[str, ...]) -> tuple[Cluster, int]:
        parts = profiles.combine([part for part in wanted if part != "gpu"])
        if "gpu" in wanted:
            parts = profiles.with_empty_fleet(parts)
        while True:
            cluster = up(name, parts, lease=True)
            lease = clusters.hold_lease(cluster.folder)
            # Another worker may have taken the cluster down between the two.
            now = clusters.load(name)
            if lease is not None and now is not None and now.id == cluster.id:
                return cluster, lease
            if lease is not None:
                os.close(lease)

    def leave(self) -> None:
        for cluster, lease in self.held.values():
            with clusters.folder_lock(cluster.name):
                last = clusters.is_last_user(lease)
                if last:
                    cleanup.remove(cluster.folder)
                os.close(lease)
        self.held.clear()
        settings.restore_limit()


def kind_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("pods")
    return "cluster" if marker is None else str(marker.args[0]) if marker.args else "pods"


@pytest.fixture(scope="session")
def session_clusters(request: pytest.FixtureRequest) -> Iterator[Clusters]:
    worker: dict[str, Any] = getattr(request.config, "workerinput", {})
    run = str(worker.get("testrunuid") or secrets.token_hex(4))[:8]
    session = Clusters(run, str(worker.get("workerid", "main")))
    try:
        yield session
    finally:
        session.leave()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, session_clusters: Clusters) -> Cluster:
    """A running cluster: with a real node for tests marked `pods`, with simulated ones for those marked `cluster`."""
    kind = kind_of(request.node)
    lacks = requirements.missing(kind)
    if lacks:
        pytest.skip(lacks)
    try:
        return session_clusters.get(kind)
    except Missing as error:
        pytest.skip(str(error))


@pytest.fixture
def cluster_api(cluster: Cluster) -> Iterator[api.Api]:
    client = api.Api(cluster)
    yield client
    client.close()


@pytest.fixture
def namespace(cluster_api: api.Api) -> Iterator[str]:
    """A namespace of this test's own, with its service account; deleted afterwards (nobody waits for it to be gone)."""
    name = f"test-{secrets.token_hex(4)}"
    cluster_api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = api.path_of("ServiceAccount", "v1", name, "default")
    api.wait_for("the namespace has its service account", lambda: cluster_api.get(account) is not None, 30.0)
    yield name
    cluster_api.close()
    cluster_api.delete(api.path_of("Namespace", "v1", name=name))


@pytest.fixture
def kubectl(cluster: Cluster, namespace: str) -> Kubectl:
    return Kubectl(cluster, namespace)


@pytest.fixture
def kwok_nodes(cluster_api: api.Api) -> Iterator[Callable[..., list[str]]]:
    """Adds simulated nodes, `kwok_nodes("100:h100x8", ready_after="20s")`, and removes them after the test.

    Nodes without a behaviour of their own take pods when this returns.
    """
    made: list[str] = []

    def add(wanted: str, **behaviour: str) -> list[str]:
        group = kwok.parse_group(wanted)
        annotations = {stages.PREFIX + key.replace("_", "-"): value for key, value in behaviour.items()}
        prefix = f"sim-{secrets.token_hex(2)}"
        names = kwok.add_nodes(cluster_api, kwok.Group(group.count, group.shape, prefix, annotations=annotations))
        made.extend(names)
        if not behaviour:
            kwok.wait_untainted(cluster_api, names)
        return names

    yield add
    cluster_api.close()
    kwok.remove_nodes(cluster_api, made)


@pytest.fixture
def api_proxy(cluster: Cluster) -> Iterator[ApiProxy]:
    """A proxy of this test's own before the cluster's API, well-behaved until told otherwise."""
    proxy = ApiProxy(cluster)
    yield proxy
    proxy.close()


@pytest.fixture
def registry(cluster: Cluster) -> Iterator[Registry]:
    """A registry of this test's own that the cluster's real nodes can pull from."""
    server = Registry(cluster)
    yield server
    server.close()


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """podman with storage of this test process's own, and an image with Python."""
    made = Podman(tmp_path_factory.mktemp("podman"))
    try:
        try:
            made.make()
        except Missing as error:
            pytest.skip(str(error))
        yield made
    finally:
        made.remove()


@contextlib.contextmanager
def host_groups(session_clusters: Clusters) -> Iterator[Callable[..., machines.Group]]:
    """Starts machines reached over SSH, `start(2, "1:no-route")`, and removes them in the end."""
    lacks = machines.missing() or requirements.missing_programs(("tools",))
    if lacks:
        pytest.skip(lacks)
    if not session_clusters.cleaned:
        cleanup.clean()
        session_clusters.cleaned = True
    with contextlib.ExitStack() as last:

        def start(count: int = 1, *wanted: str) -> machines.Group:
            name = f"test-hosts-{secrets.token_hex(4)}"
            last.callback(cleanup.down, name)
            group = machines.up(name, count, wanted, lease=True)
            lease = clusters.hold_lease(group.record.folder)
            if lease is not None:
                last.callback(os.close, lease)
            return group

        yield start


@pytest.fixture
def hosts(session_clusters: Clusters) -> Iterator[Callable[..., machines.Group]]:
    """Starts machines of the test's own."""
    with host_groups(session_clusters) as start:
        yield start


@pytest.fixture(scope="module")
def module_hosts(session_clusters: Clusters) -> Iterator[Callable[..., machines.Group]]:
    """Starts machines that the tests of a module share."""
    with host_groups(session_clusters) as start:
        yield start
