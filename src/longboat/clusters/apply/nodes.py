"""The cluster's nodes, asked on a control plane with its own kubectl: the API need not be reachable from here yet."""

from __future__ import annotations

import base64
import ipaddress
import json
import math
import re
import secrets
import shlex
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from longboat.clusters.hosts.connection import CommandFailed, HostConnection, HostUnreachable, check
from longboat.clusters.plan.kubeadm import JoinTicket
from longboat.clusters.plan.network import KUBECTL, NodeView
from longboat.clusters.plan.node_settings import ANNOTATION
from longboat.clusters.plan.upgrade_plan import ANNOTATION as UPGRADING
from longboat.core.errors import EngineError

_LOOK_S = 1.0  # one kubectl on a control plane; a node becomes ready within seconds
_MOST_BYTES = 256 << 20
"""Of a list: past ten thousand nodes. What unpacks to more was not printed by kubectl."""


# Only what is read: a node with many images has hundreds of KiB. What a node states about itself is asked for as a map
# or a list, which kubectl prints as JSON: a text alone is printed raw, and its newlines would pass for other nodes.
_FIELDS = (
    "{.metadata.name}",
    "{.spec.podCIDR}",
    "{.spec.unschedulable}",
    "{.spec.taints}",
    "{.metadata.labels}",
    "{.metadata.annotations}",
    "{.status.addresses}",
    '{.status.conditions[?(@.type=="Ready")]}',
    "{.status.nodeInfo}",
)
_TEMPLATE = "{range .items[*]}" + '{"\\t"}'.join(_FIELDS) + '{"\\n"}{end}'


def read_nodes(control: HostConnection) -> list[NodeView]:
    output = check_packed(control, f"{KUBECTL} get nodes -o jsonpath={shlex.quote(_TEMPLATE)}")
    try:
        return [_view(line.split("\t")) for line in output.split("\n") if line]
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise EngineError(f"{control.name}: the list of nodes is not understood: {error}") from None


def check_packed(control: HostConnection, script: str, *, timeout_s: float = 60.0) -> str:
    """The output of a script that prints a line for each node or pod, packed on its way: a connection keeps 1 MiB of
    an output, which is a hundred nodes with the labels of GPUs.
    """
    # No `||`: within it the shell would pass over failures of all but the last command of the script.
    whole = f'list=$({script}\n)\ncode=$?\n[ $code = 0 ] || exit $code\nprintf %s "$list" | gzip | base64\n'
    packed = check(control, whole, timeout_s=timeout_s)
    try:
        unpacking = zlib.decompressobj(wbits=31)  # gzip's form
        data = unpacking.decompress(base64.b64decode(packed), _MOST_BYTES)
        if unpacking.eof:
            return data.decode("utf-8", "replace")
    except (ValueError, zlib.error):
        pass
    raise EngineError(f"{control.name}: the list of nodes or pods was cut off on its way")


def _view(fields: Sequence[str]) -> NodeView:
    """Parse a node. Its addresses are validated: a node reports them itself, and other hosts are set up with them."""
    name, pods, cordoned, *values = fields
    taints, labels, annotations, addresses, ready, info = (_first_value(value) for value in values)
    own = [entry["address"] for entry in addresses or () if entry["type"] == "InternalIP"]
    return NodeView(
        name=name,
        address=_valid(ipaddress.ip_address, (own or [""])[0]),
        pods=_valid(ipaddress.ip_network, pods),
        is_ready=(ready or {}).get("status") == "True",
        is_cordoned=cordoned == "true",
        version=(info or {}).get("kubeletVersion", ""),
        labels=tuple(sorted((labels or {}).items())),
        settings=(annotations or {}).get(ANNOTATION, ""),
        upgrading=(annotations or {}).get(UPGRADING, ""),
        taints=tuple(f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in taints or ()),
    )


def _first_value(text: str) -> Any:
    """The first of several JSON values: a node may state a condition twice."""
    return json.JSONDecoder().raw_decode(text)[0] if text else None


def _valid(parse: Callable[[str], object], text: str) -> str:
    try:
        return str(parse(text))
    except ValueError:
        return ""


