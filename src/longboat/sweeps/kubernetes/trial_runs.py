"""Trials of a sweep as runs of a cluster: made of the sweep's templates, looked at all together.

Whoever makes a trial, often the controller, copies what the submitter created with his own rights. The template carries
a pin of the sweep's texts and Secret; without it nothing is made. Making one takes five requests or six.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from longboat.core.errors import EngineError, NotFound, Refused
from longboat.core.jobs import Value
from longboat.core.runs import SWEEP_UID, RunStatus
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.creation import WORKLOADS, create_object, is_owned, start_of
from longboat.engines.kubernetes.manifests import gang_file, retry_template
from longboat.engines.kubernetes.manifests.objects import attempt_objects, owner_of, record_object
from longboat.engines.kubernetes.reconcile.listing import with_steps
from longboat.engines.kubernetes.record_store import (
    STOP,
    BadRecord,
    ListedRun,
    find_record,
    hash_of_record,
    list_records,
    read_record,
    stop_text,
)
from longboat.engines.kubernetes.records import Record, State
from longboat.engines.kubernetes.status import STARTING, brief_status
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, ApiError, ObjectNotFound
from longboat.kubeapi.kinds import CLAIM_TEMPLATE, CONFIG_MAP, JOB, JOBSET, SECRET
from longboat.metrics.values import RunMetrics, last_points
from longboat.sweeps.drive import SweepFault
from longboat.sweeps.kubernetes.store import ClusterSweep, StoredSweep
from longboat.sweeps.kubernetes.sweep_objects import (
    map_name,
    object_name,
    role_names,
    template_names,
    trial_record,
    trial_token,
    trial_workloads,
)
from longboat.sweeps.trials import SweepTrial

STEPS_S = 30.0
"""So often running trials are asked for their step; where asha compares them, at every look."""
UNFINISHED_S = 120.0
"""A submitter makes the objects of a sweep within seconds: one without a template after this long is not finished."""

Object = dict[str, Any]
replace = msgspec.structs.replace


class NotVouched(SweepFault):
    """No template vouches for trials of this sweep."""


class Vouched(Value, frozen=True):
    """What trials are copies of, as the API server holds it."""

    templates: tuple[Object, ...]
    claims: dict[str, Object]  # role -> spec of its claim template (DRA)
    gang: Object
    token: bytes


def find_vouched(client: Client, stored: StoredSweep) -> Vouched:
    """The templates of a sweep, if its submitter made them for just this record and Secret. Raises NotVouched."""
    record, base = stored.record, stored.base
    secret = client.find(SECRET, object_name(record.name))
    kind = JOBSET if base.workload == "jobset" else JOB
    templates = [client.find(kind, name) for name in template_names(record, base)]
    held = [each for each in (secret, *templates) if each is not None and is_owned(each, stored.uid)]
    if secret is None or len(held) != 1 + len(templates):
        if client.now() < stored.made + UNFINISHED_S:
            raise EngineError(f"the sweep {record.name} is being made")
        raise NotVouched(f"the sweep {record.name} has no template, made by whoever began it: no trial is started")
    pin = retry_template.pin_of(stored.digest, secret)
    version = {"apiVersion": kind.api_version, "kind": kind.kind}
    bodies = tuple({**version, **each} for each in held[1:])
    if any(retry_template.pins_of(each) != {pin} for each in bodies):
        raise NotVouched(
            f"the record of the sweep {record.name} is not the one that was submitted: no trial is started"
        )
    data = secret["data"]
    gang = gang_file.decode(base64.b64decode(data["gang"]))
    return Vouched(templates=bodies, claims=_claims(client, stored), gang=gang, token=base64.b64decode(data["token"]))


def _claims(client: Client, stored: StoredSweep) -> dict[str, Object]:
    specs: dict[str, Object] = {}
    for role in stored.base.job.roles if (stored.base.gpu_resource or "").startswith("dra:") else ():
        body = client.find(CLAIM_TEMPLATE, role_names(stored.record, stored.base)[role.name])
        if role.resources.gpus.count and (body is None or not is_owned(body, stored.uid)):
            raise NotVouched(f"the ResourceClaimTemplate of the sweep {stored.record.name} is gone")
        if body is not None:
            specs[role.name] = body["spec"]
    return specs


def make_trial(client: Client, stored: StoredSweep, vouched: Vouched, trial: SweepTrial) -> RunStatus:
    """Make the run of a trial, or what is missing of it; the run that is there, if it is that of this trial."""
    wanted = trial_record(stored.base, stored.record, trial, client.now())
    body, record, state = _take_name(client, stored, wanted)
    if state != State(reason=STARTING):
        return brief_status(record, state)  # another driver has made all of it
    owner = owner_of(body)
    own = start_of(record, State(), code=gang_file.code_of(vouched.gang), now=record.created)
    start = replace(own, token=trial_token(vouched.token, trial.number))
    objects = attempt_objects(record, retry_template.FIRST, start, owner=owner)
    rendered = [each for each in objects if each["kind"] in WORKLOADS]
    workloads = trial_workloads(vouched.templates, stored.base, record, rendered)
    secret = Object()
    for each in objects:
        if each["kind"] == CLAIM_TEMPLATE.kind:
            each["spec"] = vouched.claims[each["metadata"]["labels"][names.ROLE]]
        if each["kind"] not in WORKLOADS:
            made = create_object(client, each, owner=owner["uid"])
            secret = made if each["kind"] == "Secret" else secret
    if retry_template.is_needed(record):
        pin = retry_template.pin_of(hash_of_record(body), secret)
        for each in retry_template.as_templates(workloads, record, pin):
            each["metadata"] |= {"namespace": record.namespace, "ownerReferences": [owner]}
            create_object(client, each, owner=owner["uid"])
    for each in workloads:
        create_object(client, each, owner=owner["uid"])
    return brief_status(record, state)


def _take_name(client: Client, stored: StoredSweep, wanted: Record) -> tuple[Object, Record, State]:
    """The record of a trial as it was made, now or before. Raises Refused where the name is another's."""
    body = record_object(wanted, State(reason=STARTING))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": map_name(stored.record.name), "uid": stored.uid}
    body["metadata"]["ownerReferences"] = [owner]
    if stored.keep_s is not None:
        body["metadata"]["annotations"][names.KEEP] = f"{stored.keep_s:.0f}"
    for _ in range(2):
        try:
            return client.create(body), wanted, State(reason=STARTING)
        except AlreadyExists:
            there = client.find(CONFIG_MAP, wanted.name)
        if there is None:
            continue  # removed meanwhile
        try:
            record, state = read_record(there)
        except BadRecord as error:
            raise Refused(error.message) from None
        ours = replace(wanted, created=record.created, notices=record.notices, later_priority=record.later_priority)
        if replace(ours, drill=record.drill) != record:
            raise Refused(f"{wanted.name} is a run of somebody else")
        if not _was_given_up(state):
            return there, record, state
        # Its driver died between two requests, and nobody drove the sweep for minutes: it never held anything.
        client.delete(CONFIG_MAP, wanted.name, uid=str(there["metadata"]["uid"]))
    raise EngineError(f"{wanted.name} is being removed")


