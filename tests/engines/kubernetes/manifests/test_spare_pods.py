"""Spare nodes in the objects of a run: pods, room and names for nodes and spares, and ranks for the nodes alone."""

from __future__ import annotations

from longboat.core.jobs import Job, Retries
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests import gang_file
from longboat.engines.kubernetes.manifests.gang_pods import gang_pods
from longboat.engines.kubernetes.manifests.objects import run_objects
from longboat.engines.kubernetes.manifests.workloads import workloads
from longboat.launcher.pod.gang_file import plan_of
from tests.engines.kubernetes.manifest_samples import gpu_role, job, record, role

SPARED: Job = job(role("ps", nodes=2), gpu_role(nodes=3, spares=2), retries=Retries(count=2))


def test_every_role_has_pods_for_its_nodes_and_spares() -> None:
    run = record(SPARED)
    specs = [body["spec"] for body in workloads(run, 0, {}, suspended=True)]
    assert [(spec["completions"], spec["parallelism"]) for spec in specs] == [(2, 2), (5, 5)]
    budget = next(each for each in run_objects(run, {}) if each["kind"] == "PodDisruptionBudget")
    assert budget["spec"]["minAvailable"] == 7
    pods = gang_pods(record(SPARED, gpu_resource="nvidia.com/gpu"), 0, {})
    assert [pod.name for pod in pods] == ["ps-0", "ps-1", *(f"worker-{index}" for index in range(5))]
    assert sum(dict(pod.shape.requests).get("nvidia.com/gpu", 0) for pod in pods) == 40, "what the gate fits"


def test_the_gang_file_lays_out_the_nodes_alone() -> None:
    run = record(SPARED)
    gang = gang_file.decode(
        gang_file.encode(gang_file.gang_of(run, gang_file.layout_of(run, 0), timeout_s=None, code=None))
    )
    assert [gang_file.node_of(gang, place).name for place in range(5)] == [node for node, _ in _nodes(gang)]
    assert [(each["role"], each["index"], each["address"]) for each in gang["spares"]] == [
        ("worker", index, f"train-a0-worker-{index}.train-a0") for index in (3, 4)
    ]
    plan = plan_of(gang, "worker", 4, "/longboat", [])
    assert (plan["node"], plan["ranks"], plan["node_rank"]) == ("worker-4", [], 6)
    assert plan["env"]["LONGBOAT_NODE_RANK"] == "4", "its setup sees what that of the last node sees"
    assert [peer["node"] for peer in plan["peers"]] == ["ps-0", "ps-1", "worker-0", "worker-1", "worker-2"]
    assert "spares" not in gang_file.gang_of(record(), gang_file.layout_of(record(), 0), timeout_s=None, code=None)


def _nodes(gang: dict[str, list[dict[str, object]]]) -> list[tuple[str, object]]:
    return [(f"{node['role']}-{node['index']}", node["address"]) for node in gang["nodes"]]


def test_names_have_room_for_the_last_spare() -> None:
    long = job(role("w" * 20, nodes=10, spares=1))
    run = "r" * 36
    short = names.role_names(long, run, 0, "job")["w" * 20]
    (address,) = names.spare_addresses(long, run, 0, "job").values()
    assert address.startswith(names.job_name(run, 0, short)) and len(address.partition(".")[0]) <= names.LABEL_LIMIT
