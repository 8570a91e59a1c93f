"""Runs in every stage, as values, for the tests of the decisions."""

from __future__ import annotations

from typing import Any

from longboat.core.jobs import Job, Retries, Role
from longboat.core.runs import Attempt
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot, WorkloadView
from longboat.engines.kubernetes.observe.termination import GangEnd, NodeEnd, PodEnd, RankEnd
from longboat.engines.kubernetes.records import Record, State

NOW = 1_000_000.0


def job(*, nodes: int = 2, roles: dict[str, int] | None = None, ends: tuple[str, ...] = (), **fields: Any) -> Job:
    found = roles or {"worker": nodes}
    return Job(
        name="train",
        roles=tuple(Role(name=name, run="true", nodes=count) for name, count in found.items()),
        ends=ends or tuple(found),
        **fields,
    )


def retried(count: int = 1, **fields: Any) -> Job:
    return job(retries=Retries(count=count, backoff_s=2.0), **fields)


def record(job_: Job | None = None, **fields: Any) -> Record:
    defaults: dict[str, Any] = {
        "name": "train",
        "uid": "0" * 12,
        "namespace": "ns",
        "created": NOW - 60,
        "user": "anna",
    }
    return Record(job=job_ or job(), **{**defaults, **fields})


def workload(attempt: int = 0, **fields: Any) -> WorkloadView:
    return WorkloadView(
        name=f"train-a{attempt}-worker", uid=f"w{attempt}", attempt=attempt, role="worker", created=NOW - 50, **fields
    )


def pod(index: int = 0, *, attempt: int = 0, role: str = "worker", **fields: Any) -> PodView:
    name = f"train-a{attempt}-{role}-{index}"
    return PodView(name=name, uid=f"uid-{name}", role=role, index=index, attempt=attempt, created=NOW - 40, **fields)


def running(index: int = 0, **fields: Any) -> PodView:
    started = {"phase": "Running", "is_scheduled": True, "is_started": True, "is_running": True, "host": "node-0"}
    return pod(index, **{**started, "started": NOW - 30, **fields})


def ended(index: int = 0, code: int = 0, **fields: Any) -> PodView:
    """A pod whose launcher said how it ended; `gang` makes it the verdict of node 0."""
    told = {
        key: fields.pop(key)
        for key in ("cause", "message", "ended_by", "gang", "first", "resumed_from", "ranks", "metrics")
        if key in fields
    }
    at = fields.pop("at", NOW - 5)
    told = {"ranks": (RankEnd(rank=index, exit_code=code),), **told}
    said = NodeEnd(exit_code=code, ended=at, started=NOW - 30, **told)
    end = PodEnd(
        exit_code=code, cause=told.get("cause"), message=told.get("message", ""), ended=at, started=NOW - 30, said=said
    )
    return gone_by(index, end, **fields)


def gone_by(index: int, end: PodEnd, **fields: Any) -> PodView:
    phase = "Failed" if end.exit_code else "Succeeded"
    return pod(index, **{"phase": phase, "is_scheduled": True, "is_started": True, "host": "node-0", **fields}, end=end)


def verdict(code: int = 0, cause: str | None = None, message: str = "", **fields: Any) -> GangEnd:
    return GangEnd(exit_code=code, cause=cause, message=message, **fields)


def opened(attempt: int = 0, **fields: Any) -> Attempt:
    return Attempt(number=attempt, started=NOW - 50, **fields)


def snapshot(*pods: PodView, job_: Job | None = None, **fields: Any) -> RunSnapshot:
    fields.setdefault("state", State(phase="running", attempts=(opened(),)))
    fields.setdefault("workloads", (workload(),))
    fields.setdefault("record", record(job_))
    fields.setdefault("made", NOW - 60)
    return RunSnapshot(uid="u", version="7", pods=pods, **fields)
