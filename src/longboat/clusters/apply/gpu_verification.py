"""Shows that GPUs work: each node offers as many as nvidia-smi lists on its host, and a pod with all of them sees them,
also after `systemctl daemon-reload`, which takes devices away from containers where a runtime is set up wrongly.

What was shown once is written into the host's journal, with the versions it was shown for; then only numbers are
compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from longboat.clusters.apply.answers import answered
from longboat.clusters.apply.execute import all_at_once
from longboat.clusters.apply.step_log import Listener, StepFailure, StepLog
from longboat.clusters.hosts.connection import CommandFailed, HostConnection, HostUnreachable, check
from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.observe.gpu_checks import wants_gpus
from longboat.clusters.plan.journal_shell import HAS_JOURNAL, PRELUDE
from longboat.clusters.plan.network import KUBECTL
from longboat.clusters.spec import GPU_RESOURCE, ClusterSpec
from longboat.core.errors import EngineError
from longboat.core.jobs import Value

OFFERED_S = 300.0  # the plugin's image is pulled for the first time
POD_S = 180.0  # its image is there; a busy node starts a pod late
LOOK_S = 1.0  # one request; a plugin and a pod take seconds
NAMESPACE = "kube-system"
STEP = "gpus"
_PLUGIN = "app.kubernetes.io/name=nvidia-device-plugin"


class GpuReport(Value, frozen=True):
    """The GPUs that a pod with all GPUs of a host saw."""

    host: str
    gpus: int
    table: str = ""
    """Of nvidia-smi in that pod; empty: it was not run this time."""
    note: str = ""


class GpusInUse(EngineError):
    pass


class GpuVerification:
    def __init__(
        self,
        spec: ClusterSpec,
        hosts: Mapping[str, HostConnection],
        facts: Mapping[str, HostFacts],
        listen: Listener,
    ) -> None:
        self._spec, self._hosts, self._facts = spec, hosts, facts
        self._control = hosts[spec.control_planes[0].name]
        self._log = StepLog(listen)
        self._lock = threading.Lock()
        self.reports: list[GpuReport] = []

    @property
    def names(self) -> list[str]:
        return [
            host.name
            for host in self._spec.hosts
            if host.name in self._facts and wants_gpus(self._spec, host, self._facts[host.name])
        ]

    @property
    def failures(self) -> Sequence[StepFailure]:
        return self._log.failures

    def run(self) -> None:
        all_at_once(self._attempt, self.names)
        self.reports.sort(key=lambda report: report.host)

    def _attempt(self, name: str) -> None:
        self._log.attempt(name, STEP, lambda: self._verify(name))

    def _verify(self, name: str) -> None:
        host = self._hosts[name]
        listed = check(host, "nvidia-smi -L", timeout_s=60)  # the driver may be loaded anew, seconds for each GPU
        count = count_gpus(listed)
        self._wait_until_offered(name, count)
        key = verified_key(self._spec, listed)
        report = GpuReport(host=name, gpus=count)
        if dict(self._facts[name].done).get(STEP) != key:
            report = self._try_pod(name, count)
            if report.table:
                check(host, f"{PRELUDE}{HAS_JOURNAL}done_with {STEP} {key}\n")
        with self._lock:
            self.reports.append(report)

    def _wait_until_offered(self, name: str, count: int) -> None:
        path = "{.status.allocatable." + GPU_RESOURCE.replace(".", r"\.") + "}"
        ask = f"{KUBECTL} get node {shlex.quote(name)} -o jsonpath={shlex.quote(path)}"
        deadline = time.monotonic() + OFFERED_S
        while (offered := self._ask(ask).strip() or "0") != str(count):
            if time.monotonic() > deadline:
                raise EngineError(
                    f"nvidia-smi lists {count} GPUs, the node offers {offered}{self._plugin_state(name)}",
                    hint=f"kubectl -n {NAMESPACE} logs -l {_PLUGIN}; a GPU with errors (dmesg: Xid) is not offered",
                )
            time.sleep(LOOK_S)

    def _plugin_state(self, name: str) -> str:
        pods = self._pods(f"-l {_PLUGIN} --field-selector spec.nodeName={shlex.quote(name)}")
        reason = reason_of(pods[0]) if pods else "it has no pod there"
        return f"; the device plugin: {reason}" if reason else ""

    def _ask(self, script: str, *, timeout_s: float = 60.0) -> str:
        """An API server that does not answer for a moment says nothing about GPUs."""
        return answered(lambda: check(self._control, script, timeout_s=timeout_s))

    def _create(self, job: dict[str, Any]) -> None:
        # The server checks it; kubectl would fetch megabytes of schema first, with which a busy server is late.
        script = f"{KUBECTL} create -f - --validate=false"
        try:
            answered(lambda: check(self._control, script, stdin=json.dumps(job).encode()))
        except CommandFailed as error:
            if "(AlreadyExists)" not in error.result.stderr:  # made by a call whose answer was lost
                raise

    def _pods(self, choice: str) -> list[dict[str, Any]]:
        output = self._ask(f"{KUBECTL} -n {NAMESPACE} get pods {choice} -o json")
        items: list[dict[str, Any]] = json.loads(output)["items"]
        return items

    def _try_pod(self, name: str, count: int) -> GpuReport:
        job = job_of(self._spec, name, count)
        job_name = job["metadata"]["name"]
        delete = f"{KUBECTL} -n {NAMESPACE} delete job {job_name} --ignore-not-found --cascade=foreground --timeout=60s"
        self._ask(delete, timeout_s=90)  # of an earlier command that was cut off
        try:
            self._create(job)
            pod = self._wait_for_pod(job_name)
            table = self._wait_for_table(pod)
            check(self._hosts[name], "systemctl daemon-reload")
            after = self._ask(f"{KUBECTL} -n {NAMESPACE} exec {pod} -- nvidia-smi -L")
        except GpusInUse as error:
            return GpuReport(host=name, gpus=count, note=error.message)
        finally:
            with contextlib.suppress(HostUnreachable):  # it goes by itself, later
                self._control.run(delete, timeout_s=90)  # kubectl itself waits for 60 s
        if count_gpus(after) != count:
            raise EngineError(
                f"after systemctl daemon-reload a pod sees {count_gpus(after)} of its {count} GPUs",
                hint="containerd and the kubelet must both use systemd's control groups: longboat cluster up again",
            )
        return GpuReport(host=name, gpus=count, table=table)

    def _wait_for_pod(self, job: str) -> str:
        deadline = time.monotonic() + POD_S
        while True:
            pods = self._pods(f"-l batch.kubernetes.io/job-name={job}")
            phase = pods[0]["status"].get("phase") if pods else ""
            if phase == "Running":
                return str(pods[0]["metadata"]["name"])
            if phase == "Failed" or time.monotonic() > deadline:
                raise pod_failure(pods[0] if pods else {})
            time.sleep(LOOK_S)

    def _wait_for_table(self, pod: str) -> str:
        deadline = time.monotonic() + POD_S
        while True:
            table = self._ask(f"{KUBECTL} -n {NAMESPACE} logs {pod} --tail=200").strip()
            if table.endswith("+") or time.monotonic() > deadline:  # the last line of the table is its lower edge
                return table
            time.sleep(LOOK_S)


def count_gpus(listed: str) -> int:
    """Count the GPUs in the output of `nvidia-smi -L`; MIG instances are indented below theirs."""
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def verified_key(spec: ClusterSpec, listed: str) -> str:
    versions = f"{spec.versions.device_plugin} {spec.versions.toolkit} {spec.versions.containerd}"
    return hashlib.sha256(f"{versions}\n{listed}".encode()).hexdigest()[:16]


def job_of(spec: ClusterSpec, node: str, count: int) -> dict[str, Any]:
    """A Job that requests all GPUs of one node and prints them. It names the node itself: the kubelet then refuses at
    once if GPUs are in use, and no scheduler waits.
    """
    container = {
        "name": "main",
        "image": spec.versions.device_plugin_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["nvidia-smi", "--loop=3600"],
        "resources": {"limits": {GPU_RESOURCE: count}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    pod = {
        "nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
    }
    name = f"longboat-gpu-check-{hashlib.sha256(node.encode()).hexdigest()[:8]}"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 900,  # whoever was to delete it may be gone
            "ttlSecondsAfterFinished": 600,
            "template": {"spec": pod},
        },
    }


def pod_failure(pod: dict[str, Any]) -> EngineError:
    status = pod.get("status") or {}
    if status.get("reason") == f"OutOf{GPU_RESOURCE}":
        return GpusInUse("GPUs are in use; the pod that would show all of them was not run")
    reason = reason_of(pod) or "it did not start"
    return EngineError(
        f"a pod with all GPUs of the host does not run: {reason}",
        hint="nvidia-ctk cdi list on the host shows the devices; journalctl -u containerd says why a container failed",
    )


def reason_of(pod: dict[str, Any]) -> str:
    """Why a pod does not run; empty: it runs."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        entry = state.get("waiting") or state.get("terminated") or (container.get("lastState") or {}).get("terminated")
        if entry:
            return f"{entry.get('reason', '')} {entry.get('message', '')}".strip()
    if status.get("phase") == "Running":
        return ""
    return str(status.get("message") or status.get("reason") or status.get("phase") or "")
