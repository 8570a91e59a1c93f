"""Scaling by load on real pods: our add-on's metrics-server reads the kubelet, and Kubernetes adds replicas by it.

The cluster, metrics-server, the load and the HorizontalPodAutoscaler are real.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.cli.commands.serve.service_forward import ServiceForward
from longboat.clusters.addons.metrics import metrics_objects
from longboat.core.jobs import Job, Resources, Role, Serve
from longboat.engines.engine import Submission
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.kubeapi.kinds import API_SERVICE, HPA, POD
from longboat.serving.kubernetes.manifests import NAME
from longboat.serving.kubernetes.services import ClusterServices
from longboat.serving.requests import ServiceRequest
from testbed import images, profiles
from testbed.clusters import Cluster
from testbed.fixtures import own_cluster
from tests.conformance.places import open_flavour
from tests.serving.kubernetes.test_load import Clients
from tests.serving.kubernetes.test_real_pods import GOOD, LONG_S, eventually
from tests.serving.local.test_services import APP, TRAIN

pytestmark = [pytest.mark.pods, pytest.mark.soak, pytest.mark.slow, pytest.mark.xdist_group("serve-scaling")]
BUSY = APP.replace('"127.0.0.1"', 'os.environ["HOST"]').replace("time.sleep(0.01)", "sum(range(300000))")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One real node, which has the image of metrics-server."""
    with own_cluster("test-scaling", profiles.combine((profiles.METRICS,)), "pods") as made:
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
        (project / "app.py").write_text(BUSY)
        job = Job(name="train", roles=(Role(name="worker", run=("python", "train.py")),), ends=("worker",))
        engine.submit(Submission(job=job, base=str(project), environment=engine.environment, run_id="train"))
        assert engine.wait("train", timeout_s=LONG_S).phase == "succeeded"
        yield ClusterServices(engine, notices.append)
        notices.clear()


notices: list[str] = []
HPA_S = 400.0
"""It takes the mean of a minute, and starts of pods do not count; on a busy machine a load is slow to show."""


def install_metrics(services: ClusterServices) -> None:
    """Our add-on, with the image that the node has."""
    client = services.client
    for body in copy.deepcopy(metrics_objects()):
        if body["kind"] == "Deployment":
            (container,) = body["spec"]["template"]["spec"]["containers"]
            container["image"] = images.reference(profiles.METRICS_SERVER)
        client.apply(body)

    def is_available() -> bool:
        conditions = (client.get(API_SERVICE, "v1beta1.metrics.k8s.io").get("status") or {}).get("conditions") or ()
        return any((each["type"], each["status"]) == ("Available", "True") for each in conditions)

    eventually(is_available, "metrics-server answers")


def test_replicas_follow_the_load(services: ClusterServices) -> None:
    settings = Serve(replicas=1, max_replicas=2, ready="/", drain_s=10.0, resources=Resources(cpus=0.2))
    request = ServiceRequest(run="train", step=1, name="svc", command=GOOD, serve=settings)
    services.serve(request)
    assert any("has no metrics" in text for text in notices) and services.client.find(HPA, "svc") is None
    install_metrics(services)
    services.scale("svc", 1, 2)
    services.wait("svc", timeout_s=LONG_S)
    with ServiceForward(services, "svc", None) as forward:
        clients = Clients(forward.port)
        try:
            eventually(lambda: len(services.ready_pods("svc")) == 2, "the load adds a replica", HPA_S)
        except AssertionError as error:
            raise AssertionError(json.dumps(services.client.get(HPA, "svc").get("status"))) from error
        finally:
            clients.stop()
        assert clients.failed == [] and set(clients.answers) == {1.0}
        usage = services.client.get(HPA, "svc")["status"]["currentMetrics"]
        assert usage[0]["resource"]["name"] == "cpu", json.dumps(usage)
        # An update keeps what the load has asked for; without load a replica goes again.
        services.serve(ServiceRequest(run="train", name="svc"))
        assert services.wait("svc", timeout_s=LONG_S).step == 2
        eventually(lambda: len(services.ready_pods("svc")) == 1, "without load it goes", HPA_S)
    services.stop("svc")
    assert services.client.list(POD, labels=f"{NAME}=svc").items == []
    assert services.client.find(HPA, "svc") is None
