"""The cluster's nodes, asked on a control plane with its own kubectl: the API need not be reachable from here yet."""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from longboat.clusters.hosts.connection import CommandFailed, HostConnection, check
from longboat.clusters.plan.kubeadm import JoinTicket
from longboat.clusters.plan.network import KUBECTL, NodeView
from longboat.clusters.plan.node_settings import ANNOTATION
from longboat.core.errors import EngineError

_LOOK_S = 1.0


def read_nodes(control: HostConnection) -> list[NodeView]:
    listed = json.loads(check(control, f"{KUBECTL} get nodes -o json"))
    return [_view(item) for item in listed["items"]]


def _view(item: dict[str, Any]) -> NodeView:
    """Addresses, labels and annotations are what a node says of itself; what is written on other hosts is checked."""
    status, meta, spec = item.get("status", {}), item["metadata"], item.get("spec", {})
    addresses = [entry["address"] for entry in status.get("addresses", ()) if entry["type"] == "InternalIP"]
    return NodeView(
        name=meta["name"],
        address=_valid(ipaddress.ip_address, addresses[0] if addresses else ""),
        pods=_valid(ipaddress.ip_network, spec.get("podCIDR", "")),
        is_ready=any(entry["type"] == "Ready" and entry["status"] == "True" for entry in status.get("conditions", ())),
        version=status.get("nodeInfo", {}).get("kubeletVersion", ""),
        labels=tuple(sorted(meta.get("labels", {}).items())),
        settings=meta.get("annotations", {}).get(ANNOTATION, ""),
        taints=tuple(f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in spec.get("taints", ())),
    )


def _valid(parse: Callable[[str], object], text: str) -> str:
    try:
        return str(parse(text))
    except ValueError:
        return ""


def wait_for_ranges(control: HostConnection, names: Sequence[str], timeout_s: float) -> list[NodeView]:
    """Until each of them has its range of pod addresses."""
    return _wait(control, names, timeout_s, "a range of pod addresses", lambda node: bool(node.pods and node.address))


def wait_until_ready(control: HostConnection, names: Sequence[str], timeout_s: float) -> list[NodeView]:
    return _wait(control, names, timeout_s, "Ready", lambda node: node.is_ready)


def _wait(control: HostConnection, names: Sequence[str], timeout_s: float, state: str, is_so: Any) -> list[NodeView]:
    """An API server that starts, or starts again, answers late: that is no failure before the time is over."""
    deadline = time.monotonic() + timeout_s
    missing = sorted(names)
    while True:
        try:
            nodes = read_nodes(control)
            missing = sorted(set(names) - {node.name for node in nodes if is_so(node)})
            if not missing:
                return nodes
        except CommandFailed:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            hint = f"on {control.name}: sudo kubectl --kubeconfig=/etc/kubernetes/admin.conf describe node {missing[0]}"
            raise EngineError(f"{', '.join(missing)}: not {state} after {timeout_s:g} s", hint=hint)
        time.sleep(_LOOK_S)


def drain(control: HostConnection, name: str, *, grace_s: float) -> None:
    """Pods leave with their own grace; what has no other place goes too. Then the node is deleted."""
    quoted = shlex.quote(name)
    script = f"""{KUBECTL} get node {quoted} >/dev/null 2>&1 || exit 0
{KUBECTL} cordon {quoted}
{KUBECTL} drain {quoted} --ignore-daemonsets --delete-emptydir-data --force --timeout={int(grace_s)}s || true
{KUBECTL} delete node {quoted} --ignore-not-found
"""
    check(control, script, timeout_s=grace_s + 60)


class JoinToken:
    """A token that lives some minutes, with what a host needs beside it to trust the control plane."""

    def __init__(self, control: HostConnection) -> None:
        self._control = control
        lifetime = "15m"  # a join takes one or two; kubeadm waits up to five for a slow kubelet
        output = check(control, f"kubeadm token create --ttl {lifetime} --print-join-command", timeout_s=120)
        match = re.search(r"join (\S+) --token (\S+) --discovery-token-ca-cert-hash (sha256:[0-9a-f]{64})", output)
        if match is None:
            raise EngineError(f"{control.name}: kubeadm told no join command")
        self._ticket = JoinTicket(server=match[1], token=match[2], ca_hash=match[3])

    def ticket(self, certificate_key: str) -> JoinTicket:
        return msgspec.structs.replace(self._ticket, certificate_key=certificate_key)

    def certificate_key(self) -> str:
        """The control plane's certificates, stored in the cluster for two hours, encrypted with this key."""
        output = check(self._control, "kubeadm init phase upload-certs --upload-certs", timeout_s=120)
        match = re.search(r"^([0-9a-f]{64})$", output, re.MULTILINE)
        if match is None:
            raise EngineError(f"{self._control.name}: kubeadm told no key of its certificates")
        return match[1]

    def delete(self) -> None:
        identity = self._ticket.token.partition(".")[0]
        self._control.run(f"kubeadm token delete {shlex.quote(identity)}", timeout_s=60)
