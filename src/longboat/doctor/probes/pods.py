"""Probe pods: made, waited for, read and removed. Whoever interrupts the doctor leaves none behind.

The report comes as the termination message, so that neither logs nor exec need be allowed.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import secrets
import threading
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from longboat.core.jobs import Value
from longboat.doctor.facts import PODS_S
from longboat.doctor.probes import pod_program
from longboat.doctor.probes.outcomes import PodOutcome
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.exec.helper_pod import HelperMounts, pod_spec
from longboat.engines.kubernetes.exec.pod_exec import PYTHON_START
from longboat.engines.kubernetes.explain.containers import IMAGE_REASONS, pull_trouble
from longboat.engines.kubernetes.manifests.overlay import overlaid
from longboat.engines.kubernetes.observe.termination import container_of
from longboat.engines.shared.containers.image_errors import is_without_python
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, ApiError, Forbidden, Invalid
from longboat.kubeapi.kinds import POD, Kind

Object = dict[str, Any]
DOCTOR = "doctor"
ROLE = f"{names.DOMAIN}/probe"
"""Label that tells the pods of one examination apart."""
LIFE_S = 300
"""A pod of a doctor that was killed ends by itself after so long."""
WAIT_S = PODS_S - 30.0
"""For one pod to start and to end; the rest is for what is asked before and after it."""
PULL_S = 60.0
"""For so long a pull that fails is tried again by the kubelet before we call it broken."""
SCHEDULE_S = 30.0
"""For so long nobody may have room for a pod of 50m CPU."""
GPU_MEMORY = "8Gi"
"""A framework with its context of CUDA takes some GiB."""
_PAUSE_S = 0.2  # between looks at a pod that takes a second or two


class PodSettings(Value, frozen=True):
    """What every probe pod of one examination has in common."""

    image: str
    security: str = "baseline"
    pull_secrets: tuple[str, ...] = ()
    service_account: str | None = None
    overlay: dict[str, Any] = {}
    """`kubernetes.pod` of the settings, laid over every pod of a run."""


@functools.lru_cache(maxsize=1)
def packed_program() -> str:
    return base64.urlsafe_b64encode(zlib.compress(Path(pod_program.__file__).read_bytes(), 9)).decode()


class ProbePods:
    """All pods and claims of one examination. `close` removes them; after that none can be made. Thread-safe."""

    def __init__(self, client: Client, settings: PodSettings) -> None:
        self.client, self.settings = client, settings
        self.token = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._made: list[tuple[Kind, str]] = []
        self._is_closed = threading.Event()

    def create(self, kind: Kind, body: Object) -> str:
        """Make an object that goes with the examination; its name. Raises ApiError."""
        name = str(body["metadata"]["name"])
        with self._lock:  # one that is being made is known before `close` removes what is known
            if self._is_closed.is_set():
                raise ApiError("the examination has ended")
            self._made.append((kind, name))
            with contextlib.suppress(AlreadyExists):  # a request that was sent twice: the name is ours alone
                self.client.create(body)
        return name

    def remove(self, kind: Kind, name: str) -> None:
        self.client.delete(kind, name, grace_s=0 if kind is POD else None)

    def close(self) -> None:
        """Remove all. Raises ApiError for what may be left; it ends by itself, and `--fix` removes it."""
        self._is_closed.set()
        with self._lock:
            made, self._made = self._made, []
        for kind, name in made:
            self.remove(kind, name)

    def start(
        self, role: str, *arguments: str, mounts: HelperMounts | None = None, gpu: str = "", count: int = 0
    ) -> str:
        """Make a pod; its name. `gpu`: the resource to ask for. Raises ApiError."""
        spec = self._spec([role, *arguments], mounts or HelperMounts(volumes=[], mounts=[]))
        if gpu and count:
            spec["containers"][0]["resources"]["limits"] |= {gpu: count, "memory": GPU_MEMORY}
        meta = {
            "name": f"longboat-doctor-{self.token}-{role}",
            "namespace": self.client.namespace,
            "labels": {**self.labels, ROLE: role},
        }
        body: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        return self.create(POD, overlaid(body, self.settings.overlay))

    @property
    def labels(self) -> dict[str, str]:
        return {names.MANAGED_BY: "longboat", names.KIND: DOCTOR, f"{names.DOMAIN}/examination": self.token}

    def _spec(self, arguments: list[str], mounts: HelperMounts) -> Object:
        shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
        with_shm = HelperMounts(
            volumes=[*mounts.volumes, shm], mounts=[*mounts.mounts, {"name": "shm", "mountPath": "/dev/shm"}]
        )
        security = "restricted" if self.settings.security == "restricted" else "baseline"
        spec = pod_spec(self.settings.image, security, with_shm)  # type: ignore[arg-type]
        spec["containers"][0]["command"] = ["python3", "-I", "-c", PYTHON_START, packed_program(), *arguments]
        # The others avoid the node of the one that answers, so that the way between nodes is tried where there are two.
        answering = {"labelSelector": {"matchLabels": {**self.labels, ROLE: "serve"}}}
        term = {**answering, "topologyKey": "kubernetes.io/hostname"}
        preferred = [{"weight": 100, "podAffinityTerm": term}]
        spec["affinity"] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        spec["activeDeadlineSeconds"] = LIFE_S
        if self.settings.pull_secrets:
            spec["imagePullSecrets"] = [{"name": name} for name in self.settings.pull_secrets]
        if self.settings.service_account:
            spec["serviceAccountName"] = self.settings.service_account
        return spec

    def wait(self, name: str, *, until_running: bool = False) -> tuple[PodOutcome, Object, str]:
        """How it went, its last state, and its termination message. Raises ApiError."""
        began = time.monotonic()
        while True:
            pod = self.client.get(POD, name)
            waited_s = time.monotonic() - began
            problem, kind = trouble(pod, waited_s, self.settings.image)
            node = str((pod.get("spec") or {}).get("nodeName") or "")
            state = (container_of(pod) or {}).get("state") or {}
            if "terminated" in state:
                message = str(state["terminated"].get("message") or "")
                outcome = PodOutcome(node=node, started_s=waited_s, asked=self.client.now())
                return _ended(outcome, state["terminated"], message), pod, message
            if problem or self._is_closed.is_set():
                return PodOutcome(node=node, problem=problem or "interrupted", kind=kind), pod, ""
            if until_running and "running" in state and (pod.get("status") or {}).get("podIP"):
                return PodOutcome(node=node, started_s=waited_s), pod, ""
            self._is_closed.wait(_PAUSE_S)

    def run(self, role: str, *arguments: str, **more: Any) -> tuple[PodOutcome, Mapping[str, Any]]:
        """Make a pod and wait for its report. What the API server refuses is part of the outcome."""
        try:
            name = self.start(role, *arguments, **more)
        except (Forbidden, Invalid) as error:
            return PodOutcome(problem=refusal(error), kind="admission"), {}
        outcome, _, message = self.wait(name)
        return outcome, _parsed(message)


def refusal(error: ApiError) -> str:
    """Why admission refused an object. Raises the error where it is the right that lacks, which is no fault."""
    if " cannot " in error.message:  # so RBAC says it
        raise error
    return error.message


def _ended(outcome: PodOutcome, terminated: Mapping[str, Any], message: str) -> PodOutcome:
    if terminated.get("exitCode") == 0 and _parsed(message):
        return outcome
    reason = f"{terminated.get('reason') or 'Error'} (exit code {terminated.get('exitCode')})"
    said = message.strip().splitlines()[-1:] or [""]
    return msgspec.structs.replace(outcome, problem=f"{reason} {said[0]}".strip(), kind="end")


def _parsed(message: str) -> Mapping[str, Any]:
    """A pod may say anything."""
    try:
        report = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}


def trouble(pod: Mapping[str, Any], waited_s: float, image: str) -> tuple[str, str]:
    """Why it will not run, after so long, and of which kind; empty as long as there is hope. Pure."""
    status = pod.get("status") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False" and waited_s > SCHEDULE_S:
        return str(scheduled.get("message") or "no node takes it"), "scheduling"
    waiting = ((container_of(pod) or {}).get("state") or {}).get("waiting") or {}
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason in IMAGE_REASONS:
        pulled = pull_trouble(reason, message, image)
        if pulled.is_final or waited_s > PULL_S:
            return pulled.what, "image"
    elif reason and reason not in ("ContainerCreating", "PodInitializing"):
        return f"{reason}: {message}".rstrip(": "), "end" if is_without_python(message) else "start"
    if status.get("phase") == "Failed":
        return str(status.get("message") or status.get("reason") or "it failed"), "start"
    if waited_s > WAIT_S:
        return f"it did not end within {WAIT_S:.0f} s ({reason or status.get('phase') or 'no phase'})", "start"
    return "", ""
