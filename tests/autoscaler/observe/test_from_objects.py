"""What kubectl prints, as a Snapshot; and files that are nothing of the kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.observe.from_objects import by_kind, read_objects, snapshot_of
from longboat.core.errors import LongboatError, NotFound, UsageError
from longboat.engines.kubernetes.manifests.objects import labels_of
from longboat.engines.kubernetes.manifests.workloads import workloads
from longboat.fitting.model.nodes import NodeShape
from tests.autoscaler.tables import NOW, node, pod
from tests.engines.kubernetes import manifest_samples

POOLS = {"a100": {"machine": {"cpus": 96, "memory": "1000Gi", "gpus": 8}}}


def snapshot(*items: dict[str, Any], growth_s: float = 0.0) -> Any:
    pools = (Pool(name="a100", machine=NodeShape(name="a100"), growth_s=growth_s),) if growth_s else ()
    return snapshot_of(by_kind({"kind": "List", "items": list(items)}), pools)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ('{"items": [', "not valid JSON"),
        ('{\n  "items": [,]\n}', "at line 2, column 13"),
        ("[1]", "items[0]: found int, expected a List"),
        ("null", "found null"),
        ('{"kind": "List", "items": [{"kind": "Node"}]}', "items[0]: an object without metadata.name"),
        ('{"kind": "List", "items": [{"metadata": {"name": "x"}}]}', "items[0]: an object without kind"),
    ],
)
def test_a_file_that_is_no_list_is_told(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "objects.json"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        read_objects(path)
    assert words in raised.value.message
    assert raised.value.hint and "kubectl get" in raised.value.hint


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        read_objects(tmp_path / "none.json")


def test_a_node_that_is_not_right_is_one_clear_error() -> None:
    with pytest.raises(LongboatError) as raised:
        snapshot({"kind": "Node", "metadata": {"name": "p", "labels": []}, "status": {"allocatable": 7}})
    assert raised.value.message


def test_lists_of_one_kind_and_lists_in_lists_are_read() -> None:
    inner = {"kind": "PodList", "items": [{"metadata": {"name": "p"}, "spec": {}}]}
    assert len(by_kind({"kind": "List", "items": [inner]})["Pod"]) == 1
    assert len(by_kind(inner)["Pod"]) == 1


def test_an_object_listed_twice_counts_once() -> None:
    assert len(snapshot(pod("p", {}), pod("p", {})).pods) == 1


def test_other_kinds_are_passed_over() -> None:
    assert snapshot({"kind": "ConfigMap", "metadata": {"name": "c"}}).pods == ()


def test_the_order_of_the_objects_makes_no_difference() -> None:
    items = [node("b", {}, POOLS), node("a", {}, POOLS), pod("q", {"on": "a"}), pod("p", {})]
    assert snapshot(*items) == snapshot(*reversed(items))


def test_marks_on_nodes_are_read() -> None:
    seen = snapshot(node("n", {"cordoned": "5m", "idle": "20m"}, POOLS))
    (memory,) = seen.memory
    assert (memory.cordoned_at, memory.idle_since) == (NOW - 300, NOW - 1200)
    assert seen.nodes[0].shape.is_unschedulable


def test_the_end_of_a_pod_is_that_of_its_last_container() -> None:
    body = pod("p", {"on": "n", "ended": "5m"})
    body["status"]["containerStatuses"].append({"state": {"terminated": {"finishedAt": "2026-11-15T11:58:00Z"}}})
    assert snapshot(body).pods[0].ended == NOW - 120


def test_a_node_without_conditions_that_has_amounts_is_ready() -> None:
    body = node("n", {}, POOLS)
    del body["status"]["conditions"]
    assert snapshot(body).nodes[0].is_ready
    body["status"] = {}
    assert not snapshot(body).nodes[0].is_ready


def run_job(status: dict[str, Any]) -> dict[str, Any]:
    labels = {"longboat.dev/run": "r", "longboat.dev/attempt": "0"}
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "8"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"parallelism": 2, "completions": 2, "template": template}
    meta = {"name": "r-a0", "namespace": "default", "labels": labels}
    return {"kind": "Job", "apiVersion": "batch/v1", "metadata": meta, "spec": spec, "status": status}


def run_pod(index: int, phase: str) -> dict[str, Any]:
    labels = {"longboat.dev/run": "r", "longboat.dev/attempt": "0", "job-name": "r-a0"}
    meta = {"name": f"r-a0-{index}", "namespace": "default", "labels": labels}
    return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": "n", "containers": []}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("phases", "status", "missing"),
    [
        (["Succeeded", "Succeeded"], {"active": 2}, 0),  # nobody has counted them yet
        (["Succeeded", "Running"], {"active": 2}, 0),
        (["Succeeded", "Failed"], {"succeeded": 1}, 0),
        (["Succeeded"], {}, 1),  # the other is still to be made
        (["Running"], {"succeeded": 1}, 0),  # the status is ahead: the ended pod has been deleted
        ([], {}, 2),
    ],
)
def test_pods_that_have_ended_are_not_to_come_although_the_job_has_not_counted_them(
    phases: list[str], status: dict[str, Any], missing: int
) -> None:
    pods = [run_pod(number, phase) for number, phase in enumerate(phases)]
    assert sum(len(gang.pods) for gang in snapshot(run_job(status), *pods).gangs) == missing


def test_the_record_that_owns_a_run_is_known_from_its_job() -> None:
    body = run_job({})
    (gang,) = snapshot(body).gangs
    assert gang.owner == ""
    owners = [{"kind": "ConfigMap", "name": "other", "uid": "2"}, {"kind": "ConfigMap", "name": "r", "uid": "1"}]
    body["metadata"]["ownerReferences"] = owners
    (gang,) = snapshot(body).gangs
    assert gang.owner == "1"


def test_priority_classes_give_priorities() -> None:
    low = {"kind": "PriorityClass", "metadata": {"name": "low"}, "value": -100}
    body = pod("p", {"spec": {"priorityClassName": "low"}})
    assert snapshot(low, body).pods[0].pod.priority == -100


def test_a_real_list_survives_json(tmp_path: Path) -> None:
    path = tmp_path / "objects.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n", {}, POOLS), pod("p", {})]}))
    seen = snapshot_of(read_objects(path))
    assert [one.name for one in seen.nodes] == ["n"] and [one.name for one in seen.pods] == ["default/p"]


def elastic(running: int = 3, **changes: Any) -> list[dict[str, Any]]:
    """The Jobs of a run with 3 of 2-5 workers and a server, as the engine makes them, and their pods."""
    worker = manifest_samples.gpu_role(name="worker", nodes=3, min_nodes=2, max_nodes=5)
    run = manifest_samples.record(manifest_samples.job(worker, manifest_samples.role("ps", nodes=1)))
    jobs = workloads(run, 2, labels_of(run, 2), suspended=False)
    for body in jobs:
        body["metadata"] |= {"namespace": "default", "creationTimestamp": "2026-11-15T11:00:00Z"}
        body["status"] = {"startTime": "2026-11-15T11:30:00Z"}
    jobs[0]["metadata"] |= changes
    words = {"gpus": 8, "owner": f"Job/{jobs[0]['metadata']['name']}", "labels": labels_of(run, 2)}
    pods = [pod(f"w-{n}", {**words, "on": "n1"}) for n in range(running)]
    server = {"owner": f"Job/{jobs[1]['metadata']['name']}", "labels": labels_of(run, 2), "on": "n1"}
    zone = {"topology.kubernetes.io/zone": "b"}
    return [*jobs, *pods, pod("ps", server), node("n1", {"gpus": 64, "labels": zone}, POOLS)]


def test_a_run_that_could_have_more_nodes() -> None:
    seen = snapshot(*elastic(), growth_s=60)
    (gang,) = seen.elastic
    assert (gang.name, gang.size, gang.largest, gang.zones) == ("default/train", 3, 5, ("b",))
    assert gang.since == NOW - 1800, "since it was let in, not since it was made"
    assert [each.shape.asks("cpu") for each in gang.pods] == [4000, 4000]
    assert len({each.name for each in gang.pods}) == 2
    assert {each.namespace for each in gang.pods} == {"default"} and seen.gangs == () and seen.odd == ()


@pytest.mark.parametrize("text", ["", "5", "5-2", "4-9", "2-3", "0-9", "a-b", "2-5-9", "-", "２-５", None])
def test_ranges_that_are_none_or_not_of_this_size(text: str | None) -> None:
    assert snapshot(*elastic(annotations={"longboat.dev/nodes": text})).elastic == ()


def test_a_run_whose_pods_do_not_all_run_does_not_grow() -> None:
    assert snapshot(*elastic(running=2)).elastic == ()
    assert snapshot(*elastic(deletionTimestamp="2026-11-15T12:00:00Z")).elastic == ()
    jobs = elastic()
    jobs[0]["spec"]["suspend"] = True
    assert snapshot(*jobs).elastic == ()


def test_a_range_without_end_makes_a_bounded_number_of_stand_ins() -> None:
    (gang,) = snapshot(*elastic(annotations={"longboat.dev/nodes": "2-999999999999"}), growth_s=60).elastic
    assert len(gang.pods) == 1000


def test_where_no_pool_buys_machines_for_growth_there_are_no_stand_ins() -> None:
    """`explain` says all the same how many nodes a run could have."""
    grown, plain = (snapshot(*elastic(), growth_s=growth_s).elastic[0] for growth_s in (60.0, 0.0))
    assert len(grown.pods) == 2 and plain.pods == ()
    assert plain.size_text == "3 of at most 5 nodes" and plain.priority == grown.priority
    assert (plain.zones, plain.since) == (grown.zones, grown.since)
