"""Checks of DNS and network policies, from the cluster's objects. Pure."""

from __future__ import annotations

from longboat.core.words import listing
from longboat.doctor.facts import DNS, POLICIES, Seen
from longboat.doctor.findings import Check, Judgement, broken, ok, warning


def dns(seen: Seen) -> Judgement:
    if seen[DNS]:
        return ok(f"{seen[DNS]} ready")
    hint = "runs with several nodes need it: kubectl -n kube-system get pods -l k8s-app=kube-dns"
    return broken("no ready pod behind service kube-dns in kube-system", hint)


def policies(seen: Seen) -> Judgement:
    blocked = seen[POLICIES]
    if blocked:
        names = sorted({name for traffic in blocked for name in traffic.policies})
        hint = "allow pods with the label longboat.dev/run to reach each other and the DNS, or use another namespace"
        kinds = listing([traffic.what for traffic in blocked], 3)
        return warning(f"NetworkPolicy {', '.join(names)} does not allow {kinds}", hint)
    return ok("no policy of the namespace is in the way of a run")


CHECKS = (
    Check("dns", "network", "a ready pod stands behind the cluster's DNS", dns),
    Check("network policies", "network", "no policy keeps the nodes of a run apart", policies),
)
