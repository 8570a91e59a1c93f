"""The launcher in real pods: any user, a read-only root, no `python`, names not known yet, the kernel's limits."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longboat.launcher.zipapp import write_zipapp
from testbed.fixtures import Kubectl
from tests.launcher.nodes import until
from tests.launcher.pods import code_of

pytestmark = pytest.mark.pods
LAUNCHER = ["python3", "-I", "-S", "/longboat/launcher/launcher.pyz"]


class Job:
    """One Indexed Job with a headless Service, as the contract describes a role of an attempt."""

    def __init__(self, kubectl: Kubectl, folder: Path, script: str, nodes: int = 2, **keys: Any) -> None:
        self._kubectl = kubectl
        self._folder = folder
        self.nodes = nodes
        code, self._pack = code_of({"train.py": script})
        self.gang: dict[str, Any] = {
            "version": 1,
            "plan": {"run": "r", "uid": "u" * 32, "attempt": 0, "grace_s": 10, "unset": ["LONGBOAT_*"]},
            "roles": {"worker": {"command": ["python", "train.py"], "env": {}, **keys}},
            "nodes": [
                {"role": "worker", "index": n, "address": f"r-a0-{n}.r-a0", "env": {}, "ranks": [rank(n)]}
                for n in range(nodes)
            ],
            "deciding": ["worker"],
            "code": code,
            "checkpoints": {"dir": "/longboat/node/checkpoints", "keep": 3, "resume": None},
            "artifacts": {"dir": "/longboat/node/artifacts", "patterns": []},
            "line": {"port": 29499},
        }

    def create(self, **limits: str) -> None:
        self._kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
        write_zipapp(str(self._folder / "launcher.pyz"))
        launcher = (self._folder / "launcher.pyz").read_bytes()
        gang = gzip.compress(json.dumps(self.gang).encode())
        items = [
            secret("launcher", {"launcher.pyz": launcher}),
            secret("gang", {"gang": gang, "token": b"of this attempt"}),
            secret("code", {"0": self._pack}),
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "r-a0"}}
            | {"spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"run": "r"}}},
            self._job(limits),
        ]
        self._kubectl("create", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def _job(self, limits: dict[str, str]) -> dict[str, Any]:
        volumes: list[dict[str, Any]] = [{"name": "node", "emptyDir": {}}]
        volumes += [{"name": name, "secret": {"secretName": name}} for name in ("launcher", "gang", "code")]
        container = {
            "name": "main",
            "image": "longboat.test/python:latest",
            "imagePullPolicy": "IfNotPresent",
            "command": [*LAUNCHER, "--pod", "/longboat", "worker"],
            "volumeMounts": [{"name": each["name"], "mountPath": f"/longboat/{each['name']}"} for each in volumes],
            "resources": {"limits": limits} if limits else {},
            "securityContext": {
                "readOnlyRootFilesystem": True,
                "runAsUser": 12345,
                "runAsNonRoot": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        spec = {
            "restartPolicy": "Never",
            "subdomain": "r-a0",
            "terminationGracePeriodSeconds": 30,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
            "volumes": volumes,
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "r-a0"},
            "spec": {
                "completions": self.nodes,
                "parallelism": self.nodes,
                "completionMode": "Indexed",
                "backoffLimitPerIndex": 0,  # as the engine makes them: an index that failed does not end the others
                "podReplacementPolicy": "Failed",
                "template": {"metadata": {"labels": {"run": "r"}}, "spec": spec},
            },
        }

    def pod(self, index: int) -> dict[str, Any]:
        selector = f"batch.kubernetes.io/job-completion-index={index}"
        found = json.loads(self._kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
        return found[0] if found else {}

    def name(self, index: int) -> str:
        return str(self.pod(index)["metadata"]["name"])

    def ended(self, index: int) -> dict[str, Any] | None:
        """The container's end, with the launcher's own words read."""
        statuses = self.pod(index).get("status", {}).get("containerStatuses") or [{}]
        end = statuses[0].get("state", {}).get("terminated")
        return None if end is None else {**end, "said": json.loads(end["message"]) if end.get("message") else None}

    def wait(self, index: int) -> dict[str, Any]:
        found: dict[str, Any] = self.until(lambda: self.ended(index))
        return found

    def until_said(self, text: str) -> None:
        for index in range(self.nodes):
            self.until(lambda index=index: self.pod(index).get("status", {}).get("phase") == "Running")
            self.until(lambda index=index: text in self._kubectl("logs", self.name(index)))

    def until(self, condition: Callable[[], Any]) -> Any:
        return until(condition, told=self._events, every_s=0.2)

    def _events(self) -> str:
        return self._kubectl("get", "events") + self._kubectl("logs", "-l", "run=r", "--prefix")


def rank(number: int) -> dict[str, Any]:
    return {"rank": number, "local_rank": 0, "env": {"RANK": str(number)}}


def secret(name: str, data: dict[str, bytes]) -> dict[str, Any]:
    coded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": coded}


SLEEPS = (
    "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(4))\nprint('up', flush=True)\ntime.sleep(600)\n"
)


def test_a_gang_in_pods(kubectl: Kubectl, tmp_path: Path) -> None:
    script = """
