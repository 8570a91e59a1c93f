"""Templates are inert, vouch for one record, and a copy of one is what the record would have been rendered to."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from longboat.core.jobs import Retries
from longboat.engines.kubernetes import creation, names
from longboat.engines.kubernetes.manifests import gang_file, objects, retry_template
from longboat.engines.kubernetes.manifests.gang_file import CodeManifest
from longboat.engines.kubernetes.manifests.objects import AttemptStart
from longboat.engines.kubernetes.manifests.workloads import QUEUE, workloads
from longboat.engines.kubernetes.records import Record, Storage
from tests.engines.kubernetes.manifest_samples import gpu_role, job, record, role

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "train", "uid": "u-1"}
START = AttemptStart(token="0" * 32, suspended=True, code=CodeManifest(entries=(), packs=0))
OVERLAY = {
    "metadata": {"labels": {"team": "vision"}},
    "spec": {
        "hostPID": False,
        "volumes": [{"name": "cache", "hostPath": {"path": "/cache"}}],
        "containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}, {"name": "side", "image": "side"}],
    },
}


def samples() -> list[Record]:
    two = job(role("chief"), role("worker", nodes=3), retries=Retries(count=12))
    long = job(role("evaluator-of-everything-there-is-to-know"), name="r" * 40, retries=Retries(count=12))
    return [
        record(job(retries=Retries(count=12), labels={"team": "x"})),
        record(two, pod=OVERLAY, service_account="trainer", pull_secrets=("pull",)),
        record(two, workload="jobset", pod=OVERLAY),
        record(long),
        record(long, workload="jobset"),
        record(job(gpu_role(nodes=2), retries=Retries(count=1)), gpu_resource="dra:gpu.nvidia.com"),
        record(job(gpu_role(nodes=2), retries=Retries(count=1)), gpu_resource="dra:gpu.nvidia.com", workload="jobset"),
        record(two, queue="research", queue_priority="high", gated_by="kueue", topology={"required": "rack"}),
        record(two, secrets={"TOKEN": ("train-env", "TOKEN")}, storage=Storage(claim="data", folder="f")),
    ]


def as_held(body: dict[str, Any]) -> dict[str, Any]:
    """As the server holds a Job: with a selector, and with labels of its own on the pods."""
    held = copy.deepcopy(body)
    held["metadata"] |= {"uid": "j-1", "resourceVersion": "5", "generation": 1}
    for spec in [held["spec"]] if held["kind"] == "Job" else []:
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": "j-1"}}
        marks = {"batch.kubernetes.io/controller-uid": "j-1", "controller-uid": "j-1"}
        marks |= {"batch.kubernetes.io/job-name": "x", "job-name": "x"}
        spec["template"]["metadata"]["labels"] |= marks
        spec["template"]["metadata"]["creationTimestamp"] = None
    return held


@pytest.mark.parametrize("attempt", [1, 2, 11])
@pytest.mark.parametrize("what", samples())
def test_a_copy_is_what_the_record_is_rendered_to(what: Record, attempt: int) -> None:
    """Also the guard for a new field that depends on the attempt: it must be replaced in copies too."""
    rendered = workloads(what, attempt, objects.labels_of(what, attempt), suspended=True)
    held = [as_held(body) for body in objects.retry_templates(what, "pin", owner=OWNER)]
    assert retry_template.copies(held, what, attempt, rendered) == rendered


@pytest.mark.parametrize("what", samples())
def test_a_template_is_inert(what: Record) -> None:
    for body in objects.retry_templates(what, "pin", owner=OWNER):
        assert body["spec"]["suspend"] is True and body["metadata"]["ownerReferences"] == [OWNER]
        own = {names.MANAGED_BY: "longboat", names.KIND: "template", names.TEMPLATE_OF: what.name}
        queue = {} if what.queue is None else {QUEUE: retry_template.NO_QUEUE}
        assert body["metadata"]["labels"] == {**own, **queue}, "Kueue gives it to no queue that is there"
        assert QUEUE not in str(body["spec"]) and names.RUN + "'" not in str(body) and names.ATTEMPT not in str(body)
        for job_ in retry_template._jobs(body):
            assert job_["spec"]["parallelism"] == 0
        assert retry_template.pins_of(body) == {"pin"}
        assert len(body["metadata"]["name"]) <= 63


def test_a_copy_keeps_what_the_server_holds_and_not_what_the_record_says() -> None:
    """A record that was changed afterwards gets the container that the submitter created."""
    honest = record(job(retries=Retries(count=1)))
    held = [as_held(body) for body in objects.retry_templates(honest, "pin", owner=OWNER)]
    evil = {"spec": {"hostPID": True, "containers": [{"name": "main", "securityContext": {"privileged": True}}]}}
    forged = record(job(retries=Retries(count=1)), images={"worker": "evil"}, service_account="admin", pod=evil)
    rendered = workloads(forged, 1, objects.labels_of(forged, 1), suspended=False)
    (made,) = retry_template.copies(held, forged, 1, rendered)
    shown = str(made["spec"])
    assert not any(word in shown for word in ("evil", "admin", "privileged", "hostPID"))


def secret(gang: bytes = b"gang", token: bytes = b"0" * 32) -> dict[str, Any]:
    data = {"gang": base64.b64encode(gang).decode(), "token": base64.b64encode(token).decode()}
    return {"kind": "Secret", "metadata": {"name": "train-a0", "ownerReferences": [OWNER]}, "data": data}


def test_a_pin_is_of_one_record_one_gang_file_and_one_token() -> None:
    pins = [
        retry_template.pin_of("hash", secret()),
        retry_template.pin_of("other", secret()),
        retry_template.pin_of("hash", secret(gang=b"other")),
        retry_template.pin_of("hash", secret(token=b"1" * 32)),
        retry_template.pin_of("hash", {}),
    ]
    assert len(set(pins)) == 5 and retry_template.pin_of("hash", secret()) == pins[0]


def test_tokens_of_attempts_follow_from_the_first_and_are_as_long() -> None:
    tokens = {retry_template.token_of(secret(), attempt) for attempt in range(1, 4)}
    tokens |= {retry_template.token_of(secret(token=b"1" * 32), 1)}
    assert len(tokens) == 4 and {len(token) for token in tokens} == {32}


def attempt_secret(token: str = "1" * 32, timeout_s: float | None = None, run: str = "train") -> dict[str, Any]:
    start = AttemptStart(token=token, suspended=True, timeout_s=timeout_s)
    return objects.attempt_objects(record(job(name=run)), 1, start, owner=OWNER)[0]


def test_what_is_there_already_must_be_the_same() -> None:
    def told(wanted: dict[str, Any], found: dict[str, Any], **how: Any) -> str:
        return creation.difference(wanted, found, owner="u-1", **how)

    ours = attempt_secret()
    assert told(ours, attempt_secret(timeout_s=5.0)) == ""
    planted = attempt_secret(token="2" * 32)
    assert "token" in told(ours, planted) and told(ours, planted, same_token=False) == ""
    other = attempt_secret(run="other")
    assert "gang file" in told(ours, {**other, "metadata": ours["metadata"]})
    assert "gang file" in told(ours, {**ours, "data": {**ours["data"], "gang": base64.b64encode(b"x").decode()}})
    assert "owns" in told(ours, {**ours, "metadata": {"name": "train-a1"}})
    service = objects.attempt_objects(record(), 1, START, owner=OWNER)[1]
    grown = {**service, "spec": {**service["spec"], "type": "ClusterIP", "clusterIPs": ["None"]}}
    assert told(service, grown) == ""
    elsewhere = {**service, "spec": {**service["spec"], "selector": {"app": "thief"}}}
    assert "something else" in told(service, elsewhere)
    assert gang_file.decode(base64.b64decode(ours["data"]["gang"]))["plan"]["attempt"] == 1
