"""Objects of a service in a cluster. Pure: those of a run of the replica's job in, those of the service out.

The Deployment owns everything else: deleting it leaves nothing. A canary is a second one behind the same Service.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from longboat.core.guards.formats import Stored
from longboat.core.jobs import Command, Serve
from longboat.engines.kubernetes.manifests.pod_template import LAUNCHER
from longboat.engines.kubernetes.manifests.volumes import ROOT

Object = dict[str, Any]
Track = Literal["stable", "canary"]

PORT = 8000
"""What replicas listen on: each has an address of its own."""
SERVICE_PORT = 80
DOMAIN = "longboat.dev"
NAME = f"{DOMAIN}/service"
RECORD = f"{DOMAIN}/serving"
VERSION = f"{DOMAIN}/serving-version"
TRACK = f"{DOMAIN}/serving-track"
FOLLOWED = "LONGBOAT_FOLLOWED_STEP"
"""The variable of pods that says which step they restore, of the place that they were made with."""
LEAVING_S = 5
"""A pod that is deleted still gets requests until every node has noted it: it goes on answering for so long."""
STARTUP_S, READY_S, LIVE_S = 2, 2, 10
"""Seconds between two probes."""
BUSY_PERCENT = 70
"""Of the CPUs that a replica asked for: above it others are added, early enough that they are ready in time."""
MOST_FAILED = 100
"""Steps that are remembered, the last ones: an annotation is small."""
DOWN_S = 60
"""Load has to stay lower for this long before replicas go, as on one machine; Kubernetes alone would take 300."""
_FRESH = (
    "import os, shutil, sys; entries = list(os.scandir(sys.argv[1] + '/node')); "
    "[shutil.rmtree(e.path, True) if e.is_dir(follow_symlinks=False) else os.unlink(e.path) for e in entries]; "
    "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)
"""A container that is restarted finds the files of the one before: a replica always starts from nothing."""
_DROPPED = ("PodDisruptionBudget", "NetworkPolicy", "Service")
"""Objects of a run that a service has no use for: they hold a gang together, and keep others out."""


class ServingRecord(Stored, frozen=True):
    """What is kept of a service, as an annotation of its Deployment."""

    run: str
    step: int | None
    version: int
    command: Command
    serve: Serve
    user: str = ""
    created: float = 0.0
    last_command: Command | None = None  # and settings, of the version before that had not failed
    last_serve: Serve | None = None
    failed: tuple[int, ...] = ()  # steps of the run that never took requests: they are not followed again
    base: int | None = None  # the version whose Secrets the pods mount, where this one followed it
    metric: str = ""  # what the best checkpoint is told by, and which way it is better
    goal: Literal["max", "min"] = "max"

    @property
    def made(self) -> int:
        """The version that somebody made: later ones only went on to other steps."""
        return self.version if self.base is None else self.base

    def with_failed(self) -> tuple[int, ...]:
        return self.failed if self.step is None else (*self.failed, self.step)[-MOST_FAILED:]

    def without_failed(self) -> ServingRecord:
        """What the next version takes over where this one has failed."""
        command, serve = self.last_command or self.command, self.last_serve or self.serve
        serve = msgspec.structs.replace(serve, replicas=self.serve.replicas, max_replicas=self.serve.max_replicas)
        return msgspec.structs.replace(self, command=command, serve=serve, failed=self.with_failed())


def deployment_name(name: str, track: Track) -> str:
    return name if track == "stable" else f"{name}-canary"


def service_objects(
    name: str, record: ServingRecord, objects: Sequence[Object], nonce: str, *, track: Track = "stable"
) -> list[Object]:
    """Deployment, the Secrets that pods mount, and what leads to them, in the order of their creation.

    `nonce`: part of the Secrets' names, which nobody can guess: pods mount whatever Secret of that name is there.
    """
    workload = next(body for body in objects if body["kind"] == "Job")
    kept = [body for body in objects if body["kind"] not in (*_DROPPED, "Job")]
    secrets = [body for body in kept if body["kind"] == "Secret"]
    prefix = f"{name}-v{record.version}-{nonce}"
    renamed = {body["metadata"]["name"]: f"{prefix}-{number}" for number, body in enumerate(secrets)}
    labels = {NAME: name}
    marked = [_marked(body, renamed, {**labels, VERSION: str(record.version)}) for body in kept]
    selected = {**labels, TRACK: track}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": deployment_name(name, track),
            "namespace": workload["metadata"]["namespace"],
            "labels": {**selected, "app.kubernetes.io/managed-by": "longboat"},
            "annotations": {RECORD: msgspec.json.encode(record).decode()},
        },
        "spec": {
            "replicas": record.serve.replicas,
            "selector": {"matchLabels": selected},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "progressDeadlineSeconds": max(60, math.ceil(record.serve.start_s)),
            "revisionHistoryLimit": 1,
            "template": _template(workload["spec"]["template"], record, renamed, selected),
        },
    }
    around = _around(name, record, workload["metadata"]["namespace"]) if track == "stable" else []
    return [deployment, *marked, *around]


def _around(name: str, record: ServingRecord, namespace: str) -> list[Object]:
    """What leads requests to the pods of both tracks, and keeps drains from taking all of them at once."""
    labels, port = {NAME: name}, record.serve.port or SERVICE_PORT
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    own = {**metadata, "name": f"{name}.serve"}  # the run that is served has one of its own name
    ports = [{"name": "http", "port": port, "targetPort": PORT}]
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    objects: list[Object] = [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": labels, "ports": ports}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": own, "spec": budget},
    ]
    if record.serve.ingress is not None:
        backend = {"service": {"name": name, "port": {"number": port}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        rule = {"host": record.serve.ingress, "http": {"paths": paths}}
        body = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata}
        objects.append({**body, "spec": {"rules": [rule]}})
    return objects


def autoscaler_object(name: str, namespace: str, serve: Serve) -> Object:
    """Kubernetes' own scaling, by the CPU time of the replicas: the cluster does not know of requests in flight."""
    usage = {"type": "Utilization", "averageUtilization": BUSY_PERCENT}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace, "labels": {NAME: name}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": serve.replicas,
            "maxReplicas": serve.most,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": usage}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": DOWN_S}},
        },
    }