import getpass, os, socket, sys, time
open(os.path.expanduser("~/written"), "w")
open(os.path.join(os.environ["TMPDIR"], "too"), "w")
print(os.getuid(), getpass.getuser(), os.environ["HOME"], os.environ["RANK"], flush=True)
if os.environ["RANK"] == "0":
    socket.create_server(("", 23456)).accept()
    time.sleep(600)
while True:  # the end of rank 1 is the end of rank 0, which has spoken by then
    try:
        socket.create_connection(("r-a0-0.r-a0", 23456), 1.0)
        sys.exit(7)
    except OSError:
        time.sleep(0.1)
"""
    job = Job(kubectl, tmp_path, script)
    job.create()
    assert job.wait(1)["exitCode"] == 7
    said = job.wait(0)["said"]
    assert (said["gang"]["exit_code"], said["gang"]["cause"], said["gang"]["node"]) == (7, "exit", "worker-1")
    assert said["gang"]["first"]["rank"] == 1
    first, *_ = kubectl("logs", job.name(0)).splitlines()
    assert first.startswith("0.out 0 2") and first.endswith("Z 12345 longboat /longboat/node/home 0")


def test_told_to_stop_by_exec(kubectl: Kubectl, tmp_path: Path) -> None:
    job = Job(kubectl, tmp_path, SLEEPS)
    job.create()
    job.until_said("up")
    status = json.loads(kubectl("exec", job.name(1), "--", *LAUNCHER, "--status", "/longboat/node"))
    assert status["phase"] == "running" and status["ranks"]["1"]["alive"]
    kubectl("exec", job.name(0), "--", *LAUNCHER, "--tell", "/longboat/node", "stop", "60")
    ends = [job.wait(0), job.wait(1)]
    assert [end["exitCode"] for end in ends] == [4, 4]
    assert ends[0]["said"]["gang"]["cause"] is None and ends[0]["said"]["ended_by"] == "stop"


def test_a_pod_that_is_deleted(kubectl: Kubectl, tmp_path: Path) -> None:
    job = Job(kubectl, tmp_path, SLEEPS)
    job.create()
    job.until_said("up")
    kubectl("delete", "pod", job.name(1), "--wait=false")
    said = job.wait(0)["said"]
    assert (said["gang"]["cause"], said["gang"]["exit_code"], said["gang"]["node"]) == ("preemption", 208, "worker-1")


def test_out_of_the_container_s_memory(kubectl: Kubectl, tmp_path: Path) -> None:
    """Whoever the kernel kills, the rank alone or all of the container, somebody says that it was the memory."""
    job = Job(kubectl, tmp_path, "x = []\nwhile True: x.append(b'x' * (1 << 20))\n", nodes=1)
    job.create(memory="100Mi")
    end = job.wait(0)
    if end["said"] is None:
        assert end["reason"] == "OOMKilled"
    else:
        first = end["said"]["first"]
        assert (first["cause"], first["signal"], first["memory_limit"]) == ("oom", 9, 100 << 20)
        assert "100 MiB" in first["message"]
