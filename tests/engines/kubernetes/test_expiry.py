"""Ended runs expire: which, when, what is left and how it is told; on a real API server, what is removed."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from longboat.core.errors import EngineError
from longboat.core.runs import Attempt
from longboat.engines.kubernetes import expiry, names
from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.observe.observe import observe
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot, WorkloadView
from longboat.engines.kubernetes.observe.termination import PodEnd
from longboat.engines.kubernetes.record_store import find_record, list_records, read_record
from longboat.engines.kubernetes.records import State, Storage
from longboat.engines.kubernetes.status import brief_status, expiry_words
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, SECRET, Kind
from testbed import api
from testbed.clusters import Cluster
from tests.engines.kubernetes.controlling import controlled
from tests.engines.kubernetes.manifest_samples import record

ENDED = State(phase="succeeded", exit_code=0, started=10.0, ended=100.0, attempts=(Attempt(number=0, started=10.0),))
JOB_OF_IT = WorkloadView(name="train-a0-worker", uid="j", attempt=0, owner="u", is_complete=True)
POD = PodView(name="p", uid="p", role="worker", index=0, attempt=0, is_started=True)
OVER = msgspec.structs.replace(POD, end=PodEnd(exit_code=0))


def seen(state: State = ENDED, **fields: Any) -> RunSnapshot:
    given = {"keep_s": 50.0, "workloads": (JOB_OF_IT,), "pods": (OVER,), **fields}
    return RunSnapshot(record=record(), state=state, uid="u", version="1", **given)


@pytest.mark.parametrize(
    ("snapshot", "now", "is_due"),
    [
        (seen(), 150.0, True),
        (seen(), 149.0, False),
        (seen(keep_s=None), 1e9, False),
        (seen(is_deleting=True), 150.0, False),
        (seen(msgspec.structs.replace(ENDED, phase="running")), 150.0, False),
        (seen(msgspec.structs.replace(ENDED, ended=None)), 150.0, False),
        (seen(workloads=()), 150.0, False),  # a record that owns no workload may be anybody's
        (seen(pods=(OVER, POD)), 150.0, False),  # whatever the record says, something goes on
        (seen(pods=()), 150.0, True),
    ],
)
def test_what_the_controller_removes(snapshot: RunSnapshot, now: float, is_due: bool) -> None:
    assert expiry.is_due(snapshot, now) is is_due


@pytest.mark.parametrize(
    ("annotation", "due"),
    [("50", 150.0), ("0", 100.0), (None, None), ("", None), ("-5", None), ("1e9", None), ("9" * 30, None), ("x", None)],
)
def test_when_a_run_expires(annotation: str | None, due: float | None) -> None:
    annotations = {} if annotation is None else {names.KEEP: annotation}
    assert expiry.due_at(annotations, ENDED) == due
    assert expiry.due_at(annotations, State(phase="running", ended=100.0)) is None


@pytest.mark.parametrize(
    ("fields", "state", "words"),
    [
        ({}, {}, "nothing but its record"),
        ({}, {"tails": {"0/worker-0": "x"}}, "last lines of its log: `longboat logs`"),
        (
            {"storage": Storage(claim="training", folder="longboat/train-ab")},
            {"checkpoint": "/longboat/storage/longboat/train-ab/checkpoints/step-5"},
            "log and artifacts: claim training, folder longboat/train-ab; newest checkpoint: "
            "/longboat/storage/longboat/train-ab/checkpoints/step-5 in claim training",
        ),
        ({"checkpoint_store": "s3://b/train-ab"}, {}, "checkpoints: s3://b/train-ab"),
    ],
)
def test_what_is_left_and_where(fields: dict[str, Any], state: dict[str, Any], words: str) -> None:
    expired = msgspec.structs.replace(ENDED, expired=1000.0, **state)
    told = expiry_words(record(**fields), expired)
    assert told == f"train expired 1970-01-01T00:16:40Z: its pods are gone. Left: {words}"
    assert brief_status(record(**fields), expired).expired == 1000.0


def left_of(state: State, name: str = "train.expired") -> dict[str, Any]:
    body = objects.record_object(record(), state)
    body["metadata"]["name"] = name
    body["metadata"]["labels"][names.KIND] = names.EXPIRED_RUN
    return body


def test_a_record_says_that_it_has_expired_only_where_it_has() -> None:
    expired = msgspec.structs.replace(ENDED, expired=1000.0)
    assert read_record(left_of(expired))[1] == expired
    live = objects.record_object(record(), expired)
    running = left_of(State(phase="running", expired=1000.0))
    wild = left_of(msgspec.structs.replace(ENDED, expired=1e13))
    for body in (live, running, left_of(ENDED), left_of(expired, "train"), left_of(expired, "other.expired"), wild):
        with pytest.raises(EngineError, match="the record of run"):
            read_record(body)


class ConfigMaps:
    """Those of a namespace: as much of a client as expiry asks."""

    namespace = "default"

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.there = {str(body["metadata"]["name"]): body for body in bodies}

    def now(self) -> float:
        return 1000.0

    def find(self, _: Kind, name: str) -> dict[str, Any] | None:
        return self.there.get(name)

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["metadata"]["name"] in self.there:
            raise AlreadyExists("there is one")
        self.there[body["metadata"]["name"]] = {**body, "metadata": {**body["metadata"], "uid": "new"}}
        return body

    def delete(self, _: Kind, name: str, *, uid: str | None) -> None:
        assert uid is not None
        if name in self.there and self.there[name]["metadata"].get("uid") == uid:
            del self.there[name]


def live(**fields: Any) -> dict[str, Any]:
    body = objects.record_object(record(**fields), ENDED)
    body["metadata"]["uid"] = "u"
    return body


def test_the_name_of_what_is_left_may_be_taken() -> None:
    mine = {"metadata": {"name": "train.expired", "uid": "m"}, "data": {"precious": "x"}}
    damaged = left_of(State(phase="running", expired=1.0))
    for body in (mine, {**mine, "metadata": {**damaged["metadata"], "uid": "m"}}, damaged):
        store = ConfigMaps(live(), body)
        with pytest.raises(EngineError, match="the objects of train stay"):
            expiry.expire(cast("Client", store), seen())
        assert store.there["train.expired"] is body and "train" in store.there
    earlier = left_of(msgspec.structs.replace(ENDED, expired=1.0))
    earlier["data"]["record"] = msgspec.json.encode(record(uid="f" * 16)).decode()
    earlier["metadata"]["uid"] = "e"
    store = ConfigMaps(live(), earlier)
    expiry.expire(cast("Client", store), seen())
    assert read_record(store.there["train.expired"])[0].uid == record().uid and "train" not in store.there


def test_what_is_left_of_a_trial_still_belongs_to_its_sweep() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "s.sweep", "uid": "s"}
    body = live()
    body["metadata"]["ownerReferences"] = [owner]
    store = ConfigMaps(body)
    expiry.expire(cast("Client", store), seen())
    assert store.there["train.expired"]["metadata"]["ownerReferences"] == [owner] and "train" not in store.there


def test_a_run_whose_end_is_not_written_down_loses_nothing() -> None:
    store = ConfigMaps(live())
    with pytest.raises(EngineError, match="has not ended"):
        expiry.expire(cast("Client", store), seen(msgspec.structs.replace(ENDED, phase="running")))
    assert list(store.there) == ["train"]


def test_a_template_proves_a_run_that_never_started() -> None:
    assert expiry.is_due(seen(workloads=(), pods=()), 150.0, has_template=True)
    assert not expiry.is_due(seen(workloads=(), pods=(POD,)), 150.0, has_template=True)


@pytest.mark.cluster
def test_objects_go_and_the_summary_stays(cluster: Cluster, namespace: str) -> None:
    environment = {"KUBECONFIG": str(cluster.kubeconfig)}
    with Client.open(namespace=namespace, environment=environment) as client:
        shared = client.create(secret("longboat-code-x"))
        old, young, kept = (make(client, name, shared) for name in ("old", "young", "kept"))
        forged = make(client, "forged", shared, owns=False)
        for name, keep in (("old", "60"), ("young", "9000000000"), ("forged", "60")):
            client.patch(CONFIG_MAP, name, {"metadata": {"annotations": {names.KEEP: keep}}})
        said: list[str] = []
        with controlled(environment, namespace, said):
            api.wait_for("it has expired", lambda: client.find(CONFIG_MAP, "old") is None, 60.0, every_s=0.1)
            api.wait_for("its Job goes", lambda: client.find(JOB, "old-a0-worker") is None, 60.0, every_s=0.1)
            api.wait_for("its Secret goes", lambda: client.find(SECRET, "old-a0") is None, 60.0, every_s=0.1)
        assert said == []
        runs = {run.record.name: run.state.expired for run in list_records(client)}
        assert runs.pop("old") is not None and runs == dict.fromkeys(("young", "kept", "forged"))
        assert read_record(find_record(client, "old"))[1].exit_code == 0
        owners = client.get(SECRET, "longboat-code-x")["metadata"]["ownerReferences"]
        assert {owner["uid"] for owner in owners} >= {young, kept, forged}, "others' code stays"
        assert all(client.find(JOB, f"{name}-a0-worker") is not None for name in ("young", "kept"))
        assert client.find(SECRET, "forged-a0") is not None, "a record without a workload makes nobody remove anything"
        # By hand it is the same, and what has expired is not removed again.
        expiry.expire(client, observe(client, "kept", client.now()))
        assert client.find(CONFIG_MAP, "kept") is None and old
        with pytest.raises(EngineError):
            read_record(client.create(left_of(State(phase="running"), "mine.expired")))


def secret(name: str, owner: objects.Owner | None = None) -> dict[str, Any]:
    meta = {"name": name, **({"ownerReferences": [owner]} if owner else {})}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"x": "x"}}


def make(client: Client, name: str, shared: dict[str, Any], *, owns: bool = True) -> str:
    """A run that ended long ago: its record, its Secret, a Job with nothing to do, a share in the code of others."""
    body = objects.record_object(record(name=name, namespace=client.namespace), ENDED)
    body["metadata"]["labels"][names.RUN] = name
    owner = objects.owner_of(client.create(body))
    client.create(secret(f"{name}-a0", owner))
    known = client.get(SECRET, shared["metadata"]["name"])["metadata"].get("ownerReferences") or []
    client.patch(SECRET, shared["metadata"]["name"], {"metadata": {"ownerReferences": [*known, owner]}})
    if owns:
        labels = {names.MANAGED_BY: "longboat", names.RUN: name, names.ROLE: "worker", names.ATTEMPT: "0"}
        container = {"name": "main", "image": "x"}
        spec = {"completions": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        meta = {"name": f"{name}-a0-worker", "labels": labels, "ownerReferences": [owner]}
        client.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})
        job = f"{name}-a0-worker"
        api.wait_for("it is complete", lambda: client.get(JOB, job)["status"].get("conditions"), 60.0, every_s=0.05)
    return str(owner["uid"])
