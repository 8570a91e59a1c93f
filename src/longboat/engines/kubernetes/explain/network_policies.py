"""NetworkPolicies of a namespace that keep the pods of a run from each other. Pure.

Only what must work is asked for: the line between launchers, the coordinator's port, and names. Which policies are
really enforced is the business of the cluster's network: a policy that would block is named, not proven.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longboat.core.jobs import Value
from longboat.engines.kubernetes.manifests.gang_file import COORDINATOR_PORT, LINE_PORT
from longboat.fitting.model.selectors import matches_labels, term_of_pods

Object = Mapping[str, Any]

DNS_PORT = 53


class BlockedTraffic(Value, frozen=True):
    what: str  # "ingress from the other pods of the run (TCP 29499)"
    policies: tuple[str, ...]


def blocking_policies(policies: Sequence[Object], labels: Mapping[str, str], namespace: Object) -> list[BlockedTraffic]:
    """What the policies that select such pods do not allow between two of them."""
    mine = [policy for policy in policies if _selects((policy.get("spec") or {}).get("podSelector"), labels)]
    traffics = []
    for kind, towards in (("Ingress", "from"), ("Egress", "to")):
        isolating = [policy for policy in mine if kind in _types(policy)]
        if not isolating:
            continue
        names = tuple(sorted(str((policy.get("metadata") or {}).get("name")) for policy in isolating))
        closed = [
            port
            for port in (LINE_PORT, COORDINATOR_PORT)
            if not any(_allows(policy, kind, labels, namespace, port) for policy in isolating)
        ]
        if closed:
            traffic = f"{kind.lower()} {towards} the other pods of the run (TCP {', '.join(map(str, closed))})"
            traffics.append(BlockedTraffic(what=traffic, policies=names))
        if kind == "Egress" and not any(_allows_dns(policy) for policy in isolating):
            traffics.append(BlockedTraffic(what="egress to the cluster's DNS (port 53)", policies=names))
    return traffics


def _types(policy: Object) -> Sequence[str]:
    spec = policy.get("spec") or {}
    return spec.get("policyTypes") or (["Ingress", "Egress"] if "egress" in spec else ["Ingress"])


def _selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    return matches_labels(term_of_pods(selector or {}), labels)


def _rules(policy: Object, kind: str) -> Iterable[Object]:
    return (policy.get("spec") or {}).get(kind.lower()) or ()


def _allows(policy: Object, kind: str, labels: Mapping[str, str], namespace: Object, port: int) -> bool:
    side = "from" if kind == "Ingress" else "to"
    for rule in _rules(policy, kind):
        peers = rule.get(side) or ()
        if (not peers or any(_is_peer(peer, labels, namespace) for peer in peers)) and _opens(rule, port, "TCP"):
            return True
    return False


def _is_peer(peer: Object, labels: Mapping[str, str], namespace: Object) -> bool:
    if peer.get("ipBlock"):
        # Pods have addresses too; a block that covers everything covers them.
        return (peer["ipBlock"].get("cidr") in ("0.0.0.0/0", "::/0")) and not peer["ipBlock"].get("except")
    if peer.get("namespaceSelector") is not None:
        own = (namespace.get("metadata") or {}).get("labels") or {}
        if not _selects(peer["namespaceSelector"], own):
            return False
    return peer.get("podSelector") is None or _selects(peer["podSelector"], labels)


def _opens(rule: Object, port: int, protocol: str) -> bool:
    ports = rule.get("ports") or ()
    if not ports:
        return True
    return any((entry.get("protocol") or "TCP") == protocol and _covers(entry, port) for entry in ports)


def _covers(entry: Object, port: int) -> bool:
    first = entry.get("port")
    if first is None:
        return True
    if not isinstance(first, int):
        return False
    return first <= port <= int(entry.get("endPort") or first)


def _allows_dns(policy: Object) -> bool:
    """Somewhere, for where the DNS is, is not known here."""
    rules = list(_rules(policy, "Egress"))
    return any(_opens(rule, DNS_PORT, "UDP") or _opens(rule, DNS_PORT, "TCP") for rule in rules)
