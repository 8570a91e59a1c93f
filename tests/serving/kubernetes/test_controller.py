"""The controller has a service on real pods follow its run, with the rights that it is installed with and no others."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.core.jobs import Serve
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.install.controller_manifests import RUNS, rules_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import DEPLOYMENT, SECRET
from longboat.kubeapi.streams.exec import run_in_pod
from longboat.serving.kubernetes import controller
from longboat.serving.kubernetes.controller import FollowController
from longboat.serving.kubernetes.manifests import NAME, VERSION
from longboat.serving.kubernetes.services import ClusterServices
from longboat.serving.requests import ServiceRequest
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.broken import user_config
from tests.serving.kubernetes.test_real_pods import GOOD, LONG_S, answers, eventually
from tests.serving.kubernetes.test_real_pods import engine as engine

COPY = """
import json, os, shutil, sys
with open("/longboat/node/plan.json") as file:
    folder = os.path.dirname(json.load(file)["resume_from"])
made, of = os.path.join(folder, "step-" + sys.argv[1]), os.path.join(folder, "step-" + sys.argv[2])
shutil.copytree(of, made + ".part")
if len(sys.argv) > 3:
    with open(os.path.join(made + ".part", "model.json"), "w") as file:
        file.write(sys.argv[3])
os.rename(made + ".part", made)
"""
"""Another checkpoint of the run: STEP, made of which one, and its model where that is another than its golden cases."""


def add_checkpoint(services: ClusterServices, *words: str) -> None:
    pod = services.ready_pods("svc")[0]
    assert run_in_pod(services.client, pod, ["python3", "-c", COPY, *words], timeout_s=60.0) == 0


@contextlib.contextmanager
def following(config: Path, namespace: str, said: list[str]) -> Iterator[FollowController]:
    with Client.open(namespace=namespace, environment={"KUBECONFIG": str(config)}) as client:
        worker = FollowController(client, namespaces=[namespace], say=said.append)
        worker.start()
        try:
            yield worker
        finally:
            worker.close()


@pytest.mark.pods
def test_a_service_follows_without_any_process_of_its_submitter(
    engine: KubernetesEngine, cluster: Cluster, kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "LOOK_S", 1.0)
    namespace = engine.client.namespace
    config = user_config(cluster, kubectl, namespace, tmp_path, rules_of(RUNS), name="controller")
    services = ClusterServices(engine)
    serve = Serve(ready="/", drain_s=1.0, follow="newest")
    services.serve(ServiceRequest(run="train", step=1, name="svc", command=GOOD, serve=serve, is_followed=True))
    services.serve(ServiceRequest(run="train", step=1, name="other", command=GOOD, serve=Serve(ready="/")))
    services.wait("svc", timeout_s=LONG_S)
    said: list[str] = []
    with following(config, namespace, said) as worker:
        eventually(lambda: answers(engine) == {2.0}, "it goes on to the newest checkpoint")
        assert (services.status("svc").step, services.status("svc").version) == (2, 2)
        # Answers that are not the golden ones: what is served stays, and the next checkpoint comes.
        add_checkpoint(services, "3", "2", "5")
        eventually(lambda: services.status("svc").phase == "degraded", "the bad checkpoint takes no requests")
        assert answers(engine) == {2.0} and "golden case 1 of 2" in services.status("svc").reason
        add_checkpoint(services, "4", "1")
        eventually(lambda: answers(engine) == {1.0}, "the one after it does")
        assert services.wait("svc", timeout_s=LONG_S).step == 4
        assert worker.blind_spots() == [] and worker.why_unhealthy() == ""
    steps = [f"service {namespace}/svc goes on to step {step}" for step in (2, 3, 4)]
    assert said == steps, "each once, and nothing of the service that does not follow"
    assert services.status("other").step == 1
    # Its Secrets are those of the version that somebody made.
    secrets = engine.client.list(SECRET, labels=f"{NAME}=svc").items
    assert {body["metadata"]["labels"][VERSION] for body in secrets} == {"1"}
    assert "goes on" not in json.dumps(engine.client.get(DEPLOYMENT, "svc")["spec"])
    for name in ("svc", "other"):
        services.stop(name)
