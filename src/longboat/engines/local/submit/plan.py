"""The dry run: what a submission would do, as a Plan."""

from __future__ import annotations

import os
from collections.abc import Sequence

from longboat.core.elastic.sizes import planned_nodes, planned_role
from longboat.core.jobs import Job
from longboat.core.plans import Action, Plan
from longboat.core.resources import show_quantity
from longboat.core.words import counted
from longboat.engines.engine import Submission
from longboat.engines.local.containers.choice import ContainerChoice
from longboat.engines.local.queue.requests import request_of
from longboat.engines.local.submit.submission import free_name, record_of
from longboat.engines.local.supervise.attempt_folders import example_ports, layout_of
from longboat.engines.shared.checkpoint_store import kept_reason
from longboat.engines.shared.code_snapshot import code_notices, snapshot_of, with_environments
from longboat.engines.shared.home import Home
from longboat.engines.shared.secret_urls import redacted_job


def make_plan(
    home: Home, submission: Submission, notices: Sequence[str], *, containers: ContainerChoice | None = None
) -> Plan:
    """The layout shows the ports as they might be: free ones are chosen when the run starts."""
    home.prepare()
    job = redacted_job(submission.job)
    name = submission.run_id or free_name(home, submission)
    snapshot = snapshot_of(home, submission)
    record = record_of(home, submission, name=name, snapshot=snapshot, containers=containers)
    actions = [Action(kind="create", what=f"run {name}", reason=f"{planned_nodes(job)} on this machine")]
    if snapshot is not None:
        root = os.path.normpath(os.path.join(submission.base, job.workdir or "."))
        origin = f"the code in {root}" if submission.code is None else "the code of an earlier run"
        size = f"{counted(len(snapshot.entries), 'file')}, {show_quantity(snapshot.size)}"
        actions.append(Action(kind="pack", what=size, reason=origin))
    for image in sorted({image for role in job.roles if (image := record.image_of(role.name))}):
        actions.append(
            Action(kind="pull", what=f"image {image}", reason=f"with {record.containers}, if it is not here yet")
        )
    actions.extend(_waits(job))
    for role in job.roles:
        text = planned_role(role)
        actions.append(Action(kind="start", what=text, reason=f"framework {job.framework}: {job.framework_reason}"))
    if record.checkpoint_store is not None:
        actions.append(Action(kind="keep", what=f"checkpoints in {record.checkpoint_store}", reason=kept_reason(job)))
    if job.retries.count:
        reason = f"on {', '.join(map(str, job.retries.on)) or 'any failure'}, from the newest checkpoint"
        actions.append(Action(kind="retry", what=f"up to {counted(job.retries.count, 'time')}", reason=reason))
    layout = layout_of(record, attempt=0, ports=example_ports(record))
    warnings: list[str] = []
    if snapshot is not None:
        snapshot = with_environments(snapshot, job)
        warnings = [*snapshot.warnings, *code_notices(snapshot, job, is_cluster=False)]
    return Plan(job=job, layout=layout, actions=tuple(actions), notices=(*notices, *warnings))


def _waits(job: Job) -> list[Action]:
    actions = [Action(kind="import", what=item.url, reason=f"data for {item.to}, once") for item in job.data]
    if job.setup:
        actions.append(
            Action(kind="setup", what=job.setup.strip().splitlines()[0], reason="before the ranks, on every node")
        )
    request = request_of(job)
    wanted = []
    if request.gpu_count:
        wanted.append(counted(request.gpu_count, "GPU"))
    if request.cpus:
        wanted.append(counted(request.cpus, "CPU"))
    if request.memory:
        wanted.append(show_quantity(request.memory))
    if wanted:
        actions.append(Action(kind="wait", what=", ".join(wanted), reason="first come, first served"))
    return actions
