"""Every object that we make, sent to a real API server: strictly validated, nothing dropped, every field known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from longboat.core.jobs import Gpus, Resources, Retries, Volume
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.manifests.dropped_fields import dropped_fields
from longboat.engines.kubernetes.manifests.gang_file import CodeManifest
from longboat.engines.kubernetes.manifests.objects import AttemptStart
from longboat.engines.kubernetes.records import Record, State, Storage
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.kinds import PDB, POD
from testbed import api
from tests.engines.kubernetes.manifest_samples import gpu_role, job, record, role

START = AttemptStart(token="secret", suspended=True, timeout_s=60.0, code=CodeManifest(packs=2))


def full_record(**fields: Any) -> Record:
    """A run that uses everything that an object of ours may say."""
    roles = (
        gpu_role(8, "H100"),
        role("ps", resources=Resources(cpus=0.5, memory=1 << 30, shm=1 << 28, disk=10**9)),
    )
    volumes = (
        Volume(target="/data", claim="datasets", read_only=True),
        Volume(target="shared", nfs="files.example.org:/exports/shared"),
        Volume(target="/models", path="/srv/models"),
        Volume(target="tmp", scratch=True),
    )
    what = job(*roles, ends=("worker",), volumes=volumes, labels={"team": "vision"}, grace_s=12.5)
    what = msgspec.structs.replace(what, retries=Retries(count=2))
    given: dict[str, Any] = {
        "gpu_resource": "nvidia.com/gpu",
        "gpu_selector": {"worker": {"nvidia.com/gpu.product": ("NVIDIA-H100-80GB-HBM3",), "gpu": ("h100",)}},
        "packs": ("longboat-code-aaaa", "longboat-code-bbbb"),
        "storage": Storage(claim="keep", folder="longboat/train-01234567"),
        "secrets": {"HF_TOKEN": ("train-env", "HF_TOKEN")},
        "security": "restricted",
        "queue": "research",
        "queue_priority": "high",
        "topology": {"preferred": "cloud.provider.com/topology-rack"},
        "pull_secrets": ("registry",),
        "service_account": "trainer",
        "bundle": "ab" * 32,
        "commit": "cd" * 20,
        "dirty": True,
    }
    return record(what, **{**given, **fields})


def all_objects(what: Record) -> list[dict[str, Any]]:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": what.name, "uid": "c0ffee00-0000-0000-0000-000000000000"}
    return [
        objects.record_object(what, State()),
        *objects.run_objects(what, {"HF_TOKEN": b"value"}, owner=owner),
        *objects.attempt_objects(what, 0, START, owner=owner),
    ]


def check(client: Client, what: Record) -> None:
    for body in all_objects(what):
        answer = client.create(body, dry_run=True)
        assert dropped_fields(body, answer) == [], body["kind"]


RECORDS = [
    pytest.param(record(), id="plain"),
    pytest.param(full_record(), id="full"),
    pytest.param(full_record(security="baseline", queue=None, storage=None), id="baseline"),
    pytest.param(
        record(job(role(resources=Resources(gpus=Gpus(count=2)))), gpu_resource="dra:gpu.nvidia.com"), id="dra"
    ),
    pytest.param(record(job(role("r" * 20, nodes=1000), role("r" * 19, nodes=3), name="n" * 40)), id="long-names"),
]


@pytest.mark.cluster
@pytest.mark.parametrize("what", RECORDS)
def test_jobs_are_accepted_whole(what: Record, client: Client, namespace: str) -> None:
    check(client, msgspec.structs.replace(what, namespace=namespace))


@pytest.mark.pods("controllers")
@pytest.mark.parametrize("what", RECORDS)
def test_jobsets_are_accepted_whole(what: Record, client: Client, namespace: str) -> None:
    check(client, msgspec.structs.replace(what, namespace=namespace, workload="jobset"))


@pytest.mark.cluster
def test_claims_are_accepted_whole(client: Client, namespace: str) -> None:
    volumes = (Volume(target="/new", claim="new", size=1 << 30, storage_class="fast", access="ReadWriteMany"),)
    check(client, record(job(volumes=volumes), namespace=namespace))


@pytest.mark.cluster
def test_a_dropped_field_is_named(client: Client, namespace: str) -> None:
    """A field that the server knows, behind a gate that is closed: it vanishes without a word."""
    body = all_objects(record(namespace=namespace))[-1]
    body["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "x"}
    answer = client.create(body, dry_run=True)
    assert dropped_fields(body, answer) == ["spec.template.spec.schedulingGroup"]


@pytest.mark.cluster
def test_pods_of_a_run_cannot_be_drained(client: Client, namespace: str, kwok_nodes: Callable[..., list[str]]) -> None:
    kwok_nodes("2:h100x8")
    what = record(job(role(nodes=2)), namespace=namespace)
    start = msgspec.structs.replace(START, suspended=False)
    for body in [*objects.run_objects(what, {}), *objects.attempt_objects(what, 0, start)]:
        client.create(body)

    def healthy() -> int:
        return int((client.get(PDB, "train").get("status") or {}).get("currentHealthy", 0))

    api.wait_for("both pods run", lambda: healthy() == 2, 60.0)
    pod = client.list(POD, labels=names.pods_of("train")).items[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    with pytest.raises(ApiError, match="disruption budget"):
        client.request("POST", client.path(POD, None, pod, "eviction"), body=eviction, may_repeat=False)
    conditions = {each["type"]: each for each in client.get(PDB, "train")["status"]["conditions"]}
    assert conditions["DisruptionAllowed"]["reason"] == "InsufficientPods"
