"""Objects of a sweep in a cluster, and the records of its trials. Pure.

    NAME.sweep        ConfigMap: what trials are made of (`sweep`, `run`) and the state; it owns all that follow
    NAME-sweep        Secret: gang file of the first trial, and the token from which those of trials follow
    NAME-sweep-ROLE   template: a suspended Job without pods (or one JobSet, NAME-sweep), of which trials are copies
    NAME-sweep        one budget, and one network policy, for the pods of all trials
    NAME-sweep-env    Secret: the submitter's secrets, where there are any

All of it is made by the submitter. `run` is the record of the first trial as he would have submitted it; the record of
another trial differs in its name and in its parameters, which are points of the sweep's space. The template carries a
pin of both texts and of the Secret, as a retry template does.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longboat.core.errors import EngineError
from longboat.core.guards.decoding import decoder
from longboat.core.jobs import Value
from longboat.core.runs import SWEEP_UID
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests import gang_file, retry_template
from longboat.engines.kubernetes.manifests.objects import (
    AttemptStart,
    Owner,
    claim_templates,
    labels_of,
    secret_object,
)
from longboat.engines.kubernetes.manifests.volumes import places, run_folder
from longboat.engines.kubernetes.records import Record
from longboat.sweeps.drive import trial_job
from longboat.sweeps.record import SweepRecord
from longboat.sweeps.trials import SweepState, SweepTrial

KIND = "sweep"
SUFFIX = ".sweep"
"""No run is called so: a sweep and a run may have one name."""
MOST_TRIALS = 4000
"""Trials of a sweep in a cluster: 1,000 with 3 parameters and 16 metrics each take a fifth of a MiB, packed."""
MOST_PACKED = 900 << 10
"""Bytes of the packed state. A ConfigMap holds 1 MiB, with the job."""
MOST_UNPACKED = 8 << 20
"""Whoever may write ConfigMaps can write one that stands for a gigabyte; MOST_TRIALS with 16 metrics are 3 MiB."""
MOST_COMMAS = 400_000
"""Of the unpacked state, as a bound of the values that are made of it, some hundred bytes each; MOST_TRIALS with 16
metrics have a hundred thousand."""
MOST_METRICS = 16
"""Metrics that are kept of a trial, what it is compared by among them; its run has all."""
MOST_REASON = 200  # characters: a line or two
ALL = 1_000_000
"""Pods of a sweep that must stay: all, however many there are."""

Object = dict[str, Any]


class TrialCount(Value, frozen=True):
    """A state of which nothing is read but how many trials it has."""

    trials: tuple[msgspec.Raw, ...] = ()


STATES, COUNTS = decoder(SweepState), decoder(TrialCount)

replace = msgspec.structs.replace


def map_name(sweep: str) -> str:
    """Of the ConfigMap."""
    return f"{sweep}{SUFFIX}"


def object_name(sweep: str) -> str:
    """Of its Secret, budget and policy, and of its JobSet; the beginning of the names of its Jobs."""
    return f"{sweep}-sweep"


def env_name(sweep: str) -> str:
    """Of the Secret with the submitter's secrets."""
    return names.env_secret(object_name(sweep))


def sweep_labels(sweep: str) -> dict[str, str]:
    return {names.MANAGED_BY: "longboat", names.KIND: KIND, "sweep": sweep}


def sweep_map(record: SweepRecord, base: Record, state: SweepState, *, keep_s: float | None = None) -> Object:
    """The ConfigMap. What is only of use on the submitter's machine is left out."""
    shown = replace(record, base="/", root="", outside={}, environment={}, code=base.bundle)
    user = names.label_value(record.user)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": map_name(record.name),
            "namespace": base.namespace,
            "labels": {**sweep_labels(record.name), **({names.USER: user} if user else {})},
            **({} if keep_s is None else {"annotations": {names.KEEP: f"{keep_s:.0f}"}}),
        },
        "data": {"sweep": msgspec.json.encode(shown).decode(), "run": msgspec.json.encode(base).decode()},
        "binaryData": {"state": pack_state(state)},
    }


def hash_of(data: Mapping[str, str]) -> str:
    """Of what trials are made of, as it is stored."""
    texts = [hashlib.sha256((data.get(key) or "").encode()).hexdigest() for key in ("sweep", "run")]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def pack_state(state: SweepState) -> str:
    """The state as a ConfigMap has it. Raises EngineError where it does not fit."""
    for kept in (MOST_METRICS, 1):
        trials = tuple(_short(trial, state, kept) for trial in state.trials)
        data = msgspec.json.encode(replace(state, trials=trials))
        packed = gzip.compress(data, mtime=0)
        if len(packed) <= MOST_PACKED and _is_small(data):
            return base64.b64encode(packed).decode()
    raise EngineError(f"the state of {len(state.trials)} trials takes {len(packed)} bytes: a ConfigMap holds less")


def _is_small(data: bytes) -> bool:
    return len(data) <= MOST_UNPACKED and data.count(b",") <= MOST_COMMAS


def _short(trial: SweepTrial, state: SweepState, most_metrics: int) -> SweepTrial:
    metrics = trial.metrics
    if len(metrics) > most_metrics:
        first = [state.metric.name] if state.metric is not None and state.metric.name in metrics else []
        metrics = {name: metrics[name] for name in [*first, *metrics][:most_metrics]}
    return replace(trial, metrics=metrics, reason=trial.reason[:MOST_REASON])


