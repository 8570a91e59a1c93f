"""Manifests applied with kubectl, and nothing of Longboat afterwards: the run itself is all there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from longboat.bundles.snapshot import take
from longboat.bundles.store import BundleStore
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests import objects as manifests
from longboat.engines.kubernetes.manifests.objects import AttemptStart
from longboat.engines.kubernetes.records import Record, State, Storage
from longboat.engines.kubernetes.submit.code.upload import plan_upload, send, upload_objects
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import POD
from testbed import api
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.manifest_samples import job, record, role

SCRIPT = """\
import os, socket
for address in os.environ["LONGBOAT_NODE_ADDRESSES"].split(","):
    socket.getaddrinfo(address, None)
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "sees", os.environ.get("TOKEN", "nothing"))
print("gpus", repr(os.environ["CUDA_VISIBLE_DEVICES"]), "uid", os.getuid())
print("large", os.path.getsize("large.bin") if os.path.exists("large.bin") else 0)
"""
WITHIN_S = 120.0


class Sandbox:
    def __init__(self, path: Path, namespace: str) -> None:
        self.code = path / "code"
        self.code.mkdir()
        (self.code / "train.py").write_text(SCRIPT)
        self.store = BundleStore(path / "bundles")
        self.namespace = namespace

    def record(self, **fields: Any) -> Record:
        what = job(role("worker", nodes=2, run="python3 train.py"), name="train")
        return record(what, namespace=self.namespace, **fields)


@pytest.fixture
def sandbox(tmp_path: Path, namespace: str) -> Sandbox:
    return Sandbox(tmp_path, namespace)


def wait_for_end(client: Client) -> list[dict[str, Any]]:
    def ended() -> list[dict[str, Any]] | None:
        pods = client.list(POD, labels=names.pods_of("train")).items
        phases = {(pod.get("status") or {}).get("phase") for pod in pods}
        return pods if pods and phases <= {"Succeeded", "Failed"} else None

    api.wait_for("all pods have ended", lambda: ended() is not None, WITHIN_S)
    pods = ended()
    assert pods is not None
    return pods


FAILS_AFTER_BOTH_SPOKE = """
import os, socket, sys, time
print("hello", flush=True)
here = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    socket.create_server(("", here[1])).accept()
    sys.exit(0)
while True:
    try:
        socket.create_connection(here, 1.0)
        sys.exit(3)
    except OSError:
        time.sleep(0.1)
"""


def said(client: Client, pods: list[dict[str, Any]]) -> str:
    return "".join(b"".join(client.log(pod["metadata"]["name"])).decode() for pod in pods)


@pytest.mark.pods
@pytest.mark.parametrize("security", ["baseline", "restricted"])
def test_a_run_applied_by_hand_ends_by_itself(
    sandbox: Sandbox, client: Client, kubectl: Kubectl, security: str
) -> None:
    level = {"pod-security.kubernetes.io/enforce": security}
    kubectl("label", "namespace", sandbox.namespace, *(f"{key}={value}" for key, value in level.items()))
    upload = plan_upload(None, sandbox.store, take(sandbox.code, sandbox.store), has_storage=False)
    what = sandbox.record(
        packs=upload.packs,
        launcher=upload.launcher,
        security=security,
        secrets={"TOKEN": ("train-env", "TOKEN")},
    )
    start = AttemptStart(token="t", suspended=True, code=upload.manifest)
    objects, notices = manifests.standalone(what, start, upload_objects(upload, sandbox.namespace))
    assert notices == [f"the Secret train-env with TOKEN is left out: create it in namespace {what.namespace} first"]
    kubectl("create", "secret", "generic", "train-env", "--from-literal=TOKEN=canary")
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    assert "canary" not in json.dumps(listed)
    kubectl("apply", "-f", "-", text=json.dumps(listed))
    kubectl("apply", "-f", "-", text=json.dumps(listed))
    pods = wait_for_end(client)
    text = said(client, pods)
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded", "Succeeded"], text
    assert "rank 0 of 2 sees canary" in text and "rank 1 of 2 sees canary" in text
    assert f"gpus '' uid {1000 if security == 'restricted' else 0}" in text
    kubectl("wait", "--for=condition=complete", "job/train-a0-worker", "--timeout=60s")


@pytest.mark.pods("controllers")
def test_a_jobset_applied_by_hand_ends_when_the_deciding_role_has(
    sandbox: Sandbox, client: Client, kubectl: Kubectl
) -> None:
    upload = plan_upload(None, sandbox.store, take(sandbox.code, sandbox.store), has_storage=False)
    long = "n" * 40
    roles = (role("w" * 20, nodes=2, run="python3 train.py"), role("ps", run="sleep 1000"))
    what = record(
        job(*roles, name=long, ends=("w" * 20,), grace_s=1.0),
        namespace=sandbox.namespace,
        packs=upload.packs,
        launcher=upload.launcher,
        workload="jobset",
    )
    start = AttemptStart(token="t", suspended=False, code=upload.manifest)
    objects, _ = manifests.standalone(what, start, upload_objects(upload, sandbox.namespace))
    kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    kubectl("wait", "--for=condition=completed", f"jobset/{long}-a0", "--timeout=110s", within_s=120.0)
    pods = client.list(POD, labels=names.pods_of(long)).items
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded"] * 3
    assert said(client, pods).count("of 3 sees nothing") == 2
    hosts = {f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}" for pod in pods}
    assert hosts == set(names.addresses(what.job, long, 0, "jobset"))


@pytest.mark.pods
def test_code_too_large_for_secrets_travels_through_the_storage(
    sandbox: Sandbox, client: Client, kubectl: Kubectl
) -> None:
    (sandbox.code / "large.bin").write_bytes(os.urandom(15 << 20))
    upload = plan_upload(client, sandbox.store, take(sandbox.code, sandbox.store), has_storage=True)
    folder = f"/var/longboat-{sandbox.namespace}"
    what = sandbox.record(
        stored_packs=upload.stored,
        launcher=upload.launcher,
        storage=Storage(path=folder, folder="longboat/train-01234567"),
    )
    owner = manifests.owner_of(client.create(manifests.record_object(what, State())))
    send(client, sandbox.store, upload, what, owner)()
    start = AttemptStart(token="t", suspended=False, code=upload.manifest)
    for body in manifests.attempt_objects(what, 0, start, owner=owner):
        client.create(body)
    pods = wait_for_end(client)
    text = said(client, pods)
    assert text.count(f"large {15 << 20}") == 2, text


@pytest.mark.pods
def test_a_pod_that_failed_leaves_the_others_and_their_logs(sandbox: Sandbox, client: Client, kubectl: Kubectl) -> None:
    (sandbox.code / "train.py").write_text(FAILS_AFTER_BOTH_SPOKE)
    upload = plan_upload(None, sandbox.store, take(sandbox.code, sandbox.store), has_storage=False)
    what = sandbox.record(packs=upload.packs, launcher=upload.launcher)
    start = AttemptStart(token="t", suspended=False, code=upload.manifest)
    objects, _ = manifests.standalone(what, start, upload_objects(upload, sandbox.namespace))
    kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    kubectl("wait", "--for=condition=failed", "job/train-a0-worker", "--timeout=90s")
    pods = client.list(POD, labels=names.pods_of("train")).items
    assert len(pods) == 2
    assert said(client, pods).count("hello") == 2
    codes = sorted(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for pod in pods)
    assert 3 in codes and set(codes) <= {0, 3, 143}, codes  # the other had ended by then, or was told to