def wait_for_ranges(control: HostConnection, names: Sequence[str], timeout_s: float) -> list[NodeView]:
    """Wait until every node has a range of pod addresses."""
    return _wait(control, names, timeout_s, "a range of pod addresses", lambda node: bool(node.pods and node.address))


def wait_until_ready(control: HostConnection, names: Sequence[str], timeout_s: float) -> list[NodeView]:
    return _wait(control, names, timeout_s, "Ready", lambda node: node.is_ready)


def wait_for_version(control: HostConnection, name: str, version: str, timeout_s: float) -> None:
    """Wait until the node is ready and its kubelet has this version."""
    is_so = lambda node: node.is_ready and node.version == f"v{version}"  # noqa: E731
    _wait(control, [name], timeout_s, f"Ready with {version}", is_so)


def _wait(control: HostConnection, names: Sequence[str], timeout_s: float, state: str, is_so: Any) -> list[NodeView]:
    """Poll the nodes until a condition holds for all. An API server that does not answer is asked again until then."""
    deadline = time.monotonic() + timeout_s
    missing = sorted(names)
    while True:
        try:
            nodes = read_nodes(control)
            missing = sorted(set(names) - {node.name for node in nodes if is_so(node)})
            if not missing:
                return nodes
        except (CommandFailed, HostUnreachable):
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            hint = f"on {control.name}: sudo kubectl --kubeconfig=/etc/kubernetes/admin.conf describe node {missing[0]}"
            raise EngineError(f"{', '.join(missing)}: not {state} after {timeout_s:g} s", hint=hint)
        time.sleep(_LOOK_S)


def drain(control: HostConnection, name: str, *, grace_s: float) -> None:
    """Drain a node; pods keep their own grace. Raises CommandFailed if pods remain after `grace_s`.

    Tried again: kubectl gives up when a busy control plane does not answer once while it waits for a pod to go.
    """
    quoted = shlex.quote(name)
    grace = max(1, math.ceil(grace_s))  # kubectl takes 0 for no limit at all
    script = f"""set -e
node=$({KUBECTL} get node {quoted} --ignore-not-found -o name)
[ -n "$node" ] || exit 0
end=$(($(date +%s) + {grace}))
for try in 1 2 3 4 5; do
    left=$((end - $(date +%s)))
    [ $left -gt 0 ] || break
    {KUBECTL} drain {quoted} --ignore-daemonsets --delete-emptydir-data --force --timeout=${{left}}s && exit 0
    sleep 2
done
exit 1
"""
    check(control, script, timeout_s=grace + 60)


def cordon_for_upgrade(control: HostConnection, name: str, version: str) -> None:
    """Cordon a node and mark it as being upgraded; one that was cordoned before gets no mark and stays cordoned."""
    quoted = shlex.quote(name)
    script = f"""set -e
cordoned=$({KUBECTL} get node {quoted} -o jsonpath='{{.spec.unschedulable}}')
[ "$cordoned" != true ] || exit 0
{_mark(name, version)}
"""
    check(control, script, timeout_s=90)  # a few calls of kubectl, each with 20 s (`KUBECTL`)


def end_upgrade(control: HostConnection, name: str) -> None:
    """Uncordon a node, if the upgrade cordoned it."""
    quoted = shlex.quote(name)
    script = f"""set -e
mark=$({KUBECTL} get node {quoted} -o jsonpath='{{.metadata.annotations.{UPGRADING.replace(".", chr(92) + ".")}}}')
[ -n "$mark" ] || exit 0
{_mark(name, None)}
"""
    check(control, script, timeout_s=90)  # a few calls of kubectl, each with 20 s (`KUBECTL`)


def _mark(name: str, version: str | None) -> str:
    """Mark and cordon in one request, and the reverse: a mark alone would claim the next cordon of the node's owner."""
    patch = {"metadata": {"annotations": {UPGRADING: version}}, "spec": {"unschedulable": True if version else None}}
    return f"{KUBECTL} patch node {shlex.quote(name)} --type=merge -p {shlex.quote(json.dumps(patch))}"


