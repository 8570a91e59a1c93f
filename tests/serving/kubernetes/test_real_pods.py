"""A service on real pods: golden answers, an update, a killed server, nothing left."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.cli.commands.serve.service_forward import ServiceForward
from longboat.core.errors import Refused
from longboat.core.jobs import Job, Role, Secret, Serve
from longboat.core.runs import LogQuery
from longboat.engines.engine import Submission
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.kubeapi.kinds import DEPLOYMENT, POD, SECRET, SERVICE
from longboat.serving.kubernetes.manifests import NAME, PORT
from longboat.serving.kubernetes.services import ClusterServices
from longboat.serving.requests import ServiceRequest
from tests.conformance.clusters import ClusterPlace
from tests.conformance.places import open_flavour
from tests.serving.local.test_services import APP, TRAIN

LONG_S = 180.0
TOKEN = "a-token-that-nobody-sees"
ENCODED = base64.b64encode(TOKEN.encode()).decode()
GOOD, BAD = ("python", "app.py", "0"), ("python", "app.py", "0.5")


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KubernetesEngine]:
    """A namespace with a storage and a run `train` that has the checkpoints 1 and 2."""
    with open_flavour("kubernetes", request, tmp_path) as place:
        engine = place.engine
        assert isinstance(engine, KubernetesEngine) and isinstance(place, ClusterPlace)
        engine.environment = {**engine.environment, "TOKEN": TOKEN}
        project = tmp_path / "project"
        project.mkdir()
        (project / "train.py").write_text(TRAIN)
        (project / "app.py").write_text(APP.replace('"127.0.0.1"', 'os.environ["HOST"]'))
        role = Role(name="worker", run=("python", "train.py"))
        secret = Secret(name="TOKEN", env="TOKEN")
        job = Job(name="train", roles=(role,), ends=("worker",), secrets=(secret,))
        engine.submit(Submission(job=job, base=str(project), environment=engine.environment, run_id="train"))
        assert engine.wait("train", timeout_s=LONG_S).phase == "succeeded"
        yield engine
        kept = {path.name.rpartition("-")[0] for path in (place.storage / "longboat").iterdir()}
        assert kept == {"train"}, "a service leaves nothing in the storage of its run"


def eventually(check: Callable[[], Any], words: str, limit_s: float = LONG_S) -> Any:
    deadline = time.monotonic() + limit_s
    while not (value := check()):
        assert time.monotonic() < deadline, words
        time.sleep(0.2)
    return value


def answers(engine: KubernetesEngine) -> set[float]:
    """What each ready pod answers, at its own address."""
    values = set()
    for pod in engine.client.list(POD, labels=f"{NAME}=svc").items:
        conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
        if conditions.get("Ready") == "True" and not pod["metadata"].get("deletionTimestamp"):
            url = f"http://{pod['status']['podIP']}:{PORT}/predict"
            with urllib.request.urlopen(url, data=b"1", timeout=30) as response:
                values.add(json.load(response)["y"])
    return values


@pytest.mark.pods
def test_a_service_in_a_cluster(engine: KubernetesEngine, tmp_path: Path) -> None:
    services = ClusterServices(engine)
    settings = Serve(ready="/", drain_s=1.0, follow="newest")
    began = ServiceRequest(run="train", step=1, name="svc", command=GOOD, serve=settings, is_followed=True)
    services.serve(began)
    status = services.wait("svc", timeout_s=LONG_S)
    assert (status.ready, status.replicas, status.run, status.step) == (1, 1, "train", 1)
    assert status.url == f"http://svc.{engine.client.namespace}.svc:80"
    assert answers(engine) == {1.0}
    (pod,) = engine.client.list(POD, labels=f"{NAME}=svc").items
    assert TOKEN not in json.dumps([pod, *engine.client.list(DEPLOYMENT).items])
    holding = [body["metadata"]["name"] for body in engine.client.list(SECRET).items if ENCODED in json.dumps(body)]
    assert sorted(name.partition("-")[0] for name in holding) == ["svc", "train"]
    # It follows to the newest checkpoint; the old pod stays until the new one has given its golden answers.
    assert services.follow("svc") == 2
    assert services.follow("svc") is None, "that one is being rolled out"
    assert services.wait("svc", timeout_s=LONG_S).version == 2
    eventually(lambda: answers(engine) == {2.0}, "the new version answers alone")
    # A bad one never becomes ready, and what was there stays.
    services.serve(ServiceRequest(run="train", step=1, name="svc", command=BAD))
    with pytest.raises(Refused, match=r"golden case 1 of 2 .* answer.y is 1.5, expected 1: differs by 0.5"):
        services.wait("svc", timeout_s=LONG_S)
    assert answers(engine) == {2.0} and services.status("svc").phase == "degraded"
    # What comes after it takes nothing of it; a canary is judged by itself, with a server written after the training.
    (tmp_path / "project" / "app.py").rename(tmp_path / "project" / "later.py")
    later = ("python", "later.py", "0")
    services.serve(ServiceRequest(run="train", step=1, name="svc", weight=50, command=later, fresh_code=True))
    assert services.wait("svc", timeout_s=LONG_S).canary == "train:1"
    services.promote("svc")
    status = services.wait("svc", timeout_s=LONG_S)
    assert (status.phase, status.step, status.canary) == ("ready", 1, None)
    services.stop("svc")
    for kind in (DEPLOYMENT, POD, SECRET, SERVICE):
        assert engine.client.list(kind, labels=f"{NAME}=svc").items == []
    assert services.list() == []


@pytest.mark.pods
@pytest.mark.soak
def test_a_canary_a_followed_log_and_a_forward_that_outlasts_a_killed_replica(engine: KubernetesEngine) -> None:
    notices: list[str] = []
    services = ClusterServices(engine, notices.append)
    settings = Serve(replicas=2, ready="/", drain_s=1.0)
    services.serve(ServiceRequest(run="train", step=1, name="svc", command=GOOD, serve=settings))
    services.wait("svc", timeout_s=LONG_S)
    lines: list[bytes] = []
    reader = threading.Thread(
        target=lambda: lines.extend(line.data for line in services.logs("svc", LogQuery(follow=True))), daemon=True
    )
    reader.start()
    services.serve(ServiceRequest(run="train", name="svc", weight=30))
    status = services.wait("svc", timeout_s=LONG_S)
    assert (status.canary, status.weight, status.ready) == ("train:2", 33, 2)
    assert any("1 of 3, 33 %" in text for text in notices)
    assert answers(engine) == {1.0, 2.0}
    with ServiceForward(services, "svc", None) as forward:
        url = f"http://127.0.0.1:{forward.port}/predict"

        def asked() -> float:
            with urllib.request.urlopen(url, data=b"1", timeout=60) as response:
                return float(json.load(response)["y"])

        eventually(lambda: asked() == 2.0, "the canary is asked too")
        services.promote("svc")
        assert services.wait("svc", timeout_s=LONG_S).canary is None
        eventually(lambda: answers(engine) == {2.0}, "the canary has taken over")
        victim = services.ready_pods("svc")[0]
        engine.client.delete(POD, victim, grace_s=0)
        eventually(lambda: victim not in services.ready_pods("svc"), "it is seen to be gone")
        assert [asked() for _ in range(20)] == [2.0] * 20
    eventually(lambda: b"".join(lines).count(b"listens") >= 4, "pods that came later are followed")
    services.stop("svc")
    reader.join(LONG_S)
    for kind in (DEPLOYMENT, POD, SECRET, SERVICE):
        assert engine.client.list(kind, labels=f"{NAME}=svc").items == []
