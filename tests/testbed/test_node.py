"""Real nodes: pods that find each other by name, logs, exec, port-forward, services; nothing left afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed import binaries, cleanup, clusters, images, namespaces, node, processes, profiles
from testbed.binaries import Binaries
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from testbed.up import up
from tests.testbed.cleaning import cleaned

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "longboat.test/python:latest"
PEERS = """
import os, socket, sys, time
me = int(os.environ["JOB_COMPLETION_INDEX"])
server = socket.create_server(("", 5000))
deadline = time.monotonic() + 60
while True:
    try:
        peer = socket.create_connection((f"p-{1 - me}.p", 5000), timeout=2)
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.1)
peer.sendall(f"hello from {me}".encode()); peer.shutdown(socket.SHUT_WR)
connection, _ = server.accept()
print("uid", os.getuid(), "heard", connection.makefile().read(), flush=True)
"""


FETCH = """
import sys, time, urllib.request
deadline = time.monotonic() + 30
while True:
    try:
        print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode(), end="")
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.1)
"""
SERVE = ("python3", "-m", "http.server", "8000", "--directory", "/etc")


def fetched_here(url: str) -> str:
    command = [sys.executable, "-c", FETCH, url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def container(*command: str) -> dict[str, Any]:
    return {"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": list(command)}


def pod(name: str, *command: str, **spec: Any) -> str:
    labels = {"app": name}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [container(*command)],
                **spec,
            },
        }
    )


def job_of_two() -> str:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "p"},
        "spec": {"clusterIP": "None", "selector": {"job-name": "p"}, "publishNotReadyAddresses": True},
    }
    template = {
        "restartPolicy": "Never",
        "subdomain": "p",
        "securityContext": {"runAsUser": 12345, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container("python3", "-c", PEERS)],
    }
    spec = {
        "completions": 2,
        "parallelism": 2,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": template},
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "p"}, "spec": spec}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [service, job]})


@pytest.mark.pods
def test_two_pods_of_a_job_find_each_other_by_name(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", text=job_of_two())
    kubectl("wait", "--for=condition=complete", "job/p", "--timeout=90s")
    logs = kubectl("logs", "--selector=job-name=p", "--tail=-1")
    assert sorted(logs.splitlines()) == ["uid 12345 heard hello from 0", "uid 12345 heard hello from 1"]


@pytest.mark.pods
def test_exec_services_and_port_forward(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", text=pod("web", *SERVE))
    kubectl("expose", "pod", "web", "--name=site", "--port=80", "--target-port=8000")
    kubectl("wait", "--for=condition=ready", "pod/web", "--timeout=60s")
    assert kubectl("exec", "web", "--", "sh", "-c", "echo $((6 * 7))") == "42\n"
    assert kubectl("exec", "web", "--", "python3", "-c", FETCH, "http://site/hostname") == "web\n"
    address = kubectl("get", "service", "site", "-o", "jsonpath={.spec.clusterIP}")
    assert fetched_here(f"http://{address}/hostname") == "web\n", "the machine reaches services as well"
    command = kubectl.command("port-forward", "pod/web", ":8000", "--address=127.0.0.1")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout
            port = forward.stdout.readline().split("->")[0].rpartition(":")[2].strip()
            assert fetched_here(f"http://127.0.0.1:{port}/hostname") == "web\n"
        finally:
            forward.kill()


@pytest.mark.pods
def test_limits_exit_codes_and_unknown_names(kubectl: Kubectl) -> None:
    code = "import socket, sys\ntry: socket.gethostbyname('example.com')\nexcept OSError as e: print(e); sys.exit(7)"
    limited = container("python3", "-c", code) | {"resources": {"limits": {"memory": "64Mi", "cpu": "500m"}}}
    kubectl("create", "-f", "-", text=pod("seven", containers=[limited]))
    kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/seven", "--timeout=60s")
    path = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"
    assert kubectl("get", "pod", "seven", "-o", path) == "7"
    assert "not known" in kubectl("logs", "seven")


@pytest.mark.pods
def test_further_images_are_given_to_a_running_node(cluster: Cluster, kubectl: Kubectl) -> None:
    holder = namespaces.holder_of(cluster, node.name_of(0))
    assert holder is not None
    programs = binaries.find(("tools", "containerd", "jobset"))
    images.load(["jobset"], programs, holder, node.SOCKET)
    one = {"name": "main", "image": images.reference("jobset"), "imagePullPolicy": "Never", "args": ["--help"]}
    kubectl("create", "-f", "-", text=pod("helps", containers=[one]))
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/helps", "--timeout=60s")
    assert "-kubeconfig" in kubectl("logs", "helps")


@pytest.mark.pods
@pytest.mark.slow
@pytest.mark.usefixtures("needs_pods")
def test_two_nodes_talk_and_leave_nothing(state: Path) -> None:
    before = cleanup.inventory()
    cluster = up("two", profiles.combine(["two-nodes"]))
    kubectl = Kubectl(cluster, "default")
    for number in range(2):
        kubectl("create", "-f", "-", text=pod(f"web-{number}", *SERVE, nodeName=node.name_of(number)))
    kubectl("wait", "--for=condition=ready", "pod/web-0", "pod/web-1", "--timeout=60s")
    kubectl("expose", "pod", "web-0", "--port=80", "--target-port=8000")
    address = kubectl("get", "pod", "web-1", "-o", "jsonpath={.status.podIP}")
    for where, url in (("web-0", f"http://{address}:8000/hostname"), ("web-1", "http://web-0.default/hostname")):
        expected = "web-1" if where == "web-0" else "web-0"
        assert kubectl("exec", where, "--", "python3", "-c", FETCH, url).strip() == expected
    assert cleanup.down("two")
    assert cleanup.left_behind(before, cleanup.inventory(), cluster) == []
    assert not state.exists()


@pytest.mark.pods
@pytest.mark.slow
@pytest.mark.usefixtures("needs_pods")
def test_kill_while_pods_run(state: Path) -> None:
    """The test run that held the lease is killed with pods running: the next `clean` removes all of it."""
    before = cleanup.inventory()
    code = """if True:
        import time
        from testbed import clusters, profiles, up
        cluster = up.up("one", profiles.combine(["pods"]), lease=True)
        lease = clusters.hold_lease(cluster.folder)
        print("up", flush=True)
        time.sleep(600)
    """
    run = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert run.stdout and run.stdout.readline() == "up\n"
        cluster = clusters.get("one")
        kubectl = Kubectl(cluster, "default")
        kubectl("create", "-f", "-", text=pod("sleeper", "sleep", "600"))
        kubectl("wait", "--for=condition=ready", "pod/sleeper", "--timeout=60s")
        assert cleaned() == []
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate()
    assert cleaned() == ["cluster one"]
    assert cleanup.left_behind(before, cleanup.inventory(), cluster) == []


@pytest.mark.pods
@pytest.mark.slow
@pytest.mark.usefixtures("needs_pods")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("moment", ["node-0-room", "node-0-containerd", "node-0-kubelet"])
def test_end_in_the_middle_of_a_start(state: Path, moment: str, number: signal.Signals) -> None:
    """Killed, its leftovers are removed by the next `clean`; interrupted, it takes them away by itself."""
    before = cleanup.inventory()
    command = [sys.executable, "-m", "testbed", "up", "--name", "one", "--profile", "pods"]
    # Started in the background of a shell, we would hand on to it that interrupts are ignored.
    listening = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    starter = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=listening)
    try:
        wanted = clusters.folder_of("one") / "processes" / f"{moment}.json"
        assert processes.wait_until(wanted.exists, 60, every_s=0.005)
        half = clusters.get("one")
    finally:
        starter.send_signal(number)
        told = starter.communicate()[1]
    if number == signal.SIGINT:
        assert starter.returncode == 130 and told.endswith("testbed: interrupted\n")
    assert cleaned() == (["cluster one"] if number == signal.SIGKILL else [])
    assert cleanup.left_behind(before, cleanup.inventory(), half) == []
    assert not state.exists()


def test_a_node_writes_only_where_its_room_is() -> None:
    cluster = Cluster("one", "0a1b2c3d", Path("/x"), ("pods",), "10.70.255.2", {"apiserver": 6443}, range=70)
    programs = Binaries({name: Path("/bin") / name for name in ("runc", "ptp", "containerd", "kubelet", "kube-proxy")})
    text = node.containerd_configuration(Path("/x/node-0"), programs)
    assert 'root = "/var/lib/containerd"' in text and 'state = "/run/containerd"' in text
    kubelet = node.kubelet_configuration(cluster, 0)
    assert str(kubelet["volumePluginDir"]).startswith("/var/lib/kubelet/")
    assert kubelet["cgroupRoot"] == "/longboat-0a1b2c3d/node-0"
    assert "--root-dir=/var/lib/kubelet" in node.component_arguments(cluster, programs, 0)["kubelet"]
