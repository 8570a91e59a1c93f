"""Copies of runs as watches tell of them: when they suffice, when the run has to be read, and what is forgotten."""

from __future__ import annotations

import pytest

from longboat.engines.kubernetes.observe.run_copies import RunCopies
from longboat.engines.kubernetes.records import State
from longboat.engines.kubernetes.slim_objects import run_object
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, POD
from tests.engines.kubernetes.run_bodies import RUNNING, Object, copies, job_body, pod_body, record_body
from tests.engines.kubernetes.run_samples import NOW, job, record


def test_a_run_that_runs_is_seen_whole() -> None:
    seen = copies().snapshot("ns", "train", NOW)
    assert seen is not None
    assert (seen.version, [pod.node for pod in seen.pods], len(seen.workloads)) == ("7", ["worker-0"], 1)


def test_a_member_without_a_pod_has_failed_where_its_job_says_so() -> None:
    made = copies(what=record(job(nodes=2)))
    seen = made.snapshot("ns", "train", NOW)
    assert seen is not None and seen.failed_nodes == frozenset()
    failed = job_body()
    failed["status"] = {"failedIndexes": "1"}
    made.note(JOB, failed, is_gone=False)
    seen = made.snapshot("ns", "train", NOW)
    assert seen is not None and seen.failed_nodes == {"worker-1"}


@pytest.mark.parametrize("fields", [{"workload": "jobset"}, {"gated_by": "kueue"}])
def test_where_a_turn_asks_for_more_the_run_is_read(fields: Object) -> None:
    assert copies(what=record(job(nodes=1), **fields)).snapshot("ns", "train", NOW) is None


def test_a_pod_whose_node_is_in_doubt_is_read() -> None:
    made = copies()
    made.note(POD, pod_body(is_ready=False), is_gone=False)
    assert made.snapshot("ns", "train", NOW) is None


def test_damaged_and_unknown_runs_are_read() -> None:
    made = RunCopies()
    assert made.snapshot("ns", "train", NOW) is None
    made.note(POD, pod_body(), is_gone=False)
    assert made.snapshot("ns", "train", NOW) is None
    body = record_body(RUNNING)
    made.note(CONFIG_MAP, {**body, "data": {"record": "{", "state": "{}"}}, is_gone=False)
    assert made.snapshot("ns", "train", NOW) is None


def test_of_ended_runs_nothing_is_kept() -> None:
    made = copies()
    made.note(CONFIG_MAP, record_body(State(phase="succeeded")), is_gone=False, is_final=True)
    made.note(POD, pod_body(), is_gone=False)  # told late
    assert made.snapshot("ns", "train", NOW) is None
    assert not made._copies
    made.note(CONFIG_MAP, record_body(State(phase="succeeded")), is_gone=True, is_final=True)
    assert not made._ended
    made.note(POD, pod_body(), is_gone=False)
    made.note(POD, run_object(pod_body()), is_gone=True)  # as a watch tells what it missed
    assert not made._copies