def canary_replicas(stable: int, weight: int) -> int:
    """Replicas of a canary that get about `weight` percent of the requests: every replica gets as many as another."""
    return max(1, round(stable * weight / (100 - weight)))


def promoted(stable: Object, canary: Object, record: ServingRecord) -> Object:
    """The stable Deployment with what the canary runs."""
    template = canary["spec"]["template"]
    labels = {**template["metadata"]["labels"], **stable["spec"]["selector"]["matchLabels"]}
    changed = {**template, "metadata": {**template["metadata"], "labels": labels}}
    annotations = {RECORD: msgspec.json.encode(record).decode()}
    metadata = {"name": stable["metadata"]["name"], "annotations": annotations}
    return {"metadata": metadata, "spec": {**stable["spec"], "template": changed}}


def _marked(body: Object, renamed: Mapping[str, str], labels: Mapping[str, str]) -> Object:
    """A Secret of the service's own: those of runs are shared, and go with the last run that needs them."""
    if body["kind"] != "Secret":
        return body
    metadata = {
        "name": renamed[body["metadata"]["name"]],
        "namespace": body["metadata"]["namespace"],
        "labels": dict(labels),
    }
    return {**body, "metadata": metadata}


def _template(template: Object, record: ServingRecord, renamed: Mapping[str, str], labels: Mapping[str, str]) -> Object:
    spec = _with_names(template["spec"], renamed)
    (container, *others) = spec["containers"]
    start = container["command"]
    path = record.serve.ready
    serving = {
        **container,
        "command": [start[0], "-I", "-S", "-c", _FRESH, ROOT, *start[1:]],
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": _startup(record.serve),
        "readinessProbe": {**_asked(path), "periodSeconds": READY_S, "timeoutSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {
            **_asked(record.serve.live or path),
            "periodSeconds": LIVE_S,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "lifecycle": {"preStop": {"exec": {"command": [start[0], "-c", f"import time; time.sleep({LEAVING_S})"]}}},
    }
    spec = {
        **{key: value for key, value in _spread(spec, labels[NAME]).items() if key != "subdomain"},
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": math.ceil(record.serve.drain_s) + LEAVING_S + 10,
        "containers": [serving, *others],
    }
    annotations = {VERSION: str(record.version)}
    return {"metadata": {"labels": {**labels, VERSION: str(record.version)}, "annotations": annotations}, "spec": spec}


def _spread(spec: Object, name: str) -> Object:
    """Replicas on different nodes where there are several, so that a lost one takes one replica; settings win."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {NAME: name}},
    }
    return {"topologySpreadConstraints": [constraint], **spec}


def _startup(serve: Serve) -> Object:
    """Until it has passed no other probe runs and no request comes: the answers are compared here."""
    tolerance = "-" if serve.tolerance is None else repr(serve.tolerance)
    arguments = [ROOT, str(PORT), serve.ready or "-", "golden" if serve.golden else "-", tolerance]
    return {
        "exec": {"command": ["python3", "-I", "-S", LAUNCHER, "--ready", *arguments]},
        "periodSeconds": STARTUP_S,
        "timeoutSeconds": 120,
        "failureThreshold": max(1, math.ceil(serve.start_s / STARTUP_S)),
    }


def _asked(path: str | None) -> Object:
    return {"tcpSocket": {"port": PORT}} if path is None else {"httpGet": {"path": path, "port": PORT}}


def _with_names(value: Any, renamed: Mapping[str, str]) -> Any:
    """The same with the new names of Secrets, where it refers to them."""
    if isinstance(value, dict):
        return {
            key: renamed.get(item, item)
            if key in ("secretName", "name") and isinstance(item, str)
            else _with_names(item, renamed)
            for key, item in value.items()
        }
    return [_with_names(item, renamed) for item in value] if isinstance(value, list) else value
