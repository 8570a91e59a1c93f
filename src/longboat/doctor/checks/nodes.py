"""Checks of the cluster's nodes: ready, pressed, cordoned, versions, clocks. Pure."""

from __future__ import annotations

from typing import Any

from longboat.core.resources import show_quantity
from longboat.core.times import show_age
from longboat.core.words import counted, listing
from longboat.doctor.facts import CLUSTER, LEASES, NODES, NotSeen, Seen
from longboat.doctor.findings import Check, Judgement, broken, ok, skipped, warning
from longboat.engines.kubernetes.submit.preflight import version_of
from longboat.fitting.model.quantities import CPU, MEMORY

Object = dict[str, Any]
OLDER_KUBELETS = 3
"""Minor versions that a kubelet may be behind the API server, by Kubernetes' own policy."""
CLOCK_S = 10.0
"""A kubelet renews its Lease every 10 s: no clock that is right can be farther ahead than this."""
OLD_CONTAINERD = (1, 7)  # older ones are no longer maintained
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_SHOWN = 3  # names: a finding is one line


def ready(seen: Seen) -> Judgement:
    facts = seen[CLUSTER]
    if facts.nodes is None:
        hint = "a ClusterRole with list on nodes lets Longboat say what fits, and why something waits"
        return skipped("no right to list nodes", hint)
    fit = [use for use in facts.nodes if use.is_ready]
    cpus = sum(use.node.has(CPU) for use in fit) / 1000
    memory = show_quantity(sum(use.node.has(MEMORY) for use in fit))
    detail = f"{len(fit)} of {len(facts.nodes)} ready: {counted(cpus, 'CPU')}, {memory} of memory"
    bad = [use.node.name for use in facts.nodes if not use.is_ready]
    if not bad:
        return ok(detail) if fit else broken(detail, "add a node: `longboat cluster up`, or an autoscaler")
    hint = f"kubectl describe node {bad[0]}; on it: systemctl status kubelet containerd"
    return (warning if fit else broken)(f"{detail}; not ready: {listing(bad, _SHOWN)}", hint)


def all_nodes(seen: Seen) -> list[Object]:
    """NotSeen where there is none: of no node, all would be well."""
    if not seen[NODES]:
        raise NotSeen(skipped("there are no nodes"))
    return seen[NODES]


def _fine(unread: list[str], fine: str) -> Judgement:
    return skipped(f"not told: {listing(unread, _SHOWN)}") if unread else ok(fine)


def pressure(seen: Seen) -> Judgement:
    pressed = [
        f"{_name(node)}: {condition['type']} ({condition.get('message') or condition.get('reason')})"
        for node in all_nodes(seen)
        for condition in (node.get("status") or {}).get("conditions") or ()
        if condition.get("type") in _PRESSURES and condition.get("status") == "True"
    ]
    if pressed:
        hint = "the kubelet evicts pods there: free memory or disk (crictl rmi --prune), or end what takes it"
        return broken(listing(pressed, _SHOWN), hint)
    silent = [_name(node) for node in seen[NODES] if not (node.get("status") or {}).get("conditions")]
    return _fine(silent, "no node is short of memory, disk or processes")


def cordoned(seen: Seen) -> Judgement:
    names = [_name(node) for node in all_nodes(seen) if (node.get("spec") or {}).get("unschedulable")]
    if names:
        hint = f"kubectl uncordon {names[0]}, if nobody works on it"
        return warning(f"takes no new pods: {listing(names, _SHOWN)}", hint)
    return ok("every node takes pods")


def taints(seen: Seen) -> Judgement:
    nodes = all_nodes(seen)
    closed = {
        f"{taint.get('key')}:{taint.get('effect')}"
        for node in nodes
        for taint in (node.get("spec") or {}).get("taints") or ()
        if taint.get("effect") in ("NoSchedule", "NoExecute")
    }
    open_nodes = [node for node in nodes if not _hard_taints(node)]
    if not open_nodes:
        hint = "remove the taint (kubectl taint nodes NODE KEY-), or tolerate it: `kubernetes.pod` of the settings"
        return warning(f"every node has a taint: {listing(sorted(closed), _SHOWN)}", hint)
    return ok(f"{len(open_nodes)} of {len(nodes)} without a taint")


