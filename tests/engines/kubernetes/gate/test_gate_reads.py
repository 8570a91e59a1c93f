"""What one turn of the gate reads and keeps: runs that have ended cost it nothing, however many there are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

import msgspec
import pytest

from longboat.core.runs import Phase
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.gate import serve, waiting_runs
from longboat.engines.kubernetes.manifests.objects import record_object
from longboat.engines.kubernetes.observe.snapshot import pod_view
from longboat.engines.kubernetes.records import State
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import Kind
from tests.engines.kubernetes.run_samples import NOW, job, opened, record, retried

WAITING = serve.AT_ONCE + 20
"""More than one selector names."""


class Shelf:
    """A namespace that is only read; `read` counts the objects of all answers. Its field selectors choose phases."""

    namespace = "ns"

    def __init__(self, **objects: Iterable[dict[str, Any]]) -> None:
        self.objects = {plural: list(bodies) for plural, bodies in objects.items()}
        self.read: Counter[str] = Counter()

    def path(self, kind: Kind) -> str:
        return kind.path(self.namespace)

    def request(self, method: str, path: str, *, query: dict[str, Any]) -> bytes:
        plural = path.rpartition("/")[2]
        found = [one for one in self.objects.get(plural, ()) if is_chosen(one, query["labelSelector"])]
        if query["fieldSelector"]:
            wants_ended = query["fieldSelector"] == serve.ENDED
            found = [one for one in found if (one["status"]["phase"] == "Succeeded") is wants_ended]
        first = int(query.get("continue") or 0)
        page = found[first : first + query["limit"]]
        self.read[plural] += len(page)
        more = str(first + len(page)) if first + len(page) < len(found) else ""
        return json.dumps({"metadata": {"resourceVersion": "1", "continue": more}, "items": page}).encode()

    def look(self) -> list[waiting_runs.WaitingRun]:
        return serve._look(cast(Client, self))


def is_chosen(body: dict[str, Any], selector: str) -> bool:
    """A label that is there, is not there, has this value, or one of these values."""
    labels = body["metadata"]["labels"]
    head, is_set, rest = selector.partition(f"{names.RUN} in (")
    values, _, tail = rest.partition(")")
    if is_set and labels.get(names.RUN) not in values.split(","):
        return False
    for part in filter(None, f"{head},{tail}".split(",")):
        label, has_value, value = part.lstrip("!").partition("=")
        is_there = labels.get(label) == value if has_value else label in labels
        if is_there is part.startswith("!"):
            return False
    return True


def config_map(name: str, *, is_over: bool = False) -> dict[str, Any]:
    one = msgspec.structs.replace(record(job(nodes=1), gated_by="longboat"), name=name)
    body = record_object(one, State(phase="running", attempts=(opened(),)))
    body["metadata"].update(uid=f"uid-{name}", resourceVersion="1")
    if is_over:
        body["metadata"]["labels"][names.ENDED] = "true"
    return body


def workload(name: str, *, is_suspended: bool = True, is_complete: bool = False) -> dict[str, Any]:
    labels = {names.MANAGED_BY: "longboat", names.RUN: name, names.ATTEMPT: "0", names.ROLE: "worker"}
    owner = {"kind": "ConfigMap", "uid": f"uid-{name}"}
    return {
        "metadata": {"name": f"{name}-a0", "uid": f"job-{name}", "labels": labels, "ownerReferences": [owner]},
        "spec": {"suspend": is_suspended},
        "status": {"conditions": [{"type": "Complete", "status": "True"}] if is_complete else []},
    }


def template(name: str) -> dict[str, Any]:
    labels = {names.MANAGED_BY: "longboat", names.KIND: "template"}
    return {"metadata": {"name": f"{name}-t", "labels": labels}, "spec": {"suspend": True}}


def pod(name: str, phase: str) -> dict[str, Any]:
    labels = {names.MANAGED_BY: "longboat", names.RUN: name, names.ATTEMPT: "0", names.ROLE: "worker"}
    return {"metadata": {"name": f"{name}-0", "labels": labels}, "spec": {"nodeName": "n"}, "status": {"phase": phase}}


def shelf(*, ended: int) -> Shelf:
    """Many that wait, one that runs, and runs that have ended with all that they left."""
    waiting, over = [f"w{number}" for number in range(WAITING)], [f"e{number}" for number in range(ended)]
    return Shelf(
        configmaps=[*map(config_map, [*waiting, "in"]), *(config_map(name, is_over=True) for name in over)],
        jobs=[
            *map(workload, waiting),
            workload("in", is_suspended=False),
            *(workload(name, is_suspended=False, is_complete=True) for name in over),
            *map(template, [*waiting, "in", *over]),
        ],
        pods=[pod("in", "Running"), *(pod(name, "Succeeded") for name in over)],
    )


def test_a_turn_reads_nothing_of_runs_that_have_ended() -> None:
    few, many = shelf(ended=0), shelf(ended=3 * WAITING)
    assert few.look() == many.look()
    assert many.read == few.read == {"configmaps": WAITING + 1, "jobs": WAITING + 1, "pods": 1}


def test_runs_that_are_complete_and_that_nobody_noted_as_ended_are_left_out() -> None:
    """They hold nothing and wait for nothing: neither are their pods looked for, nor is a place kept for them."""
    done = [f"d{number}" for number in range(WAITING)]
    here = Shelf(
        configmaps=map(config_map, [*done, "w"]),
        jobs=[*(workload(name, is_suspended=False, is_complete=True) for name in done), workload("w")],
        pods=[pod(name, "Succeeded") for name in done],
    )
    assert [run.record.name for run in here.look()] == ["w"]
    assert not here.read["pods"]


def test_a_pod_that_has_ended_is_found_where_its_run_goes_on() -> None:
    here = Shelf(configmaps=[config_map("r")], jobs=[workload("r", is_suspended=False)], pods=[pod("r", "Succeeded")])
    (run,) = here.look()
    candidate = waiting_runs.candidate_of(run, NOW, {})
    assert candidate is not None and candidate.placed == ("worker-0",) and not candidate.rest


@pytest.mark.parametrize(("phase", "unschedulable"), [("running", 0), ("pending", 1)])
def test_a_gang_that_runs_is_not_put_back_for_a_pod_that_is_replaced(phase: Phase, unschedulable: int) -> None:
    """The others wait at the line; what it is still to get counts as taken, until it has a place."""
    new = pod("r", "Pending")
    new["spec"] = {}
    new["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    here = Shelf(configmaps=[config_map("r")], jobs=[workload("r", is_suspended=False)], pods=[new])
    (run,) = here.look()
    run = msgspec.structs.replace(run, state=msgspec.structs.replace(run.state, phase=phase))
    gone = pod("r", "Failed")
    gone["metadata"]["labels"][names.INDEX] = "1"  # node 0's is never replaced
    old = pod_view(
        {
            **gone,
            "status": {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 213}}}]},
        }
    )
    gang = msgspec.structs.replace(run.record, job=retried(nodes=2))
    assert msgspec.structs.replace(run, record=gang).with_ended([old]).ended == ()
    candidate = waiting_runs.candidate_of(run, NOW, {})
    assert candidate is not None and candidate.unschedulable == unschedulable
    assert [each.name for each in candidate.rest] == ["worker-0"]
