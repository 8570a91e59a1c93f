"""kubeadm, installed by apt and called by hand on hosts that have no way out: they become a cluster that runs pods."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testbed import api, apt_repository, cleanup, kubeadm, requirements
from testbed.binaries import KUBERNETES_VERSION
from testbed.hosts import Group, Host

IGNORED = "SystemVerification,Swap,NumCPU,Mem"
# Anybody may ask whether the API is ready, but kubectl does not ask without a name.
PROBE = (
    "kubectl --server=https://kubernetes.default.svc.cluster.local get --raw /readyz --username=any --password=any "
    "--certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)
# kubeadm waits for one minute unless told otherwise, and a busy machine takes longer.
PATIENT = dict.fromkeys(("controlPlaneComponentHealthCheck", "kubeletHealthCheck", "kubernetesAPICall"), "5m0s")
KUBECTL = "sudo kubectl --kubeconfig=/etc/kubernetes/admin.conf"


def init_configuration(group: Group) -> str:
    """Documents of kubeadm's v1beta4, one after the other; JSON is YAML."""
    first, number = group.hosts[0], group.record.range
    registration = {"kubeletExtraArgs": [{"name": "node-ip", "value": first.address}], "name": first.name}
    documents = [
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": first.address},
            "nodeRegistration": registration,
            "timeouts": PATIENT,
        },
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": f"v{KUBERNETES_VERSION}",
            "networking": {"podSubnet": f"10.{number}.64.0/18", "serviceSubnet": f"10.{number}.128.0/18"},
        },
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "systemd",
            "failCgroupV1": False,
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        },
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        },
    ]
    return "\n---\n".join(json.dumps(document) for document in documents)


def ready_nodes(first: Host) -> list[str]:
    items = json.loads(first.run(f"{KUBECTL} get nodes -o json"))["items"]
    return [
        item["metadata"]["name"]
        for item in items
        if any(one["type"] == "Ready" and one["status"] == "True" for one in item["status"]["conditions"])
    ]


def running_pods(first: Host) -> list[tuple[str, str]]:
    """Every ready pod of the system, and the host it runs on."""
    items = json.loads(first.run(f"{KUBECTL} -n kube-system get pods -o json"))["items"]
    return [
        (item["metadata"]["name"], item["spec"]["nodeName"])
        for item in items
        if item["status"].get("containerStatuses") and all(one["ready"] for one in item["status"]["containerStatuses"])
    ]


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
def test_two_hosts_become_a_cluster(hosts: Callable[..., Group], state: Path) -> None:
    lacks = requirements.missing_programs(kubeadm.TARGETS) or apt_repository.missing()
    if lacks:
        pytest.skip(lacks)
    before = cleanup.inventory()
    group = hosts(2, "no-route")
    first, second = group.hosts
    repository = apt_repository.serve(group)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda number: kubeadm.install(group, number, repository), range(2)))
    state_of = "kubeadm version -o short; systemctl is-active containerd; systemctl is-enabled kubelet"
    assert first.run(state_of).split() == [f"v{KUBERNETES_VERSION}", "active", "enabled"]
    first.run("cat > init.yaml", text=init_configuration(group))
    told = first.run(f"sudo kubeadm init --config init.yaml --ignore-preflight-errors={IGNORED} 2>&1", within_s=400)
    assert "initialized successfully" in told
    join = first.run("sudo kubeadm token create --print-join-command").strip()
    assert re.fullmatch(r"kubeadm join [0-9.:]+ --token \S+ --discovery-token-ca-cert-hash sha256:[0-9a-f]{64}", join)
    second.run(f"sudo {join} --ignore-preflight-errors={IGNORED} 2>&1", within_s=300)
    api.wait_for("both nodes are ready", lambda: sorted(ready_nodes(first)) == ["host-0", "host-1"], 300)
    # A pod on the second host asks for a name, which a pod on the first one knows, and reaches the API by a service.
    first.run(f"{KUBECTL} run probe --restart=OnFailure --image=registry.k8s.io/kube-proxy:v{KUBERNETES_VERSION} "
              f"--command -- {PROBE}")  # fmt: skip
    phase = f"{KUBECTL} get pod probe -o jsonpath={{.spec.nodeName}}/{{.status.phase}}"
    api.wait_for("the pod ends well", lambda: first.run(phase) == "host-1/Succeeded", 300)
    assert first.run(f"{KUBECTL} logs probe") == "ok"
    assert {"host-0", "host-1"} == {node for name, node in running_pods(first) if name.startswith("kube-proxy-")}
    cleanup.down(group.record.name)
    assert cleanup.left_behind(before, cleanup.inventory(), group.record) == []
