"""What a submission would do, as a Plan, and as the objects that it would create."""

from __future__ import annotations

from typing import Any

import msgspec

from longboat.core.elastic.sizes import planned_nodes, planned_role
from longboat.core.jobs import Job
from longboat.core.plans import Action, Plan
from longboat.core.resources import show_quantity
from longboat.core.words import counted
from longboat.engines.kubernetes.manifests import gang_file
from longboat.engines.kubernetes.manifests import objects as manifests
from longboat.engines.kubernetes.manifests.volumes import NODE
from longboat.engines.kubernetes.records import Record, State
from longboat.engines.kubernetes.submit.preparation import PreparedRun
from longboat.engines.kubernetes.submit.submission import Submitter
from longboat.engines.shared.checkpoint_store import kept_reason


def make_plan(submitter: Submitter, offer: PreparedRun) -> Plan:
    """The name is the first that the run would try to get."""
    job = offer.job
    record = submitter.record_of(offer, offer.submission.run_id or job.name)
    where = f"namespace {record.namespace} of {submitter.client.context or 'this cluster'}"
    actions = [Action(kind="create", what=f"run {record.name}", reason=f"{planned_nodes(job)} in {where}")]
    if offer.code is not None:
        text = f"{counted(len(offer.code.entries), 'file')}, {show_quantity(offer.code.size)}"
        actions.append(Action(kind="pack", what=text, reason="what the cluster does not have of it travels in Secrets"))
    actions += _waits(job, record)
    for role in job.roles:
        text = planned_role(role)
        reason = f"{record.images.get(role.name, '')} as {_workload(record)}"
        actions.append(Action(kind="start", what=text, reason=reason))
        if role.spares:
            reason = "prepares itself, holds what a node holds, and takes a lost node's place at once"
            actions.append(Action(kind="start", what=f"{counted(role.spares, 'spare')} of {role.name}", reason=reason))
    if record.checkpoint_store is not None:
        actions.append(Action(kind="keep", what=f"checkpoints in {record.checkpoint_store}", reason=kept_reason(job)))
    if job.retries.count:
        on = ", ".join(map(str, job.retries.on)) or "any failure"
        reason = f"on {on}, from the newest checkpoint"
        actions.append(Action(kind="retry", what=f"up to {counted(job.retries.count, 'time')}", reason=reason))
    return Plan(job=job, layout=gang_file.layout_of(record, 0), actions=tuple(actions), notices=offer.notices)


def _workload(record: Record) -> str:
    return "a JobSet" if record.workload == "jobset" else "an Indexed Job"


def _waits(job: Job, record: Record) -> list[Action]:
    actions = [Action(kind="import", what=item.url, reason=f"data for {item.to}, on every node") for item in job.data]
    if job.setup:
        first = job.setup.strip().splitlines()[0]
        actions.append(Action(kind="setup", what=first, reason="before the ranks, on every node"))
    if record.gated_by == "kueue":
        actions.append(
            Action(kind="wait", what=f"the queue {record.queue}", reason="Kueue admits all of it or nothing")
        )
    elif record.gated_by == "longboat":
        actions.append(Action(kind="wait", what="room for all its pods", reason="all start, or none holds anything"))
    return actions


def make_manifests(
    submitter: Submitter, offer: PreparedRun, *, is_replica: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """The run as objects that need nothing of Longboat afterwards, and what to know about them.

    Code and launcher are among them. `is_replica`: with the values of secrets, and its pods leave nothing in the
    storage that they restore a checkpoint from, for nobody would remove it. Raises Refused for code that only fits a
    storage.
    """
    from longboat.engines.kubernetes.creation import start_of
    from longboat.engines.kubernetes.submit.code.upload import plan_upload, upload_objects

    # Without a client nothing is taken to be in the cluster already, and without a storage all of it is in objects.
    upload = plan_upload(None, submitter.store, offer.code, has_storage=False)
    record = submitter.record_of(offer, offer.submission.run_id or offer.job.name, upload)
    if is_replica:
        own = {"checkpoint_dir": f"{NODE}/checkpoints", "artifacts_dir": f"{NODE}/artifacts"}
        record = msgspec.structs.replace(record, leaves_nothing=True, **own)
    start = start_of(record, State(), code=upload.manifest, now=record.created)
    secrets = {variable: value.encode() for variable, value in offer.secrets.items()} if is_replica else {}
    objects, notices = manifests.standalone(record, start, upload_objects(upload, record.namespace), secrets)
    return objects, [*offer.notices, *notices]
