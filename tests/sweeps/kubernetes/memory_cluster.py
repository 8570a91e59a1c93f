"""An API server in memory, as far as sweeps use one: versions, owners, labels. It can die at any request."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from longboat.core.jobs import Job, Range, Retries, Role, Sweep
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.creation import create_object, start_of
from longboat.engines.kubernetes.manifests import retry_template
from longboat.engines.kubernetes.manifests.objects import owner_of
from longboat.engines.kubernetes.record_store import read_record, read_stop, write_state
from longboat.engines.kubernetes.records import Record, State
from longboat.kubeapi.client import ObjectList
from longboat.kubeapi.errors import AlreadyExists, Conflict, ObjectNotFound
from longboat.kubeapi.kinds import Kind
from longboat.sweeps.drive import first_trial
from longboat.sweeps.kubernetes.sweep_objects import (
    hash_of,
    shared_objects,
    sweep_map,
    sweep_templates,
    trial_record,
)
from longboat.sweeps.record import SweepRecord
from longboat.sweeps.trials import SweepState
from tests.engines.kubernetes.manifest_samples import record as run_record

replace = msgspec.structs.replace
TERM = re.compile(r"(!)?([\w./-]+)(?:=([\w.-]*)| in \(([^)]*)\))?(?:,|$)")


class Killed(BaseException):
    """SIGKILL, as far as the code can tell: no handler runs."""


class MemoryCluster:
    """Stands for a Client. `dies_at`: the process dies at this request, before it (odd) or after it (even)."""

    namespace, context, server = "default", "memory", "1.35"

    def __init__(self) -> None:
        self.bodies: dict[tuple[str, str], dict[str, Any]] = {}
        self.made: list[str] = []  # kinds and names, in their order
        self.requests = self.version = 0
        self.dies_at: int | None = None

    def now(self) -> float:
        return 1000.0 + self.requests

    def _count(self, *, is_after: bool = False) -> None:
        self.requests += not is_after
        if self.dies_at is not None and 2 * self.requests - (not is_after) == self.dies_at:
            raise Killed

    def _next(self) -> str:
        self.version += 1
        return str(self.version)

    def create(self, body: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        self._count()
        key = (body["kind"], body["metadata"]["name"])
        if key in self.bodies:
            raise AlreadyExists("it is there", status=409)
        if not dry_run:
            metadata = {**body["metadata"], "uid": f"uid-{self._next()}", "resourceVersion": self._next()}
            metadata["creationTimestamp"] = "2026-11-15T12:00:00Z"
            self.bodies[key] = {**copy.deepcopy(body), "metadata": metadata}
            self.made.append(" ".join(key))
        self._count(is_after=True)
        return copy.deepcopy(self.bodies.get(key, body))

    def find(self, kind: Kind, name: str, **_: Any) -> dict[str, Any] | None:
        self._count()
        return copy.deepcopy(self.bodies.get((kind.kind, name)))

    def get(self, kind: Kind, name: str, **_: Any) -> dict[str, Any]:
        body = self.find(kind, name)
        if body is None:
            raise ObjectNotFound("there is none", status=404)
        return body

    def replace(self, body: dict[str, Any]) -> dict[str, Any]:
        self._count()
        key = (body["kind"], body["metadata"]["name"])
        if body["metadata"]["resourceVersion"] != self.bodies[key]["metadata"]["resourceVersion"]:
            raise Conflict("another version", status=409)
        self.bodies[key] = copy.deepcopy(body)
        self.bodies[key]["metadata"]["resourceVersion"] = self._next()
        self._count(is_after=True)
        return copy.deepcopy(self.bodies[key])

    def list(self, kind: Kind, *, labels: str = "", **_: Any) -> ObjectList[dict[str, Any]]:
        self._count()
        items = [copy.deepcopy(body) for (named, _), body in self.bodies.items() if named == kind.kind]
        chosen = [body for body in items if selects(labels, body["metadata"].get("labels") or {})]
        return ObjectList(items=chosen, version="1")

    def patch(self, kind: Kind, name: str, body: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        self._count()
        there = self.bodies.get((kind.kind, name))
        if there is None:
            raise ObjectNotFound("there is none", status=404)
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != there["metadata"]["resourceVersion"]:
            raise Conflict("another version", status=409)
        merge(there, body)
        there["metadata"]["resourceVersion"] = self._next()
        self._count(is_after=True)
        return copy.deepcopy(there)

    def delete(self, kind: Kind, name: str, **_: Any) -> None:
        self._count()
        body = self.bodies.pop((kind.kind, name), None)
        for (owned_kind, owned_name), owned in list(self.bodies.items()) if body else ():
            owners = [owner["uid"] for owner in owned["metadata"].get("ownerReferences") or ()]
            if body is not None and body["metadata"]["uid"] in owners:
                self.delete(Kind(owned_kind, "", ""), owned_name)


def merge(there: dict[str, Any], body: Mapping[str, Any]) -> None:
    for key, value in body.items():
        if value is None:
            there.pop(key, None)
        elif isinstance(value, Mapping):
            merge(there.setdefault(key, {}), value)
        else:
            there[key] = value


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    for absent, key, value, several in TERM.findall(selector):
        allowed = several.split(",") if several else [value]
        if absent:
            if key in labels:
                return False
        elif labels.get(key) not in allowed and (value or several or key not in labels):
            return False
    return True


GRID = Sweep(space={"x": (3, 1, 2, 4)}, parallel=2)
RANDOM = Sweep(space={"x": Range(low=0.0, high=1.0)}, method="random", trials=6, parallel=3)


def sweep_record(sweep: Sweep = GRID, **fields: Any) -> SweepRecord:
    job = Job(name="j", roles=(Role(name="worker", run="train ${sweep.x}"),), ends=("worker",), sweep=sweep, **fields)
    return SweepRecord(
        name="s",
        uid="feedbeef0123",
        job=job,
        base="/",
        created=0.0,
        user="anna",
        engine="kubernetes",
        namespace="default",
    )


def base_record(record: SweepRecord, **fields: Any) -> Record:
    return trial_record(run_record(**fields), record, first_trial(record), 1.0)


def begin(client: Any, record: SweepRecord, base: Record) -> dict[str, Any]:
    """All that a submitter makes."""
    created: dict[str, Any] = client.create(sweep_map(record, base, SweepState()))
    owner = owner_of(created)
    start = start_of(base, State(), code=None, now=1.0)
    made = [create_object(client, each, owner=owner["uid"]) for each in shared_objects(record, base, {}, start, owner)]
    secret = next(each for each in made if each["kind"] == "Secret")
    for each in sweep_templates(record, base, retry_template.pin_of(hash_of(created["data"]), secret), owner):
        create_object(client, each, owner=owner["uid"])
    return created


RETRIED = {"retries": Retries(count=1)}


def runs_of(client: MemoryCluster) -> dict[str, tuple[Record, State]]:
    bodies = [body for (kind, _), body in client.bodies.items() if kind == "ConfigMap"]
    records = [body for body in bodies if body["metadata"]["labels"].get(names.KIND) == "run"]
    return {body["metadata"]["name"]: read_record(body) for body in records}


def let_runs_end(client: MemoryCluster, looks: dict[str, int], after: int = 2) -> None:
    """What the controller of runs does: a run that has its Job ends, and a stop is obeyed."""
    dies, client.dies_at = client.dies_at, None
    requests = client.requests
    for name, (record, state) in runs_of(client).items():
        if state.is_final or ("Job", f"{name}-a0-worker") not in client.bodies:
            continue
        body = client.bodies["ConfigMap", name]
        looks[name] = looks.get(name, 0) + 1
        is_stopped = read_stop(body) is not None
        if looks[name] >= after or is_stopped:
            phase = "stopped" if is_stopped else "succeeded"
            ended = replace(
                state, phase=phase, started=1.0, ended=2.0, exit_code=0, reason="", step=3,
                metrics={"loss": float(record.job.params["x"])},
            )  # fmt: skip
            write_state(client, name, body["metadata"]["resourceVersion"], ended)  # type: ignore[arg-type]
    client.requests, client.dies_at = requests, dies