def read_trainings(control: HostConnection, nodes: Sequence[str]) -> dict[str, list[str]]:
    """Pods by node, as `namespace/name`, that no controller restores on another node: trainings, jobs and single pods,
    not those of a Deployment, StatefulSet or DaemonSet.
    """
    fields = ("{.spec.nodeName}", "{.metadata.namespace}/{.metadata.name}", "{.metadata.ownerReferences}")
    template = shlex.quote("{range .items[*]}" + '{"\\t"}'.join(fields) + '{"\\n"}{end}')
    script = f"""set -e
for node in {shlex.join(nodes)}; do
    {KUBECTL} get pods --all-namespaces -o jsonpath={template} \\
        --field-selector "spec.nodeName=$node,status.phase!=Succeeded,status.phase!=Failed"
done
"""
    by_node: dict[str, list[str]] = {}
    for line in check_packed(control, script, timeout_s=60 + 5 * len(nodes)).split("\n"):
        node, pod, owners = (*line.split("\t"), "", "", "")[:3]
        kinds = [owner["kind"] for owner in json.loads(owners or "[]") if owner.get("controller")]
        if pod and not set(kinds) & set(_RESTORED_BY):
            by_node.setdefault(node, []).append(pod)
    return by_node


_RESTORED_BY = ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Node")
"""Owners that make a pod anew elsewhere, or (Node: a static pod) in its place."""


def delete_node(control: HostConnection, name: str) -> None:
    """Tried again: a control plane that is busy may not answer once, and the host has been reset already."""
    script = f"""for try in 1 2 3; do
    {KUBECTL} delete node {shlex.quote(name)} --ignore-not-found && exit 0
    sleep 2
done
exit 1
"""
    check(control, script, timeout_s=120)  # three tries of 20 s, the pauses, and a slow start of each


class JoinTokens:
    """Short-lived bootstrap tokens, one for each joining host, with the data it needs to trust the control plane.
    Thread-safe: hosts join in parallel.
    """

    def __init__(self, control: HostConnection, certificates: Callable[[str], bytes]) -> None:
        """`certificates`: kubeadm's configuration for their upload, encrypted with a key."""
        self._control = control
        self._certificates = certificates
        self._lock = threading.Lock()
        self._identities: list[str] = []
        self._has_certificates = False

    def ticket(self, *, is_control_plane: bool) -> JoinTicket:
        """Create a token right before the host joins: it is its own, and does not expire during a slow installation."""
        lifetime = "15m"  # a join takes one or two; kubeadm waits up to five for a slow kubelet
        output = check(self._control, f"kubeadm token create --ttl {lifetime} --print-join-command", timeout_s=120)
        match = re.search(r"join (\S+) --token (\S+) --discovery-token-ca-cert-hash (sha256:[0-9a-f]{64})", output)
        if match is None:
            raise EngineError(f"{self._control.name}: kubeadm told no join command")
        with self._lock:
            self._identities.append(match[2].partition(".")[0])
        key = self._certificate_key() if is_control_plane else ""
        return JoinTicket(server=match[1], token=match[2], ca_hash=match[3], certificate_key=key)

    def _certificate_key(self) -> str:
        """Upload the control plane's certificates, encrypted; returns the key."""
        with self._lock:
            self._has_certificates = True
        key = secrets.token_hex(32)
        upload = "kubeadm init phase upload-certs --upload-certs --config /dev/stdin >/dev/null"
        check(self._control, upload, stdin=self._certificates(key), timeout_s=120)
        return key

    def delete(self) -> None:
        """Delete all tokens and the uploaded certificates, which kubeadm would leave for two hours."""
        with self._lock:
            identities, self._identities = self._identities, []
            has_certificates, self._has_certificates = self._has_certificates, False
        script = f"kubeadm token delete {shlex.join(identities)}\n" if identities else ""
        if has_certificates:
            script += f"{KUBECTL} -n kube-system delete secret kubeadm-certs --ignore-not-found\n"
        if script:
            self._control.run(script, timeout_s=60)
