"""Services of a cluster's namespace: made, changed, listed and stopped through its API server."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from longboat.core.errors import EngineError, NotFound, Refused, UsageError, WaitTimeout
from longboat.core.jobs import Checkpoints, Command, Job, Serve
from longboat.core.runs import LogLine, LogQuery
from longboat.engines.engine import Submission
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.install.install import absence, find_controller
from longboat.engines.kubernetes.manifests.volumes import checkpoint_volume
from longboat.engines.kubernetes.submit.plan import make_manifests
from longboat.engines.shared.home import current_user
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden
from longboat.kubeapi.kinds import DEPLOYMENT, EVENT, HPA, INGRESS, PDB, POD, SECRET, SERVICE
from longboat.serving.following import checked_follow, first_step, rule_of
from longboat.serving.kubernetes import apply, scaling
from longboat.serving.kubernetes.checkpoint_pin import pin
from longboat.serving.kubernetes.following import follow_once
from longboat.serving.kubernetes.logs import follow_lines, past_lines
from longboat.serving.kubernetes.manifests import (
    NAME,
    PORT,
    RECORD,
    VERSION,
    ServingRecord,
    Track,
    canary_replicas,
    deployment_name,
    promoted,
    service_objects,
)
from longboat.serving.kubernetes.observe import (
    canary_of,
    existing_service,
    failure_of,
    find_service,
    is_canary,
    pods_of,
    trouble_of,
)
from longboat.serving.kubernetes.status import (
    is_older,
    phase_of,
    promoted_record,
    record_of,
    share_of,
    shown,
    status_of,
    takes_requests,
    version_of,
    wanted_replicas,
)
from longboat.serving.replica_job import replica_job
from longboat.serving.requests import ServiceRequest
from longboat.serving.served_code import submission_of
from longboat.serving.service_status import ServiceStatus

Object = dict[str, Any]

LOOK_S = 1.0
"""Between two looks of somebody who waits."""
STOP_S = 300.0
"""Pods have their draining and grace; those of nodes that are lost are not waited for."""


class ClusterServices:
    """The services of one namespace."""

    def __init__(self, engine: KubernetesEngine, notice: Callable[[str], None] = lambda text: None) -> None:
        self._engine = engine
        self._notice = notice

    @property
    def client(self) -> Client:
        return self._engine.client

    def exists(self, name: str) -> bool:
        return find_service(self.client, name) is not None

    def settings(self, name: str) -> Serve | None:
        body = find_service(self.client, name)
        return None if body is None else self._inherited(body).serve

    def _inherited(self, body: Object) -> ServingRecord:
        """What the next version takes over: nothing of one that has failed."""
        record = record_of(body)
        return record.without_failed() if failure_of(self.client, body) else record

    # making and changing

    def serve(self, request: ServiceRequest) -> str:
        request.check_name()
        name, track = request.service_name, _track_of(request)
        before = find_service(self.client, name)
        if track == "canary" and before is None:
            raise NotFound(f"no service named {name!r}: a canary goes beside what is served", hint="leave --canary out")
        known = None if before is None else self._inherited(before)
        submission = submission_of(self._engine, request)
        serve = _settings(request, known, submission)
        command = _command(request, known, serve)
        if before is not None and request.weight is not None:
            serve = self._canary_size(serve, wanted_replicas(before), request.weight)
        serve = checked_follow(request, serve, submission.job, self._notice)
        version, resume, step = self._next_version(name, known), None, None
        if request.with_checkpoint:
            step = first_step(self._engine, request, serve, submission.job)
            resume, step = pin(self._engine.status(request.run), step)
        rule = rule_of(submission.job)
        job = replica_job(submission.job, serve, name=name, command=command, host="0.0.0.0", port=PORT)
        job = msgspec.structs.replace(job, checkpoints=_restored(submission.job, resume))
        replica = msgspec.structs.replace(submission, job=job, run_id=f"{name}-v{version}")
        objects, notices = make_manifests(*self._engine.prepared(replica), is_replica=True)
        for text in notices:
            self._notice(text)
        record = ServingRecord(
            run=request.run,
            step=step,
            version=version,
            command=command,
            serve=serve,
            user=current_user(),
            created=known.created if known else self.client.now(),
            last_command=known.command if known else None,
            last_serve=known.serve if known else None,
            failed=known.failed if known and known.run == request.run else (),
            metric=rule.metric,
            goal="min" if rule.goal == "min" else "max",
        )
        made = service_objects(name, record, objects, os.urandom(8).hex(), track=track)
        if track == "canary":
            self._put_canary(name, made)
            return name
        self._put(name, made, is_new=before is None)
        self._scale_by_load(name, serve)
        return name

    def has_controller(self) -> bool:
        """Whether a controller serves this namespace, which has services follow."""
        try:
            return absence(find_controller(self.client), self.client.namespace) is None
        except EngineError:  # who may not see it
            return False

    def follow(self, name: str) -> int | None:
        """Give it the checkpoint that it is to follow; its step, None where it stays as it is. One look."""
        return follow_once(self.client, existing_service(self.client, name))

    def _put(self, name: str, objects: Sequence[Object], *, is_new: bool) -> None:
        if is_new:
            apply.put(self.client, objects)
            return
        deployment, *rest = objects
        there = existing_service(self.client, name)
        # A selector cannot change, and how many there are is the autoscaler's affair where there is one.
        spec = {**deployment["spec"], "selector": there["spec"]["selector"]}
        if scaling.owned_autoscaler(self.client, there) is not None:
            spec["replicas"] = max(spec["replicas"], wanted_replicas(there))
        apply.change(self.client, [{**deployment, "spec": spec}, *rest])

    def _put_canary(self, name: str, objects: Sequence[Object]) -> None:
        if canary_of(self.client, name) is None:
            apply.put(self.client, objects, parent=existing_service(self.client, name))
        else:
            apply.change(self.client, objects)

    def _next_version(self, name: str, known: ServingRecord | None) -> int:
        canary = canary_of(self.client, name) if known else None
        return max([0, *([known.version] if known else []), *([record_of(canary).version] if canary else [])]) + 1

    def _canary_size(self, serve: Serve, stable: int, weight: int) -> Serve:
        count = canary_replicas(stable, weight)
        share = share_of(count, stable)
        self._notice(f"in a cluster a canary's share is that of its replicas: {count} of {count + stable}, {share} %")
        return msgspec.structs.replace(serve, replicas=count, max_replicas=None)

    def promote(self, name: str, weight: int | None = None) -> None:
        body, canary = existing_service(self.client, name), canary_of(self.client, name)
        if canary is None:
            raise UsageError(f"{name} has no canary", hint=f"longboat serve RUN --name {name} --canary 10 makes one")
        beside = deployment_name(name, "canary")
        if weight:
            size = self._canary_size(record_of(canary).serve, wanted_replicas(body), weight)
            self.client.patch(DEPLOYMENT, beside, {"spec": {"replicas": size.replicas}})
            return
        if weight is None:
            if reason := failure_of(self.client, canary):
                raise self._refusal(canary, reason)
            record = promoted_record(record_of(body), record_of(canary))
            owners = {"metadata": {"ownerReferences": [apply.owner_of(body)]}}
            for secret in self.client.list(SECRET, labels=f"{NAME}={name},{VERSION}={record.made}").items:
                self.client.patch(SECRET, secret["metadata"]["name"], owners)  # else they go with the canary
            apply.replace_spec(self.client, promoted(body, canary, record))
        self.client.delete(DEPLOYMENT, beside, uid=canary["metadata"]["uid"])

    def scale(self, name: str, least: int, most: int | None) -> None:
        def counted(body: Object) -> Object:
            record = record_of(body)
            serve = msgspec.structs.replace(record.serve, replicas=least, max_replicas=most)
            text = msgspec.json.encode(msgspec.structs.replace(record, serve=serve)).decode()
            return {"metadata": {"annotations": {RECORD: text}}, "spec": {"replicas": least}}

        changed = apply.patch_as_read(self.client, lambda: existing_service(self.client, name), counted)
        self._scale_by_load(name, record_of(changed).serve)

    def _scale_by_load(self, name: str, serve: Serve) -> None:
        scaling.scale_by_load(self.client, existing_service(self.client, name), serve, self._notice)

    # looking

    def list(self) -> Sequence[ServiceStatus]:
        statuses = []
        for body in self.client.list(DEPLOYMENT, labels=NAME).items:
            if RECORD in (body["metadata"].get("annotations") or {}) and not is_canary(body):
                try:
                    statuses.append(self._status(body))
                except ApiError:
                    raise
                except EngineError as error:  # its annotation, or that of its canary
                    self._notice(error.message)
        return statuses

    def status(self, name: str) -> ServiceStatus:
        return self._status(existing_service(self.client, name))

    def _status(self, body: Object) -> ServiceStatus:
        name, canary, reason = body["metadata"]["name"], canary_of(self.client, body["metadata"]["name"]), ""
        for each in (body, canary):
            if each is not None and not reason and phase_of(each) not in ("ready", "stopping"):
                reason = trouble_of(self.client, name, record_of(each).version)
        return status_of(body, canary, reason, self.client.namespace)

    def wait(self, name: str, *, timeout_s: float | None = None) -> ServiceStatus:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            status = self.status(name)
            body, canary = existing_service(self.client, name), canary_of(self.client, name)
            if reason := failure_of(self.client, canary or body):
                raise self._refusal(canary or body, reason)
            if status.phase == "ready":
                self._forget_old(name, record_of(body).made)
                return status
            if canary is not None and phase_of(canary) == "ready" and failure_of(self.client, body):
                return status  # the version before it is that of an earlier command
            if deadline is not None and time.monotonic() > deadline:
                raise WaitTimeout(f"{name} is {status.phase}: {status.reason}", hint="the service goes on")
            time.sleep(LOOK_S)

    def _refusal(self, body: Object, reason: str) -> Refused:
        hint = f"longboat serve logs {body['metadata']['labels'][NAME]} shows more"
        return Refused(f"{shown(record_of(body))} takes no requests: {reason}", hint=hint)

    def _forget_old(self, name: str, version: int) -> None:
        """Remove the Secrets of versions that no pod has any more; a newer one may be on its way already."""
        canary = canary_of(self.client, name)
        kept = None if canary is None else record_of(canary).made
        for body in self.client.list(SECRET, labels=f"{NAME}={name}").items:
            if is_older(body, version) and version_of(body) != kept:
                self.client.delete(SECRET, body["metadata"]["name"])

    def logs(self, name: str, query: LogQuery) -> Iterator[LogLine]:
        existing_service(self.client, name)
        if not query.follow:
            return past_lines(self.client, pods_of(self.client, name), query.tail, self._notice)

        def pods() -> Sequence[Object]:
            existing_service(self.client, name)
            return pods_of(self.client, name)

        return follow_lines(self.client, pods, query.tail)

    def ready_pods(self, name: str) -> Sequence[str]:
        """The pods that take requests, at least one. Raises NotFound, EngineError."""
        existing_service(self.client, name)
        ready = [str(pod["metadata"]["name"]) for pod in pods_of(self.client, name) if takes_requests(pod)]
        if not ready:
            raise EngineError(f"no replica of {name} is ready", hint=f"longboat serve logs {name} --events tells more")
        return ready

    def events(self, name: str) -> Sequence[str]:
        uids = [
            existing_service(self.client, name)["metadata"]["uid"],
            *(pod["metadata"]["uid"] for pod in pods_of(self.client, name)),
        ]
        lines = []
        for uid in uids:
            for event in self.client.list(EVENT, fields=f"involvedObject.uid={uid}").items:
                lines.append((str(event.get("lastTimestamp") or ""), " ".join(str(event.get("message")).split())))
        return [f"{moment} {message}" for moment, message in sorted(lines)]

    # ending

    def stop(self, name: str) -> None:
        existing_service(self.client, name)
        self.client.delete(DEPLOYMENT, name, propagation="Foreground")
        deadline = time.monotonic() + STOP_S
        while self.client.find(DEPLOYMENT, name) is not None or self._left(name):
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{name} is still being deleted after {STOP_S:g} s", hint="kubectl get pods tells more"
                )
            apply.drop_lost(self.client, f"{NAME}={name}")
            time.sleep(LOOK_S / 2)

    def _left(self, name: str) -> bool:
        for kind in (DEPLOYMENT, POD, SECRET, SERVICE, PDB, INGRESS, HPA):
            with contextlib.suppress(Forbidden):  # of what the user may not see, and so has not made
                if self.client.list(kind, labels=f"{NAME}={name}").items:
                    return True
        return False


def _track_of(request: ServiceRequest) -> Track:
    if request.host is not None:
        raise UsageError(
            "--host is an address of this machine: a service in a cluster has its own",
            hint="--ingress HOST leads to it from outside, `longboat serve forward` from here",
        )
    return "stable" if request.weight is None else "canary"


def _restored(job: Job, resume: str | None) -> Checkpoints:
    """What replicas restore. Where the run's own volume is its storage, it is theirs too: `to` says so."""
    return Checkpoints(to=job.checkpoints.to if checkpoint_volume(job) is not None else None, resume=resume)


def _command(request: ServiceRequest, known: ServingRecord | None, serve: Serve) -> Command:
    command = request.command or (known.command if known else None) or serve.run
    if command is None:
        raise UsageError(
            f"no command to serve {request.run} with, and its job file has no `serve`",
            hint=f"longboat serve {request.run} -- python app.py --port '$PORT'",
        )
    return command


def _settings(request: ServiceRequest, known: ServingRecord | None, submission: Submission) -> Serve:
    serve = request.serve or (known.serve if known else None) or submission.job.serve or Serve()
    return serve if request.port is None else msgspec.structs.replace(serve, port=request.port)