def _was_given_up(state: State) -> bool:
    return state.phase == "failed" and state.started is None and not state.attempts


class ClusterTrials:
    """The runs of a sweep's trials. `turns`: takes turns of them, where no controller does."""

    def __init__(self, sweep: ClusterSweep, *, turns: Turns | None = None) -> None:
        self.sweep, self.client, self.turns = sweep, sweep.client, turns
        self._vouched: tuple[str, Vouched] | None = None  # uid and digest of the sweep that it was read for
        self._asked = -STEPS_S

    def vouch(self) -> None:
        self._templates()

    def look(self, trials: Sequence[SweepTrial]) -> dict[str, RunStatus | EngineError]:
        """All that have not ended by one list; those of them that are not in it one by one: they have ended, or are
        gone."""
        if not trials:
            return {}
        stored = self.sweep.stored or self.sweep.read()
        labels = f"{SWEEP_UID}={stored.record.uid},!{names.ENDED}"
        listed = {each.record.name: each for each in list_records(self.client, labels=labels)}
        wanted = [trial.run for trial in trials]
        opened = [listed[run] for run in wanted if run in listed]
        runs: dict[str, RunStatus | EngineError] = {}
        for run in wanted:
            if run in listed:
                continue
            try:
                runs[run] = brief_status(*read_record(find_record(self.client, run)))
            except NotFound:
                continue
            except EngineError as error:
                runs[run] = error
        states = {} if self.turns is None else self.turns(self.client, opened)
        shown = [brief_status(each.record, states.get(each.record.name, each.state)) for each in opened]
        return {**runs, **{run.name: run for run in self._with_steps(stored, shown)}}

    def _with_steps(self, stored: StoredSweep, runs: Sequence[RunStatus]) -> Sequence[RunStatus]:
        is_compared = stored.record.job.sweep is not None and stored.record.job.sweep.method == "asha"
        if not is_compared and time.monotonic() - self._asked < STEPS_S:
            return runs
        self._asked = time.monotonic()
        return with_steps(self.client, runs)

    def submit(self, trial: SweepTrial) -> RunStatus:
        stored = self.sweep.stored or self.sweep.read()
        if stored.is_deleting:
            raise EngineError(f"the sweep {stored.record.name} is being removed")
        try:
            return make_trial(self.client, stored, self._templates(), trial)
        except ObjectNotFound as error:
            raise EngineError(error.message) from error

    def _templates(self) -> Vouched:
        stored = self.sweep.stored or self.sweep.read()
        key = f"{stored.uid} {stored.digest}"
        if self._vouched is None or self._vouched[0] != key:
            self._vouched = (key, find_vouched(self.client, stored))
        return self._vouched[1]

    def stop(self, run: str, *, grace_s: float | None = None) -> None:
        """Ask for it; whoever takes the run's turns ends it."""
        asked = {"metadata": {"annotations": {STOP: stop_text(self.client.now(), grace_s)}}}
        try:
            self.client.patch(CONFIG_MAP, run, asked)
        except ObjectNotFound:
            raise NotFound(f"no run named {run!r}") from None

    def metrics_of(self, run: RunStatus) -> RunMetrics:
        """Series, read from the pods; where the last values are enough, those."""
        from longboat.engines.kubernetes.logs.metrics_files import metrics_of_run
        from longboat.engines.kubernetes.observe.observe import observe

        sweep = self.sweep.record().job.sweep
        wanted = sweep.metric.name if sweep is not None and sweep.metric is not None else "loss"
        if sweep is not None and sweep.method != "asha" and wanted in run.metrics:
            return last_points(run.name, run.step, run.metrics, run.ended or self.client.now())
        try:
            return metrics_of_run(self.client, observe(self.client, run.name, self.client.now()), lambda _: None)
        except ApiError:
            return last_points(run.name, run.step, run.metrics, run.ended or self.client.now())


Turns = Callable[[Client, Sequence[ListedRun]], Mapping[str, State]]
"""Takes turns of runs that were just listed, where there is something to do; their states afterwards."""
