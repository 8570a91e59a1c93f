"""kube-vip: a virtual IP that one control plane has at a time, and another takes over when it dies. Pure text.

It is a static pod of every control plane, which elects a leader by a Lease and announces the address by ARP. So the
address must be one of the control planes' own subnet. Not the plan (`plan.kubeadm` writes it down with init and join).
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from longboat.clusters.spec import API_PORT, ClusterSpec

MANIFEST = "/etc/kubernetes/manifests/kube-vip.yaml"
FIRST_KUBECONFIG, KUBECONFIG = "super-admin.conf", "admin.conf"
"""While kubeadm makes the first control plane only the first may do anything: the rights of the other come at its end,
through the very address that kube-vip is to bring.
"""
LEASE_S, RENEW_S, RETRY_S = 15, 10, 2
"""Those of kube-controller-manager: an etcd that writes slowly for seconds does not move the address; a dead control
plane is replaced within LEASE_S.
"""
ANSWERS_S = 120  # a leader's election and the start of one container, on a busy machine

_SHELL = r"""
vip_interface() {
    ip -o -4 addr show | awk -v wanted=ADDRESS '{split($4, parts, "/"); if (parts[1] == wanted) {print $2; exit}}'
}
# put_vip NAME: its static pod with this kubeconfig; the kubelet never sees half a file.
put_vip() {
    interface=$(vip_interface)
    [ -n "$interface" ] || { echo "error: no interface has the address ADDRESS" >&2; return 1; }
    mkdir -p /etc/kubernetes/manifests &&
        printf %s PACKED | base64 -d | sed "s|INTERFACE|$interface|; s|KUBECONFIG|$1|" > /etc/kubernetes/kube-vip.new &&
        mv -f /etc/kubernetes/kube-vip.new MANIFEST
}
vip_is_free() {
    DROP
    if command -v ping >/dev/null && ping -c 1 -W 1 VIP >/dev/null 2>&1; then
        fail "error: something answers at VIP already: vip is an address that nobody has"
    fi
}
keep_vip() { done_with vip VIP; }
# The pod with its last kubeconfig runs, and the answer came through the address.
vip_answers() {
    tries=0
    until [ "$(kubectl --kubeconfig=/etc/kubernetes/admin.conf --request-timeout=5s -n kube-system get pod \
        kube-vip-NODE -o 'jsonpath={.spec.volumes[0].hostPath.path} {.status.phase}' 2>/dev/null)" = \
        "/etc/kubernetes/admin.conf Running" ]; do
        tries=$((tries + 1))
        [ $tries -lt TRIES ] || { echo "error: kube-vip does not bring VIP: crictl logs" >&2; return 1; }
        sleep 1
    done
}
"""


def pod(spec: ClusterSpec) -> dict[str, Any]:
    """The static pod, with placeholders for what differs between hosts."""
    # Of type File: where kubeadm has not written it yet, no folder is made in its place.
    kubeconfig = {"name": "kubeconfig", "hostPath": {"path": "/etc/kubernetes/KUBECONFIG", "type": "File"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "kube-vip",
            "namespace": "kube-system",
            "labels": {"component": "kube-vip", "tier": "control-plane"},
        },
        "spec": {
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            # It talks with the API server of its own host, by a name that is in its certificate.
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["kubernetes"]}],
            "containers": [_container(spec)],
            "volumes": [kubeconfig],
        },
    }


def _container(spec: ClusterSpec) -> dict[str, Any]:
    environment = {
        "vip_arp": "true",
        "vip_interface": "INTERFACE",
        "vip_subnet": "32",
        "address": spec.vip,
        "port": str(API_PORT),
        "cp_enable": "true",
        "cp_namespace": "kube-system",
        "vip_leaderelection": "true",
        "vip_leasename": "plndr-cp-lock",
        "vip_leaseduration": str(LEASE_S),
        "vip_renewdeadline": str(RENEW_S),
        "vip_retryperiod": str(RETRY_S),
    }
    node = {"name": "vip_nodename", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return {
        "name": "kube-vip",
        "image": spec.versions.kube_vip_image,
        "imagePullPolicy": "IfNotPresent",
        # Its metrics would be open to everybody at port 2112 of the host.
        "args": ["manager", "--prometheusHTTPServer="],
        "env": [node, *({"name": name, "value": value} for name, value in environment.items())],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "kubeconfig", "mountPath": "/etc/kubernetes/admin.conf", "readOnly": True}],
    }


def functions(spec: ClusterSpec, node: str, address: str) -> str:
    """Shell functions for a control plane: put_vip, vip_is_free, vip_answers. `address`: the host's own."""
    assert spec.vip
    packed = base64.b64encode(json.dumps(pod(spec), indent=1).encode()).decode()
    values = {
        "ADDRESS": address,
        "PACKED": packed,
        "VIP": spec.vip,
        "DROP": undo_script(spec.vip),
        "MANIFEST": MANIFEST,
        "NODE": node,
        "TRIES": str(ANSWERS_S),
    }
    return re.sub(rf"\b({'|'.join(values)})\b", lambda match: values[match[1]], _SHELL)


def undo_script(vip: str) -> str:
    """A kube-vip that was killed leaves the address on its interface."""
    find = f"""ip -o -4 addr show | awk '$4 == "{vip}/32" {{print $2}}'"""
    return f'{find} | while read -r link; do ip addr del {vip}/32 dev "$link"; done'
