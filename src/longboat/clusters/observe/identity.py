"""Which of the hosts that carry a cluster's name are of this very cluster: two clusters may be called the same. Pure.

A cluster has a random id besides its name, in the journal of each of its hosts and in what is kept of it here.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import msgspec

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.spec import ClusterSpec


def identify(
    spec: ClusterSpec, facts: Mapping[str, HostFacts], kept: ClusterSpec | None
) -> tuple[ClusterSpec, dict[str, HostFacts]]:
    """Add the cluster's id to the spec, and mark facts of hosts that belong to another cluster of the same name.

    The id is the stored one (`kept`), else the first one that a host has, else a new one.
    """
    names = [host.name for host in (*spec.control_planes, *spec.hosts)]
    there = [facts[name].journal_id for name in names if name in facts and facts[name].journal_cluster == spec.name]
    identity = next((text for text in (kept.id if kept else "", *there) if text), secrets.token_hex(4))
    return msgspec.structs.replace(spec, id=identity), {
        name: _with_owner(host, spec.name, identity) for name, host in facts.items()
    }


def _with_owner(host: HostFacts, name: str, identity: str) -> HostFacts:
    """Mark a host whose journal has another id. A journal without an id predates ids: its name counts."""
    if host.journal_cluster != name or host.journal_id in ("", identity):
        return host
    return msgspec.structs.replace(host, journal_cluster=f"{name} ({host.journal_id})")
