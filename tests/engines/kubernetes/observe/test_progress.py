"""How far an attempt has come, as data: what `ps` says about a run that does not run yet."""

from __future__ import annotations

import pytest

from longboat.engines.kubernetes.explain.containers import StartTrouble
from longboat.engines.kubernetes.observe.progress import facts_of, progress_of
from longboat.engines.kubernetes.observe.snapshot import QueueView
from longboat.engines.kubernetes.records import Gate, State
from tests.engines.kubernetes.run_samples import ended, job, opened, pod, record, running, snapshot, workload

PENDING = State(phase="pending", attempts=(opened(),))
NOT_HELPFUL = "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("", ""),
        (
            f"0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 node(s) had untolerated taint {{team: a}}. "
            f"{NOT_HELPFUL}",
            ": 1 node: not enough nvidia.com/gpu; 3 nodes: taint team: a is not tolerated",
        ),
        (
            f"0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector. {NOT_HELPFUL}",
            ": 4 nodes: their labels are not those asked for",
        ),
        ("0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.", ": a volume claim is not bound"),
        ('persistentvolumeclaim "data" not found', ": there is no claim data"),
    ],
)
def test_why_the_scheduler_finds_no_node_is_told_in_words(message: str, told: str) -> None:
    found = progress_of(snapshot(running(0), pod(1, message=message), state=PENDING))
    assert (found.phase, found.reason) == ("pending", f"worker-1 waits for a place{told}")


def test_several_nodes_wait() -> None:
    found = progress_of(snapshot(*(pod(index) for index in range(5)), job_=job(nodes=5), state=PENDING))
    assert found.reason == "worker-0, worker-1, worker-2 and 2 more wait for a place"


def test_what_keeps_a_container_from_starting_comes_first() -> None:
    held = pod(0, is_scheduled=True, trouble=StartTrouble(what="there is no image x"))
    assert progress_of(snapshot(held, pod(1), state=PENDING)).reason == "node worker-0: there is no image x"
    slow = [pod(index, is_scheduled=True, waiting="ContainerCreating") for index in range(2)]
    found = progress_of(snapshot(*slow, state=PENDING))
    assert (found.phase, found.reason) == ("starting", "worker-0, worker-1: image and volumes are being made ready")


def test_a_suspended_run_says_what_its_gate_or_queue_says() -> None:
    gated = State(phase="pending", attempts=(opened(),), gate=Gate(reason="waits for 2 GPUs"))
    held = (workload(is_suspended=True),)
    assert progress_of(snapshot(workloads=held, state=gated, record=record(gated_by="longboat"))).reason == (
        "waits for 2 GPUs"
    )
    queued = record(gated_by="kueue", queue="research")
    assert progress_of(snapshot(workloads=held, state=PENDING, record=queued)).reason == "waits for the queue research"
    told = QueueView(message="2 more GPUs are needed")
    found = progress_of(snapshot(workloads=held, state=PENDING, record=queued, queue=told))
    assert found.reason == "2 more GPUs are needed"


def test_a_gang_runs_when_every_launcher_has_started() -> None:
    found = progress_of(snapshot(running(0), ended(1)))
    assert (found.phase, found.is_complete, found.reason) == ("running", True, "")
    lost = progress_of(snapshot(running(0)))
    assert lost.reason == "no pod of worker-1 is left; the others are ending" and lost.is_complete


def test_what_is_remembered_of_pods() -> None:
    seen = snapshot(ended(0), ended(1, 7, cause="exit"))
    assert facts_of(seen) == ("pod train-a0-worker-1 (worker-1) on node-0: exit code 7",)
