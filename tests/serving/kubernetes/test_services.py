"""Services against an API server: objects of others are in the way, and somebody has changed an annotation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.core.errors import EngineError, UsageError
from longboat.core.jobs import Resources, Serve
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Conflict
from longboat.kubeapi.kinds import DEPLOYMENT, HPA, PDB, SECRET, SERVICE
from longboat.serving.kubernetes.following import serve_step
from longboat.serving.kubernetes.manifests import (
    FOLLOWED,
    NAME,
    RECORD,
    VERSION,
    Object,
    ServingRecord,
    Track,
    service_objects,
)
from longboat.serving.kubernetes.observe import existing_service
from longboat.serving.kubernetes.services import ClusterServices
from longboat.serving.kubernetes.status import record_of
from testbed.clusters import Cluster

pytestmark = pytest.mark.cluster

SERVED = ServingRecord(run="train", step=7, version=1, command=("app",), serve=Serve(replicas=0))


def objects_of(
    namespace: str, record: ServingRecord = SERVED, nonce: str = "n0", track: Track = "stable"
) -> list[Object]:
    metadata = {"name": "svc-v1-a0", "namespace": namespace}
    container = {"name": "main", "image": "x", "command": ["python3", "launcher.pyz"]}
    volumes = [{"name": "gang", "secret": {"secretName": "svc-v1-a0"}}]
    template = {"spec": {"containers": [container], "volumes": volumes}}
    run: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"code": "b3Vycw=="}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}},
    ]
    return service_objects("svc", record, run, nonce, track=track)


@pytest.fixture
def services(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[ClusterServices]:
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "LONGBOAT_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    engine = KubernetesEngine(namespace=namespace, environment=environment)
    yield ClusterServices(engine, notices.append)
    notices.clear()
    engine.close()


notices: list[str] = []


def test_a_secret_of_somebody_else_is_not_used(services: ClusterServices, namespace: str) -> None:
    client = services.client
    theirs = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "svc-v1-n0-0", "namespace": namespace},
        "data": {"code": "dGhlaXJz"},
    }
    client.create(theirs)
    with pytest.raises(EngineError, match="not of this run: another owns it"):
        services._put("svc", objects_of(namespace), is_new=True)
    assert client.find(DEPLOYMENT, "svc") is None, "nothing mounts it"
    # Nor one that says it belongs to the service.
    services._put("svc", objects_of(namespace, nonce="n1"), is_new=True)
    made = client.find(DEPLOYMENT, "svc")
    assert made is not None
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "svc", "uid": made["metadata"]["uid"]}
    client.create({**theirs, "metadata": {"name": "svc-v2-n2-0", "namespace": namespace, "ownerReferences": [owner]}})
    update = msgspec.structs.replace(SERVED, version=2, serve=Serve(replicas=0, port=81))
    with pytest.raises(EngineError, match="it holds something else"):
        services._put("svc", objects_of(namespace, update, "n2"), is_new=False)
    services._put("svc", objects_of(namespace, update, "n3"), is_new=False)
    service = client.find(SERVICE, "svc")
    assert service is not None and [port["port"] for port in service["spec"]["ports"]] == [81]
    services._forget_old("svc", 2)
    versions = {body["metadata"]["labels"][VERSION] for body in client.list(SECRET, labels=f"{NAME}=svc").items}
    assert versions == {"2"}


def test_a_followed_step_is_one_variable_of_the_same_pods(services: ClusterServices, namespace: str) -> None:
    client = services.client
    record = msgspec.structs.replace(SERVED, serve=Serve(replicas=0, follow="newest"))
    services._put("svc", objects_of(namespace, record), is_new=True)
    before = client.get(DEPLOYMENT, "svc")
    assert services.follow("svc") is None, "no pod could be asked"
    serve_step(client, before, msgspec.structs.replace(record, step=9))
    after = client.get(DEPLOYMENT, "svc")
    (made,), (changed,) = (body["spec"]["template"]["spec"]["containers"] for body in (before, after))
    assert changed.pop("env") == [{"name": FOLLOWED, "value": "9"}] and changed == made
    same, other = before["spec"]["template"]["spec"], after["spec"]["template"]["spec"]
    assert {**same, "containers": 0} == {**other, "containers": 0}
    status = services.status("svc")
    assert (status.step, status.version, status.follow) == (9, 2, "newest")
    services._forget_old("svc", record_of(after).made)
    assert [body["metadata"]["labels"][VERSION] for body in client.list(SECRET, labels=f"{NAME}=svc").items] == ["1"]
    with pytest.raises(Conflict):  # somebody has changed it since it was looked at
        serve_step(client, before, msgspec.structs.replace(record, step=10))
    # A version by hand has Secrets of its own again, and no variable.
    newer = msgspec.structs.replace(record, version=3)
    services._put("svc", objects_of(namespace, newer, "n3"), is_new=False)
    body = client.get(DEPLOYMENT, "svc")
    assert "env" not in body["spec"]["template"]["spec"]["containers"][0] and record_of(body).made == 3
    services._forget_old("svc", 3)
    assert [body["metadata"]["labels"][VERSION] for body in client.list(SECRET, labels=f"{NAME}=svc").items] == ["3"]


def test_scaling_takes_back_no_step_that_is_followed_meanwhile(
    services: ClusterServices, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = services.client
    record = msgspec.structs.replace(SERVED, serve=Serve(replicas=0, follow="newest"))
    services._put("svc", objects_of(namespace, record), is_new=True)
    looks: list[Object] = []

    def looked(client: Client, name: str) -> Object:
        body = existing_service(client, name)
        if not looks:
            serve_step(client, body, msgspec.structs.replace(record, step=9))
        looks.append(body)
        return body

    monkeypatch.setattr("longboat.serving.kubernetes.services.existing_service", looked)
    services.scale("svc", 2, None)
    now = client.get(DEPLOYMENT, "svc")
    assert (record_of(now).step, record_of(now).version, record_of(now).serve.replicas) == (9, 2, 2)
    assert now["spec"]["replicas"] == 2


def test_one_changed_annotation_does_not_hide_the_others(services: ClusterServices, namespace: str) -> None:
    services._put("svc", objects_of(namespace), is_new=True)
    deployment = objects_of(namespace)[0]
    deployment["metadata"] = {**deployment["metadata"], "name": "bad", "annotations": {RECORD: "{}"}}
    services.client.create(deployment)
    assert [status.name for status in services.list()] == ["svc"]
    assert len(notices) == 1 and "of bad is damaged" in notices[0]


def test_a_canary_is_promoted_with_what_it_mounts(services: ClusterServices, namespace: str) -> None:
    client = services.client
    services._put("svc", objects_of(namespace), is_new=True)
    newer = msgspec.structs.replace(SERVED, version=2, step=9)
    services._put_canary("svc", objects_of(namespace, newer, "n1", "canary"))
    (status,) = services.list()
    assert (status.name, status.step, status.canary) == ("svc", 7, "train:9")
    with pytest.raises(UsageError, match="the canary of another service"):
        services.exists("svc-canary")
    services._forget_old("svc", 3)
    assert [body["metadata"]["labels"][VERSION] for body in client.list(SECRET, labels=NAME).items] == ["2"]
    services.promote("svc")
    assert (services.status("svc").step, services.status("svc").canary) == (9, None)
    (secret,) = client.list(SECRET, labels=NAME).items
    stable = client.get(DEPLOYMENT, "svc")
    assert secret["metadata"]["ownerReferences"][0]["uid"] == stable["metadata"]["uid"], "it stays with the new owner"
    volume = stable["spec"]["template"]["spec"]["volumes"][0]
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    with pytest.raises(UsageError, match="has no canary"):
        services.promote("svc")
    services.stop("svc")
    for kind in (DEPLOYMENT, SECRET, SERVICE, PDB):
        assert client.list(kind, labels=f"{NAME}=svc").items == []


def test_scaling_by_load_is_kubernetes_own_where_it_has_metrics(services: ClusterServices, namespace: str) -> None:
    services._put("svc", objects_of(namespace), is_new=True)
    services._scale_by_load("svc", Serve(replicas=1, max_replicas=3))
    assert "asks for none (--cpus)" in notices[-1]
    asked = Serve(replicas=1, max_replicas=3, resources=Resources(cpus=1.0))
    services._scale_by_load("svc", asked)
    made = services.client.find(HPA, "svc")
    if made is None:
        assert "has no metrics" in notices[-1]
    else:
        assert (made["spec"]["minReplicas"], made["spec"]["maxReplicas"]) == (1, 3)
        services._scale_by_load("svc", Serve(replicas=2))
        assert services.client.find(HPA, "svc") is None


def test_a_service_may_have_the_name_of_the_run_that_it_serves(services: ClusterServices, namespace: str) -> None:
    """A run has a PodDisruptionBudget of its own name; services of older versions had one too."""
    client = services.client
    of_run = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "svc"}}
    selected = {"maxUnavailable": 0, "selector": {"matchLabels": {"longboat.dev/run": "svc"}}}
    client.create({**of_run, "spec": selected})
    services._put("svc", objects_of(namespace), is_new=True)
    newer = msgspec.structs.replace(SERVED, version=2)
    services._put("svc", objects_of(namespace, newer, "n1"), is_new=False)
    assert client.get(PDB, "svc")["spec"]["maxUnavailable"] == 0, "it is the run's, and stays"
    client.delete(PDB, "svc")
    deployment = client.get(DEPLOYMENT, "svc")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "svc", "uid": deployment["metadata"]["uid"]}
    older = {"name": "svc", "ownerReferences": [owner], "labels": {NAME: "svc"}}
    client.create({**of_run, "metadata": older, "spec": selected})
    services._put("svc", objects_of(namespace, msgspec.structs.replace(SERVED, version=3), "n2"), is_new=False)
    assert [body["metadata"]["name"] for body in client.list(PDB, labels=NAME).items] == ["svc.serve"]
