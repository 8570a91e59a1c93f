from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from longboat.core.jobs import Retries, Volume
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests import gang_file
from longboat.engines.kubernetes.manifests import objects as manifests
from longboat.engines.kubernetes.manifests.gang_file import CodeManifest
from longboat.engines.kubernetes.manifests.objects import AttemptStart
from longboat.engines.kubernetes.records import Record, State
from tests.engines.kubernetes.manifest_samples import gpu_role, job, record, role

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "train", "uid": "u-1"}
START = AttemptStart(token="secret", suspended=True)


def kinds(objects: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(body["kind"], body["metadata"]["name"]) for body in objects]


def test_the_record_holds_what_was_submitted_and_the_state() -> None:
    what = record(bundle="ab" * 32, commit="cd" * 20, dirty=True)
    body = manifests.record_object(what, State(reason="is being started"))
    assert body["metadata"]["name"] == "train" and body["metadata"]["namespace"] == "default"
    assert body["metadata"]["labels"]["longboat.dev/kind"] == "run"
    assert msgspec.json.decode(body["data"]["record"], type=Record) == what
    assert msgspec.json.decode(body["data"]["state"], type=State).reason == "is being started"
    annotations = body["metadata"]["annotations"]
    assert annotations["longboat.dev/code"] == "ab" * 32
    assert annotations["longboat.dev/commit"] == "cd" * 20 + "-dirty"
    assert len(annotations["longboat.dev/spec"]) == 64
    assert "ownerReferences" not in body["metadata"]


def test_objects_of_a_run() -> None:
    found = manifests.run_objects(record(), {"HF_TOKEN": b"value"}, owner=OWNER)
    assert kinds(found) == [("Secret", "train-env"), ("PodDisruptionBudget", "train")]
    assert found[0]["data"] == {"HF_TOKEN": base64.b64encode(b"value").decode()}
    assert kinds(manifests.run_objects(record(), {})) == [("PodDisruptionBudget", "train")]


def test_no_pod_of_the_gang_may_be_drained() -> None:
    (budget,) = manifests.run_objects(record(job(role(nodes=3), role("ps", nodes=2))), {})
    assert budget["spec"]["minAvailable"] == 5
    assert budget["spec"]["selector"]["matchLabels"] == {"longboat.dev/run": "train"}


def test_objects_of_an_attempt_come_in_the_order_of_their_creation() -> None:
    two = job(role("chief"), role("worker", nodes=2))
    found = manifests.attempt_objects(record(two), 3, START, owner=OWNER)
    assert kinds(found) == [
        ("Secret", "train-a3"),
        ("Service", "train-a3"),
        ("Job", "train-a3-chief"),
        ("Job", "train-a3-worker"),
    ]
    assert kinds(manifests.attempt_objects(record(two, workload="jobset"), 0, START))[2:] == [("JobSet", "train-a0")]


def test_devices_are_claimed_by_a_template_for_each_role() -> None:
    what = record(job(gpu_role(2), role("ps")), gpu_resource="dra:gpu.example.org")
    (template,) = (b for b in manifests.attempt_objects(what, 0, START) if b["kind"] == "ResourceClaimTemplate")
    assert template["metadata"]["name"] == "train-a0-worker"
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "gpu.example.org", "count": 2}


def test_the_attempts_secret_has_the_gang_and_the_token() -> None:
    code = CodeManifest(entries=(("a", "file", "ab" * 32, False, ""),), packs=1)
    start = msgspec.structs.replace(START, code=code, timeout_s=5.0)
    secret = manifests.attempt_objects(record(), 0, start)[0]
    gang = gang_file.decode(base64.b64decode(secret["data"]["gang"]))
    assert gang_file.code_of(gang) == code and gang["timeout_s"] == 5.0
    assert base64.b64decode(secret["data"]["token"]) == b"secret"
    assert secret["immutable"] is True


def test_the_service_gives_pods_their_addresses_before_they_are_ready() -> None:
    service = manifests.attempt_objects(record(), 2, START)[1]
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"longboat.dev/run": "train", "longboat.dev/attempt": "2"},
    }
    labels = manifests.attempt_objects(record(), 2, START)[2]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


@pytest.mark.parametrize("workload", ["job", "jobset"])
def test_every_object_is_ours_by_label_and_owner(workload: str) -> None:
    what = record(job(gpu_role(1), labels={"team": "vision"}), workload=workload, gpu_resource="dra:x")
    attempts = manifests.attempt_objects(what, 1, START, owner=OWNER)
    for body in [*manifests.run_objects(what, {"A": b"b"}, owner=OWNER), *attempts]:
        labels = body["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "longboat" and labels["longboat.dev/run"] == "train"
        assert labels["longboat.dev/user"] == "anna-example.org" and labels["team"] == "vision"
        assert body["metadata"]["ownerReferences"] == [OWNER]
        assert body["metadata"]["namespace"] == "default"
    assert all(body["metadata"]["labels"]["longboat.dev/attempt"] == "1" for body in attempts)


def test_labels_of_the_user_cannot_pose_as_ours_or_as_kubernetes_own() -> None:
    hostile = {
        "longboat.dev/run": "other",
        "app.kubernetes.io/managed-by": "helm",
        "kueue.x-k8s.io/queue-name": "vip",
        "batch.kubernetes.io/job-name": "x",
        "team": "a",
        "example.org/x": "y",
    }
    labels = manifests.labels_of(record(job(labels=hostile)))
    assert labels == {
        "team": "a",
        "example.org/x": "y",
        "app.kubernetes.io/managed-by": "longboat",
        "longboat.dev/run": "train",
        "longboat.dev/user": "anna-example.org",
    }


def test_claims_are_made_first_and_belong_to_nobody() -> None:
    what = record(job(volumes=(Volume(target="/x", claim="new", size=1 << 30),)))
    found = manifests.run_objects(what, {}, owner=OWNER)
    assert kinds(found) == [("PersistentVolumeClaim", "new"), ("PodDisruptionBudget", "train")]
    assert "ownerReferences" not in found[0]["metadata"]
    assert names.RUN not in found[0]["metadata"]["labels"]


def test_the_owner_is_the_record_as_the_server_has_it() -> None:
    made = {"metadata": {"name": "train", "uid": "u-1", "resourceVersion": "7"}}
    assert manifests.owner_of(made) == OWNER


def test_a_run_to_be_applied_by_hand_has_no_owner_and_no_secret() -> None:
    what = record(job(retries=Retries(count=2)), secrets={"B": ("train-env", "B"), "A": ("train-env", "A")})
    shared = [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "longboat-code-x"}}]
    objects, notices = manifests.standalone(what, START, shared)
    assert kinds(objects) == [
        ("Secret", "longboat-code-x"),
        ("PodDisruptionBudget", "train"),
        ("Secret", "train-a0"),
        ("Service", "train-a0"),
        ("Job", "train-a0-worker"),
    ]
    assert objects[-1]["spec"]["suspend"] is False
    assert "ownerReferences" not in json.dumps(objects)
    assert notices == [
        "the Secret train-env with A, B is left out: create it in namespace default first",
        "nobody retries a run that was applied by hand",
    ]


def test_the_same_run_gives_the_same_objects() -> None:
    assert manifests.attempt_objects(record(), 0, START) == manifests.attempt_objects(record(), 0, START)
