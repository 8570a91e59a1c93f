"""A service on real pods under load: replicas are added and taken away without a lost request; a node loses its power.

Requests come through `longboat serve forward`, each on a connection of its own.
"""

from __future__ import annotations

import collections
import json
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.cli.commands.serve.service_forward import ServiceForward
from longboat.core.jobs import Job, Role, Serve
from longboat.engines.engine import Submission
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.kubeapi.kinds import POD
from longboat.serving.kubernetes.manifests import NAME
from longboat.serving.kubernetes.services import ClusterServices
from longboat.serving.requests import ServiceRequest
from testbed import faults, profiles
from testbed.clusters import Cluster
from testbed.fixtures import own_cluster
from tests.conformance.places import open_flavour
from tests.serving.kubernetes.test_real_pods import GOOD, LONG_S, eventually
from tests.serving.local.test_services import APP, TRAIN

pytestmark = [pytest.mark.pods, pytest.mark.soak, pytest.mark.slow, pytest.mark.xdist_group("serve-load")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two real nodes, one of which is lost in the end."""
    with own_cluster("test-serve", profiles.combine(("two-nodes",)), "pods") as made:
        yield made


@pytest.fixture
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterServices]:
    """A namespace with a run `train` that has a checkpoint."""
    with open_flavour("kubernetes", request, tmp_path) as place:
        engine = place.engine
        assert isinstance(engine, KubernetesEngine)
        project = tmp_path / "project"
        project.mkdir()
        (project / "train.py").write_text(TRAIN)
        (project / "app.py").write_text(APP.replace('"127.0.0.1"', 'os.environ["HOST"]'))
        job = Job(name="train", roles=(Role(name="worker", run=("python", "train.py")),), ends=("worker",))
        engine.submit(Submission(job=job, base=str(project), environment=engine.environment, run_id="train"))
        assert engine.wait("train", timeout_s=LONG_S).phase == "succeeded"
        services = ClusterServices(engine)
        yield services
        services.stop("svc")  # also where its node is lost
        assert services.client.list(POD, labels=f"{NAME}=svc").items == []


class Clients:
    """Ask without a pause, until they are told to stop."""

    def __init__(self, port: int, count: int = 3) -> None:
        self._url = f"http://127.0.0.1:{port}/predict"
        self.answers: collections.Counter[float] = collections.Counter()
        self.failed: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._over.is_set():
            try:
                with urllib.request.urlopen(self._url, data=b"1", timeout=10) as response:
                    self.answers[json.load(response)["y"]] += 1
            except OSError as error:
                self.failed.append(repr(error))

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def hosts(services: ClusterServices) -> list[str]:
    """Nodes of the replicas that are ready, one for each."""
    ready = set(services.ready_pods("svc"))
    pods = services.client.list(POD, labels=f"{NAME}=svc").items
    return sorted(pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["name"] in ready)


def test_replicas_come_and_go_under_load_without_a_lost_request(services: ClusterServices) -> None:
    settings = Serve(replicas=1, ready="/", drain_s=10.0)
    services.serve(ServiceRequest(run="train", step=1, name="svc", command=GOOD, serve=settings))
    services.wait("svc", timeout_s=LONG_S)
    with ServiceForward(services, "svc", None) as forward:
        clients = Clients(forward.port)
        try:
            for count in (3, 1, 2):
                services.scale("svc", count, None)
                eventually(lambda count=count: len(hosts(services)) == count, f"{count} replicas")  # type: ignore[misc]
                before = clients.answers.total()
                eventually(lambda before=before: clients.answers.total() > before + 20, "and they answer")  # type: ignore[misc]
        finally:
            clients.stop()
    assert clients.failed == [] and set(clients.answers) == {1.0}


def test_a_node_that_loses_its_power_under_load(services: ClusterServices, cluster: Cluster) -> None:
    """What was in flight there is lost; the other replica answers meanwhile, and the lost one starts elsewhere."""
    settings = Serve(replicas=2, ready="/", drain_s=1.0)
    services.serve(ServiceRequest(run="train", step=1, name="svc", command=GOOD, serve=settings))
    services.wait("svc", timeout_s=LONG_S)
    assert hosts(services) == ["node-0", "node-1"]
    with ServiceForward(services, "svc", None) as forward:
        clients = Clients(forward.port)
        try:
            eventually(lambda: clients.answers.total() > 20, "both answer")
            assert clients.failed == []
            faults.switch_off(cluster, 1)
            before = clients.answers.total()
            eventually(lambda: clients.answers.total() > before + 20, "the other one answers")
            eventually(lambda: hosts(services) == ["node-0", "node-0"], "the lost one was started elsewhere")
        finally:
            clients.stop()
        assert set(clients.answers) == {1.0}
        after = Clients(forward.port)
        try:
            eventually(lambda: after.answers.total() > 100, "both answer again")
        finally:
            after.stop()
        assert after.failed == []
