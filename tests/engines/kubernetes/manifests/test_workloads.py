from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.core.errors import LAUNCHER_KILLED_CODE, RUN_REPLACED_EXIT
from longboat.core.jobs import Retries
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests.workloads import workloads
from longboat.launcher.node.plan import EXIT_KILLED, EXIT_REPLACED
from tests.engines.kubernetes.manifest_samples import job, record, role

LABELS = {"longboat.dev/run": "train", "longboat.dev/attempt": "2"}
ROLES = job(role("chief"), role("worker", nodes=3), role("ps", nodes=2))


def made(**fields: Any) -> list[dict[str, Any]]:
    return workloads(record(ROLES, **fields), 2, LABELS, suspended=True)


def check_job_spec(spec: dict[str, Any], nodes: int, role_name: str) -> None:
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == nodes
    assert spec["backoffLimitPerIndex"] == 0 and "backoffLimit" not in spec
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["template"]["metadata"]["labels"] == {**LABELS, "longboat.dev/role": role_name}
    assert spec["template"]["spec"]["subdomain"] == "train-a2"
    assert not {"ttlSecondsAfterFinished", "activeDeadlineSeconds"} & set(spec)


def test_a_job_for_every_role() -> None:
    found = made()
    assert [each["metadata"]["name"] for each in found] == ["train-a2-chief", "train-a2-worker", "train-a2-ps"]
    for body, each in zip(found, ROLES.roles):
        assert (body["kind"], body["apiVersion"]) == ("Job", "batch/v1")
        assert body["spec"]["suspend"] is True
        assert body["metadata"]["labels"] == {**LABELS, "longboat.dev/role": each.name}
        check_job_spec(body["spec"], each.nodes, each.name)


@pytest.mark.parametrize(
    ("retries", "nodes", "exits"),
    [
        (Retries(count=3), 2, [137, 213]),
        (Retries(count=3, on=("oom", "lost", 7)), 2, [137, 213]),
        (Retries(count=3, on=("lost", "preemption")), 2, [213]),
        (Retries(count=3, restart="new"), 2, []),
        (Retries(), 2, []),
        (Retries(count=3), 1, []),
    ],
)
def test_whose_pods_are_replaced(retries: Retries, nodes: int, exits: list[int]) -> None:
    """Only by the exit codes of a launcher that asks for it or was killed, which may be for want of memory; everything
    else fails its index."""
    gang = msgspec.structs.replace(job(role("worker", nodes=nodes)), retries=retries)
    (body,) = workloads(record(gang), 0, LABELS, suspended=False)
    spec = body["spec"]
    assert spec["backoffLimitPerIndex"] == (3 if exits else 0)
    assert ("podFailurePolicy" in spec) == bool(exits)
    if exits:
        first, *others = spec["podFailurePolicy"]["rules"]
        assert first == {
            "action": "Count",
            "onExitCodes": {"containerName": "main", "operator": "In", "values": exits},
        }
        conditions = [(each["action"], each["onPodConditions"]) for each in others]
        assert conditions == [("FailIndex", [{"type": "PodScheduled", "status": word}]) for word in ("True", "False")]
    assert (LAUNCHER_KILLED_CODE, RUN_REPLACED_EXIT) == (EXIT_KILLED, EXIT_REPLACED) == (137, 213)


def test_the_range_of_an_elastic_role_stands_on_its_job_alone() -> None:
    """An autoscaler reads Jobs, and no records."""
    gang = job(role("worker", nodes=4, min_nodes=2, max_nodes=8), role("ps", nodes=2))
    range_ = {"longboat.dev/nodes": "2-8"}
    worker, servers = workloads(record(gang), 2, LABELS, suspended=True)
    assert worker["metadata"]["annotations"] == range_ and "annotations" not in servers["metadata"]
    assert "longboat.dev/nodes" not in worker["spec"]["template"]["metadata"].get("annotations", {})
    (jobset,) = workloads(record(gang, workload="jobset"), 2, LABELS, suspended=True)
    first, second = (each["template"]["metadata"] for each in jobset["spec"]["replicatedJobs"])
    assert first["annotations"] == range_ and "annotations" not in second
    assert "annotations" not in jobset["metadata"]
    never = workloads(record(msgspec.structs.replace(gang, grow="never")), 2, LABELS, suspended=True)
    assert not any("annotations" in body["metadata"] for body in never)


def test_one_jobset_for_all_roles() -> None:
    (body,) = made(workload="jobset")
    assert (body["kind"], body["apiVersion"]) == ("JobSet", "jobset.x-k8s.io/v1alpha2")
    assert body["metadata"] == {"name": "train-a2", "labels": LABELS}
    spec = body["spec"]
    assert spec["suspend"] is True and spec["failurePolicy"] == {"maxRestarts": 0}
    assert "successPolicy" not in spec
    assert spec["network"] == {
        "enableDNSHostnames": True,
        "subdomain": "train-a2",
        "publishNotReadyAddresses": True,
    }
    assert [each["name"] for each in spec["replicatedJobs"]] == ["chief", "worker", "ps"]
    for replicated, each in zip(spec["replicatedJobs"], ROLES.roles):
        assert replicated["replicas"] == 1
        assert replicated["template"]["metadata"]["labels"][names.ROLE] == each.name
        check_job_spec(replicated["template"]["spec"], each.nodes, each.name)


def test_kueue_finds_its_labels_on_what_it_admits() -> None:
    queued = {"queue": "research", "queue_priority": "high"}
    expected = {"kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/priority-class": "high"}
    (jobset,) = made(workload="jobset", **queued)
    for body in (jobset, *made(**queued)):
        assert expected.items() <= body["metadata"]["labels"].items()
    template = jobset["spec"]["replicatedJobs"][0]["template"]
    assert not any("kueue" in key for key in template["metadata"]["labels"])
    (plain,) = made(workload="jobset", queue="research")
    assert "kueue.x-k8s.io/priority-class" not in plain["metadata"]["labels"]


def test_what_is_not_held_back_starts_at_once() -> None:
    found = workloads(record(), 0, LABELS, suspended=False)
    assert [body["spec"]["suspend"] for body in found] == [False]


def test_a_role_with_a_shortened_name_keeps_its_whole_name_as_a_label() -> None:
    what = record(job(role("r" * 20, nodes=100), name="n" * 40), workload="jobset")
    (body,) = workloads(what, 0, {}, suspended=False)
    (replicated,) = body["spec"]["replicatedJobs"]
    assert len(replicated["name"]) < 20
    assert replicated["template"]["spec"]["template"]["metadata"]["labels"][names.ROLE] == "r" * 20
    assert replicated["template"]["spec"]["template"]["spec"]["containers"][0]["command"][-1] == "r" * 20