def _hard_taints(node: Object) -> list[str]:
    """GPU taints are tolerated by every pod that asks for GPUs."""
    taints = (node.get("spec") or {}).get("taints") or ()
    hard = [str(taint.get("key")) for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute")]
    return [key for key in hard if key not in ("nvidia.com/gpu", "amd.com/gpu")]


def kubelet_versions(seen: Seen) -> Judgement:
    server = version_of(seen[CLUSTER].version)
    if server is None:
        return skipped("the API server does not tell its version")
    newer, older, unread, versions = [], [], [], set()
    for node in all_nodes(seen):
        text = str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or "")
        number = version_of(text)
        versions.add(text)
        if number is None:
            unread.append(_name(node))
        elif number > server:
            newer.append(f"{_name(node)} {text}")
        elif number[0] == server[0] and server[1] - number[1] > OLDER_KUBELETS:
            older.append(f"{_name(node)} {text}")
    if newer or older:
        side = "newer than" if newer else f"more than {OLDER_KUBELETS} minor versions older than"
        hint = "upgrade the control plane first" if newer else "upgrade these nodes, one minor version at a time"
        return warning(f"kubelets {side} the API server: {listing(newer or older, _SHOWN)}", hint)
    return _fine(unread, f"kubelets: {listing(sorted(versions), _SHOWN)}")


def runtimes(seen: Seen) -> Judgement:
    old, unread, kinds = [], [], set()
    for node in all_nodes(seen):
        text = str(((node.get("status") or {}).get("nodeInfo") or {}).get("containerRuntimeVersion") or "")
        kinds.add(text)
        kind, _, version = text.partition("://")
        number = version_of(version)
        if number is None:
            unread.append(_name(node))
        if kind == "docker" or (kind == "containerd" and number is not None and number < OLD_CONTAINERD):
            old.append(f"{_name(node)} {text}")
    if old:
        return warning(f"old container runtimes: {listing(old, _SHOWN)}", "containerd 1.7 or newer knows CDI, for GPUs")
    return _fine(unread, listing(sorted(kinds), _SHOWN))


def heartbeats(seen: Seen) -> Judgement:
    leases = seen[LEASES]
    alive = {_name(node) for node in all_nodes(seen)}
    late = [
        f"{name} ({show_age(leases.now - moment)} ago)"
        for name, moment in leases.renewed
        if name in alive and leases.now - moment > leases.lasts_s
    ]
    if late:
        hint = "on the node: systemctl status kubelet; journalctl -u kubelet; is its way to the API server open?"
        return broken(f"kubelets have not been heard of: {listing(late, _SHOWN)}", hint)
    unread = sorted(alive - {name for name, _ in leases.renewed})
    return _fine(unread, f"{len(alive)} heard of within {leases.lasts_s:.0f} s")


def clocks(seen: Seen) -> Judgement:
    leases = seen[LEASES]
    ahead = [
        f"{name} ({moment - leases.now:.0f} s)" for name, moment in leases.renewed if moment - leases.now > CLOCK_S
    ]
    if ahead:
        hint = "synchronize them: timedatectl set-ntp true, or chrony; tokens and certificates depend on it"
        return warning(f"clocks of nodes are ahead: {listing(ahead, _SHOWN)}", hint)
    if not leases.renewed:
        return skipped("no node has a Lease")
    return ok(f"none is ahead by more than {CLOCK_S:.0f} s")


def address_ranges(seen: Seen) -> Judgement:
    owners: dict[str, list[str]] = {}
    for node in all_nodes(seen):
        cidr = str((node.get("spec") or {}).get("podCIDR") or "")
        owners.setdefault(cidr, []).append(_name(node))
    without = owners.pop("", [])
    shared = [f"{cidr} ({', '.join(names)})" for cidr, names in owners.items() if len(names) > 1]
    if shared:
        hint = "delete one of the nodes and let it join again, so that it gets a range of its own"
        return broken(f"nodes share addresses of pods: {listing(shared, _SHOWN)}", hint)
    if without and owners:
        hint = (
            "is the range of the cluster used up? --cluster-cidr and --node-cidr-mask-size of kube-controller-manager"
        )
        return warning(f"no addresses for pods: {listing(without, _SHOWN)}", hint)
    return ok(f"{counted(len(owners), 'range')} of pod addresses" if owners else "the network plugin hands them out")


def _name(node: Object) -> str:
    return str(node["metadata"]["name"])


CHECKS = (
    Check("nodes", "nodes", "nodes are ready", ready),
    Check("node pressure", "nodes", "no node is short of memory, disk or processes", pressure),
    Check("cordoned nodes", "nodes", "every node takes new pods", cordoned),
    Check("taints", "nodes", "some node takes pods without a toleration", taints),
    Check("kubelet versions", "nodes", "kubelets are neither newer than the API server nor too old", kubelet_versions),
    Check("container runtimes", "nodes", "containerd is new enough for GPUs by CDI", runtimes),
    Check("heartbeats", "nodes", "every kubelet renews its Lease", heartbeats),
    Check("node clocks", "nodes", "no node's clock is ahead", clocks),
    Check("pod addresses", "nodes", "every node has a range of pod addresses of its own", address_ranges),
)
