"""Steps for the network flannel: its program, and a unit on each host that carries pods' packets in vxlan. Pure.

No image is pulled: flanneld runs as a service of the host, with the kubelet's own credentials, and knows nodes that
join without us. Pods are attached as with `routes`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.plan.journal_shell import put, undo
from longboat.clusters.plan.kubeadm import KUBELET
from longboat.clusters.plan.network import CONFLIST, KUBECTL, NodeView, conflist, forward_rules
from longboat.clusters.plan.steps import Kept, Step
from longboat.clusters.ports import VXLAN_PORT
from longboat.clusters.spec import ClusterSpec, HostSpec

PROGRAM, CONFIG = "/usr/local/bin/flanneld", "/etc/longboat/flannel.json"
UNIT = "/etc/systemd/system/longboat-flannel.service"
SUBNET = "/run/flannel/subnet.env"
_READY_S = 120  # it asks the API server, which may start anew, and makes an interface
_STOP = """systemctl disable --now longboat-flannel 2>/dev/null || true
ip link delete flannel.1 2>/dev/null || true
nft delete table ip flannel-ipv4 2>/dev/null || true
nft delete table ip6 flannel-ipv6 2>/dev/null || true
"""


def program(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | Kept | None:
    """flanneld itself, through stdin, after a line with its checksum: what arrives here otherwise never runs."""
    version = spec.versions.flannel
    if spec.network.kind != "flannel":
        return None
    if facts.program("flanneld") == version:
        return Kept(host=host.name, name="flanneld", reason=f"flanneld {version} is installed")
    script = f"""save {PROGRAM}
mkdir -p {PROGRAM.rpartition("/")[0]}
read -r sum
cat > {PROGRAM}.longboat
printf '%s  %s\\n' "$sum" {PROGRAM}.longboat | sha256sum -c --quiet - >/dev/null 2>&1 ||
    {{ rm -f {PROGRAM}.longboat; fail "error: flanneld did not arrive whole: its checksum is another one"; }}
chmod 755 {PROGRAM}.longboat
said=$({PROGRAM}.longboat --version 2>&1) || true
case "$said" in v{version}|{version}) ;; *) fail "error: no flanneld {version} for this host: $said" ;; esac
mv -fT {PROGRAM}.longboat {PROGRAM}
"""
    return Step(
        host=host.name, name="flanneld", title=f"install flanneld {version}", script=script, kind="program",
        timeout_s=600.0,  # a program of some megabytes, over a slow line
    )  # fmt: skip


def configuration(pods: str) -> str:
    """nftables, as kube-proxy has it: without them flannel asks for br_netfilter, which nothing else needs."""
    backend = {"Type": "vxlan", "VNI": 1, "Port": VXLAN_PORT}
    return json.dumps({"Network": pods, "EnableNFTables": True, "Backend": backend}) + "\n"


def unit(node: NodeView, pods: str) -> str:
    rules = forward_rules(pods)
    arguments = f"--kube-subnet-mgr --kubeconfig-file={KUBELET} --net-config-path={CONFIG} --subnet-file={SUBNET}"
    return "\n".join(
        [
            "[Unit]",
            "Description=Network between pods: flannel (Longboat)",
            "Wants=network-online.target",
            "After=network-online.target",
            "[Service]",
            f"Environment=NODE_NAME={node.name}",
            *(f"ExecStartPre=-iptables -w 30 -I {rule}" for rule in rules),
            f"ExecStart={PROGRAM} {arguments} --ip-masq --iface={node.address}",
            *(f"ExecStopPost=-iptables -w 30 -D {rule}" for rule in rules),
            "Restart=always",
            "RestartSec=5",
            "TimeoutStopSec=10",  # it may wait for an API server that is gone; the way back removes what it made
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def rights() -> str:
    """Nodes may see each other, which flannel needs; what they may write stays their own node's."""
    name, group = "longboat-flannel", "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]
    objects: list[dict[str, Any]] = [
        {"kind": "ClusterRole", "rules": rules},
        {
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}],
        },
    ]
    items = [{"apiVersion": f"{group}/v1", "metadata": {"name": name}, **body} for body in objects]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    return f"{KUBECTL} apply --server-side --force-conflicts -f - <<'OBJECTS'\n{text}\nOBJECTS\n"


def network(spec: ClusterSpec, host: str, nodes: Sequence[NodeView]) -> Step | None:
    """None while the host's node has no range of addresses."""
    own = next((node for node in nodes if node.name == host and node.pods), None)
    if own is None:
        return None
    first = spec.control_planes[0].name
    script = rights() if host == first else ""
    script += put(CONFIG, configuration(spec.network.pods)) + put(UNIT, unit(own, spec.network.pods))
    script += undo("flannel", _STOP)
    script += f"""systemctl daemon-reload
systemctl -q enable longboat-flannel
systemctl stop longboat-flannel
rm -f {SUBNET}
systemctl start longboat-flannel
tries=0
until [ -s {SUBNET} ]; do
    tries=$((tries + 1))
    [ $tries -lt {_READY_S * 2} ] || fail "error: flannel: $(journalctl -u longboat-flannel -n 1 -o cat 2>&1)"
    sleep 0.5
done
mtu=$(sed -n 's/^FLANNEL_MTU=\\([0-9]*\\)$/\\1/p' {SUBNET})
text=$(sed "s/\\"MTU\\"/${{mtu:-1450}}/" <<'CONFLIST'
{conflist(own.pods, spec.name, mtu="MTU")}CONFLIST
)
put {CONFLIST} 644 "$(printf '%s\\n' "$text" | base64 -w 0)"
"""
    needs = () if host == first else (f"{first}/network",)
    return Step(host=host, name="network", title=f"pods in {own.pods}, flannel", script=script, needs=needs)
