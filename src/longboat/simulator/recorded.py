"""Traces from recorded snapshots of a cluster: what ran there, and what the cluster really had.

Pods are told by namespace and name, gangs by their gang or run. What happened between two snapshots is not known: a job
started when it was first seen on a node and ended when it was last seen there, or when its pod says it ended. Pods
without GPUs, services and DaemonSets are left out; the rest is taken for trainings of GPUs of one kind.
"""

from __future__ import annotations

from pathlib import Path

from longboat.autoscaler.model.snapshot import SeenPod
from longboat.autoscaler.model.snapshot_file import SavedSnapshot, read_saved
from longboat.core.errors import NotFound, UsageError
from longboat.core.jobs import Value
from longboat.fitting.model.quantities import is_gpu
from longboat.simulator.metrics import HOUR, PolicyMetrics
from longboat.simulator.results import PolicyFigures, PolicyOutcome, percentile
from longboat.simulator.traces import Trace, TraceJob, trace_of

NAME = "recorded"


class Recording(Value, frozen=True):
    saved: tuple[SavedSnapshot, ...]  # in the order of time


class _Run:
    """A job as it was seen."""

    def __init__(self, created: float) -> None:
        self.created = created
        self.pods: dict[str, int] = {}  # name -> GPUs
        self.first: float | None = None  # all that was seen of it on nodes
        self.last: float | None = None


def read_recording(path: str | Path) -> Recording:
    """A file that `plan --save` wrote, or a folder of such files (`*.json`)."""
    place = Path(path)
    hint = "longboat autoscaler plan --save FOLDER/TIME.json records one; at least two are needed"
    if place.is_dir():
        files = sorted(place.glob("*.json"))
        if not files:
            raise NotFound(f"{path}: there is no *.json in this folder", hint=hint)
    else:
        files = [place]
    saved = sorted((read_saved(file) for file in files), key=lambda saved_snapshot: saved_snapshot.now)
    if len({snapshot.now for snapshot in saved}) < 2:
        raise UsageError(f"{path}: one snapshot says nothing about time", hint=hint)
    return Recording(saved=tuple(saved))


def recorded(recording: Recording) -> tuple[Trace, PolicyOutcome]:
    """The trace, and the figures of what the cluster itself had."""
    runs = _runs(recording)
    jobs, starts = [], []
    for name, run in runs.items():
        gpus = sum(run.pods.values())
        if run.first is None or run.last is None or not gpus:
            continue
        jobs.append(TraceJob(name=name, submitted=run.created, duration=max(run.last - run.first, 1.0), gpus=gpus))
        starts.append((max(run.first - run.created, 0.0), len(run.pods) > 1))
    if not jobs:
        raise UsageError("no pod with GPUs runs in these snapshots", hint="record the cluster while jobs run")
    trace = trace_of(NAME, jobs)
    return trace, PolicyOutcome(policy=NAME, figures=_figures(recording, trace, starts))


def _runs(recording: Recording) -> dict[str, _Run]:
    runs: dict[str, _Run] = {}
    for saved in recording.saved:
        for seen in saved.snapshot.pods:
            gpus = _gpus(seen)
            if not gpus or seen.daemon is not None or seen.pod.lasts:
                continue
            run = runs.setdefault(_name(seen), _Run(seen.created or saved.now))
            run.pods[seen.name] = gpus
            run.created = min(run.created, seen.created or saved.now)
            if seen.ended is not None:
                run.last = max(run.last or 0.0, seen.ended)
                run.first = run.first if run.first is not None else run.created
            elif seen.pod.node is not None:
                run.first = run.first if run.first is not None else saved.now
                run.last = max(run.last or 0.0, saved.now)
    return runs


def _name(seen: SeenPod) -> str:
    if seen.gang is not None:
        return seen.gang
    return f"{seen.pod.namespace}/{seen.pod.run}" if seen.pod.run else seen.name


def _gpus(seen: SeenPod) -> int:
    return sum(count for name, count in seen.pod.shape.requests if is_gpu(name))


def _figures(recording: Recording, trace: Trace, starts: list[tuple[float, bool]]) -> PolicyFigures:
    """Machines from snapshot to snapshot, as if each had stayed until the next."""
    tally = PolicyMetrics()
    for saved, after in zip(recording.saved, recording.saved[1:]):
        pools = {pool.name: pool for pool in saved.snapshot.pools}
        for node in saved.snapshot.nodes:
            pool = pools.get(node.pool or "")
            gpus = sum(count for name, count in node.shape.allocatable if is_gpu(name))
            tally.charge(gpus, pool.price if pool is not None else 0.0, after.now - saved.now)
    waits, lasted = [waited for waited, _ in starts], [job.duration for job in trace.jobs]
    return PolicyFigures(
        gpu_hours_provisioned=round(tally.provisioned / HOUR, 3),
        gpu_hours_requested=round(trace.gpu_seconds / HOUR, 3),
        gpu_hours_held_by_partial_gangs=0.0,
        gpu_hours_lost=0.0,
        cost=round(tally.cost, 2),
        wait_p50_s=percentile(waits, 0.5),
        wait_p99_s=percentile(waits, 0.99),
        gang_wait_p99_s=percentile([waited for waited, is_gang in starts if is_gang], 0.99),
        turnaround_mean_s=round((sum(waits) + sum(lasted)) / len(lasted), 3) if lasted else None,
        training_evictions=0,
        evictions=0,
        flaps=0,
        decide_cpu_s=0.0,
        jobs_finished=len(trace.jobs),
    )
