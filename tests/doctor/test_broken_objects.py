"""The doctor where objects of a real API server say that something is broken: nodes, Leases, webhooks, requests."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from longboat.autoscaler.report.status import Reporter
from longboat.core.times import format_time
from longboat.doctor.checks import workloads
from longboat.doctor.examine import examine_cluster
from longboat.doctor.fixes import fix_cluster
from longboat.engines.kubernetes.install.install import lease_namespace
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from testbed.proxy import ApiProxy
from tests.doctor.conftest import Findings, target_of
from tests.engines.kubernetes.broken import apply, opened, pod, until

pytestmark = pytest.mark.cluster
Examine = Callable[..., Findings]
GPU = "nvidia.com/gpu"
TEMPLATE = {
    "metadata": {"labels": {"app": "plugin"}},
    "spec": {
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "any"}],
    },
}
PLUGIN = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "nvidia-device-plugin"},
    "spec": {"selector": {"matchLabels": {"app": "plugin"}}, "template": TEMPLATE},
}


@pytest.fixture
def node(kubectl: Kubectl) -> Iterator[Callable[..., str]]:
    """Makes nodes that nobody cares for: what is written into them stays."""
    made: list[str] = []

    def make(name: str, status: dict[str, Any], pods: str = "10.244.91.0/24", **meta: Any) -> str:
        full = f"{name}-{os.getpid()}"
        made.append(full)
        spec = {"podCIDR": pods, "podCIDRs": [pods], "taints": [{"key": "a-team", "effect": "NoSchedule"}]}
        apply(kubectl, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": full, **meta}, "spec": spec})
        kubectl("patch", "node", full, "--subresource=status", "-p", json.dumps({"status": status}))
        return full

    yield make
    kubectl("delete", "node", *made, "--wait=false")
    kubectl("-n", "kube-node-lease", "delete", "lease", *made, "--ignore-not-found")


def info(version: str = "v1.36.0", runtime: str = "containerd://2.4.2") -> dict[str, Any]:
    names = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion", "operatingSystem")
    fields = dict.fromkeys((*names, "architecture"), "x")
    return {"nodeInfo": {**fields, "kubeletVersion": version, "containerRuntimeVersion": runtime}}


def condition(kind: str, status: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "Test", "message": "as the test says"}


def lease(name: str, renewed: float) -> dict[str, Any]:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": format_time(renewed, 6)}
    meta = {"name": name, "namespace": "kube-node-lease"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def test_nodes(node: Callable[..., str], kubectl: Kubectl, examine: Examine) -> None:
    ready = [condition("Ready", "True")]
    counts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    hidden = node("hidden", {"conditions": ready, **info()}, labels={"nvidia.com/gpu.present": "true"})
    apply(kubectl, PLUGIN)
    desired = ("get", "daemonset", "nvidia-device-plugin", "-o", "jsonpath={.status.desiredNumberScheduled}")
    until("the DaemonSet has seen the node", lambda: kubectl(*desired) == "1")
    # Of a node that is silent for 50 s Kubernetes believes nothing any more.
    eight, seven = {**counts, GPU: "8"}, {**counts, GPU: "7"}
    sick = node("sick", {"conditions": ready, "capacity": eight, "allocatable": seven, **info("v1.20.0")})
    lost = node("lost", {"conditions": [condition("Ready", "Unknown")], **info(runtime="containerd://1.6.1")})
    now = time.time()
    for body in (lease(lost, now - 3600), lease(hidden, now + 3600)):
        kubectl("-n", "kube-node-lease", "apply", "-f", "-", text=json.dumps(body))
    pressed = node("pressed", {"conditions": [*ready, condition("DiskPressure", "True")], **info("v1.99.0")})
    kubectl("cordon", pressed)
    found = examine()
    wanted = {
        "nodes": ("warning", lost),
        "node pressure": ("broken", f"{pressed}: DiskPressure (as the test says)"),
        "cordoned nodes": ("warning", pressed),
        "kubelet versions": ("warning", f"{pressed} v1.99.0"),
        "taints": ("warning", "a-team:NoSchedule"),
        "pod addresses": ("broken", f"10.244.91.0/24 ({hidden}"),
        "container runtimes": ("warning", f"{lost} containerd://1.6.1"),
        "heartbeats": ("broken", lost),
        "node clocks": ("warning", hidden),
        "gpu health": ("broken", f"{sick}: 7 of 8 {GPU}"),
        "hidden gpus": ("broken", hidden),
        "gpu labels": ("warning", sick),
        "device plugins": ("broken", "nvidia-device-plugin 0 of 1"),
    }
    seen = {name: (found[name].status, words in found[name].detail) for name, (_, words) in wanted.items()}
    assert seen == {name: (status, True) for name, (status, _) in wanted.items()}, [found[name] for name in wanted]
    assert all(found[name].hint for name in wanted)


def test_webhooks_and_certificate_requests(kubectl: Kubectl, namespace: str, examine: Examine, tmp_path: Path) -> None:
    rule = {"apiGroups": ["nobody.example"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    hook = {
        "name": "policy.nobody.example",
        "rules": [rule],
        "clientConfig": {"service": {"namespace": namespace, "name": "policy"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    command = ["openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=somebody"]
    keys = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "csr")]
    subprocess.run([*command, *keys], check=True, capture_output=True)
    request = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": namespace},
        "spec": {
            "request": base64.b64encode((tmp_path / "csr").read_bytes()).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        },
    }
    try:
        apply(kubectl, {**kind, "metadata": {"name": namespace}, "webhooks": [hook]}, request)
        found = examine()
        assert found["webhooks"].status == "broken" and f"({namespace}/policy)" in found["webhooks"].detail
        assert found["certificate requests"].status == "warning" and namespace in found["certificate requests"].detail
        kubectl("certificate", "approve", namespace)
        assert namespace not in examine()["certificate requests"].detail
    finally:
        kubectl("delete", "validatingwebhookconfiguration,certificatesigningrequest", namespace)


def test_what_is_wrong_with_the_namespace(
    kubectl: Kubectl, namespace: str, cluster: Cluster, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {"name": "held", "finalizers": ["longboat.test/hold"]}
    stuck = {**pod("held"), "metadata": held}
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    classes = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": f"{namespace}-{number}", "annotations": default},
            "provisioner": "longboat.test/none",
        }
        for number in range(2)
    ]
    apply(kubectl, stuck, *classes)
    kubectl("patch", "serviceaccount", "default", "-p", json.dumps({"imagePullSecrets": [{"name": "lost"}]}))
    kubectl("create", "quota", "none", "--hard=pods=0")
    until("the quota is counted", lambda: "1/0" in kubectl("get", "quota", "none"))
    kubectl("delete", "pod", "held", "--force", "--grace-period=0", "--wait=false")
    monkeypatch.setattr(workloads, "STUCK_S", 0.0)  # nobody waits ten minutes for it here
    with opened(cluster, namespace) as client:
        Reporter(client, lease_namespace(client), "test", print).failed("the cloud refuses")
    try:
        found = examine()
        wanted = {
            "stuck pods": ("warning", "held"),
            "storage classes": ("warning", f"{namespace}-0, {namespace}-1"),
            "service account": ("broken", "lost"),
            "quota": ("warning", "of 0 pods"),
            "autoscaler": ("warning", "the cloud refuses"),
        }
        seen = {name: (found[name].status, words in found[name].detail) for name, (_, words) in wanted.items()}
        assert seen == {name: (status, True) for name, (status, _) in wanted.items()}, [found[name] for name in wanted]
        monkeypatch.setattr(workloads, "SILENT_S", 0.0)
        silent = examine()["autoscaler"]
        assert silent.status == "broken" and "does not run" in silent.detail
    finally:
        kubectl("delete", "storageclass", *(body["metadata"]["name"] for body in classes))
        kubectl("patch", "pod", "held", "-p", json.dumps({"metadata": {"finalizers": None}}))


def test_a_namespace_that_goes(kubectl: Kubectl, namespace: str, examine: Examine) -> None:
    going = f"{namespace}-going"
    held = {"name": "held", "namespace": going, "finalizers": ["longboat.test/hold"]}
    kubectl("create", "namespace", going)
    kubectl(
        "create", "-n", going, "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held})
    )
    kubectl("delete", "namespace", going, "--wait=false")
    try:
        found = examine(place=going)["namespace"]
        assert found.status == "broken" and "is being deleted" in found.detail
    finally:
        kubectl("patch", "configmap", "held", "-n", going, "-p", json.dumps({"metadata": {"finalizers": None}}))


def test_an_api_certificate_that_ends_soon(
    cluster: Cluster, examine: Examine, api_proxy: ApiProxy, tmp_path: Path
) -> None:
    key, request, made = (str(tmp_path / name) for name in ("key", "csr", "crt"))
    # Of the same kind as the one it replaces: a server keeps one certificate of each kind.
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command = ["openssl", "req", *kind, "-nodes", "-subj", "/CN=api", "-keyout", key, "-out", request]
    subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1")
    authority = ["-CA", str(cluster.pki / "ca.crt"), "-CAkey", str(cluster.pki / "ca.key"), "-CAcreateserial"]
    command = ["openssl", "x509", "-req", "-in", request, "-days", "3", "-extfile", str(tmp_path / "names")]
    serial = ["-CAserial", str(tmp_path / "serial")]
    subprocess.run([*command, *authority, *serial, "-out", made], check=True, capture_output=True)
    api_proxy.show_certificate(made, key)
    found = examine(Path(api_proxy.kubeconfig))
    assert found["api certificate"].status == "warning" and "ends in" in found["api certificate"].detail


def test_a_kubeconfig_that_others_can_read_and_a_login_that_is_not_there(
    cluster: Cluster, namespace: str, examine: Examine, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(Path(cluster.kubeconfig).read_text())
    config.chmod(0o604)
    with target_of(cluster, namespace, config) as target:
        diagnosis = examine_cluster(target, with_pods=False)
        assert "kubeconfig mode" in fix_cluster(target, diagnosis)
    assert config.stat().st_mode & 0o777 == 0o600
    found = examine(config)
    assert found["kubeconfig mode"].status == "ok" and found["credentials"].status == "ok"
    assert found["api certificate"].status == "ok", found["api certificate"]
    content = yaml.safe_load(config.read_text())
    for entry in content["clusters"]:
        del entry["cluster"]["certificate-authority"]
        entry["cluster"]["insecure-skip-tls-verify"] = True
    config.write_text(yaml.safe_dump(content))
    assert examine(config)["kubeconfig"].status == "warning"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-login", "interactiveMode": "Never"}
    content["users"] = [{"name": user["name"], "user": {"exec": plugin}} for user in content["users"]]
    config.write_text(yaml.safe_dump(content))
    found = examine(config)
    assert found["credentials"].status == "broken" and "no-such-login" in found["credentials"].detail
    assert found["api"].status == "broken"


def test_a_slow_server(examine: Examine, api_proxy: ApiProxy) -> None:
    api_proxy.delay(1.2)
    found = examine(Path(api_proxy.kubeconfig))
    assert found["api"].status == "warning" and found["api"].hint