def unpack_state(text: str) -> SweepState:
    """Raises ValueError or msgspec.MsgspecError where it is none."""
    if not text:
        return SweepState()
    try:
        unpacker = zlib.decompressobj(wbits=31)
        data = unpacker.decompress(base64.b64decode(text, validate=True), MOST_UNPACKED)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacker.eof:
        raise ValueError("it is cut off, or larger than any state")
    if not _is_small(data) or len(COUNTS.decode(data).trials) > MOST_TRIALS:  # before a trial is made of any
        raise ValueError("it has more trials than any state")
    return STATES.decode(data)


def trial_uid(record: SweepRecord, number: int) -> str:
    """Of a trial's run: whoever makes it makes the same one."""
    return hashlib.sha256(f"{record.uid}/{number}".encode()).hexdigest()[:12]


def trial_token(token: bytes, number: int) -> str:
    """Of the gang of a trial. It follows from the sweep's, which only readers of Secrets know."""
    return hmac.new(token, f"trial {number}".encode(), hashlib.sha256).hexdigest()[:32]


def trial_record(base: Record, record: SweepRecord, trial: SweepTrial, created: float) -> Record:
    """The record of a trial's run: that of the first trial, with its own name, parameters and folders."""
    name, uid = record.run_name(trial.number), trial_uid(record, trial.number)
    job = trial_job(record, trial)
    storage = base.storage and replace(base.storage, folder=f"longboat/{run_folder(name, uid)}")
    kept = places(job, storage, run=name, uid=uid)
    return replace(
        base,
        name=name,
        uid=uid,
        job=job,
        created=created,
        storage=storage,
        checkpoint_dir=kept.checkpoints,
        checkpoint_store=kept.store,
        artifacts_dir=kept.artifacts,
        secrets={variable: (env_name(record.name), key) for variable, (_, key) in base.secrets.items()},
        notices=(),
    )


def shared_objects(
    record: SweepRecord, base: Record, secrets: Mapping[str, bytes], start: AttemptStart, owner: Owner | None
) -> list[Object]:
    """What trials share but their templates: Secrets, budget, policy, and what their claim templates say (DRA)."""
    gang = gang_file.encode(
        gang_file.gang_of(
            base, gang_file.layout_of(base, retry_template.FIRST), timeout_s=start.timeout_s, code=start.code
        )
    )
    bodies = [secret_object(env_name(record.name), secrets, KIND)] if secrets else []
    bodies.append(secret_object(object_name(record.name), {"gang": gang, "token": start.token.encode()}, KIND))
    for body in claim_templates(base, retry_template.FIRST):
        name = role_names(record, base)[body["metadata"]["labels"][names.ROLE]]
        bodies.append({**body, "metadata": {**body["metadata"], "name": name}})
    return [owned(body, record, base, owner) for body in (*bodies, *_guards(record, base))]


def _guards(record: SweepRecord, base: Record) -> list[Object]:
    pods = {"matchLabels": {SWEEP_UID: record.uid}}
    of_runs = {**pods, "matchExpressions": [{"key": names.ROLE, "operator": "Exists"}]}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "spec": {"minAvailable": ALL, "selector": of_runs},
    }
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "spec": {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": pods}]}]},
    }
    bodies = [budget, policy] if base.network_policy else [budget]
    return [{**body, "metadata": {"name": object_name(record.name)}} for body in bodies]


def sweep_templates(record: SweepRecord, base: Record, pin: str, owner: Owner | None) -> list[Object]:
    """The workloads of the first trial as templates of all."""
    bodies = retry_template.template_objects(base, pin, labels_of(base, retry_template.FIRST))
    named = []
    for body, name in zip(bodies, template_names(record, base), strict=True):
        queue = {key: value for key, value in body["metadata"]["labels"].items() if key not in sweep_labels("")}
        queue.pop(names.TEMPLATE_OF, None)
        named.append(owned({**body, "metadata": {"name": name, "labels": queue}}, record, base, owner))
    return named


def template_names(record: SweepRecord, base: Record) -> list[str]:
    return [object_name(record.name)] if base.workload == "jobset" else list(role_names(record, base).values())


def role_names(record: SweepRecord, base: Record) -> dict[str, str]:
    """What of the sweep belongs to a role: its Job, its claim template (DRA)."""
    short = names.role_names(base.job, base.name, retry_template.FIRST, "job")  # no longer than in names of its Jobs
    return {role.name: f"{object_name(record.name)}-{short[role.name]}" for role in base.job.roles}


def owned(body: Object, record: SweepRecord, base: Record, owner: Owner | None) -> Object:
    metadata = body["metadata"]
    labels = {**(metadata.get("labels") or {}), **sweep_labels(record.name)}
    owners = {} if owner is None else {"ownerReferences": [owner]}
    return {**body, "metadata": {**metadata, "namespace": base.namespace, "labels": labels, **owners}}


def trial_workloads(
    templates: Sequence[Object], base: Record, record: Record, rendered: Sequence[Object]
) -> list[Object]:
    """The workloads of a trial's first attempt, copied from the sweep's templates."""
    return retry_template.copies(templates, record, retry_template.FIRST, rendered, origin=base)
