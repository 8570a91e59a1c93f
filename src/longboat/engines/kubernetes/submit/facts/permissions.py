"""Permissions that the engine may need in a namespace, verb by verb, and why. Values; `cluster_facts` asks the cluster.

Reading what belongs to the cluster (nodes, storage classes, other namespaces' pods) is not here: that is tried, and
where it is forbidden it is simply not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from longboat.core.jobs import Value

Need = Literal["always", "jobset", "job", "kueue", "secrets", "helper", "gate", "optional"]
"""When a permission is needed: always, with JobSet or without, with Kueue, for a job with secrets of the submitter, to
read a storage without pods, for the gate; `optional`: something is not shown or not possible, nothing is refused."""


class Permission(Value, frozen=True):
    verb: str
    resource: str
    why: str
    group: str = ""
    subresource: str = ""
    need: Need = "always"

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {name}/{self.subresource}" if self.subresource else f"{self.verb} {name}"


def _all(verbs: str, resource: str, why: str, group: str = "", need: Need = "always") -> tuple[Permission, ...]:
    return tuple(Permission(verb=verb, resource=resource, why=why, group=group, need=need) for verb in verbs.split(" "))


def _part(verb: str, subresource: str, why: str) -> Permission:
    return Permission(verb=verb, resource="pods", subresource=subresource, why=why, need="optional")


PERMISSIONS: tuple[Permission, ...] = (
    *_all("get list watch create patch delete", "configmaps", "the record of a run"),
    *_all("get list create patch", "secrets", "the code, the launcher, the gang file"),
    *_all("create", "services", "the names by which nodes find each other"),
    *_all("get list watch create patch delete", "jobs", "the nodes of a run", "batch", "job"),
    *_all("get list watch create patch delete", "jobsets", "the nodes of a run", "jobset.x-k8s.io", "jobset"),
    *_all("get list watch", "jobs", "the nodes of a run", "batch", "jobset"),
    *_all("get list watch delete", "pods", "how the nodes of a run are"),
    *_all("create", "poddisruptionbudgets", "protection from drains", "policy"),
    *_all("get create update delete", "leases", "one gang is admitted at a time", "coordination.k8s.io", "gate"),
    *_all("get list", "workloads", "what the queue says", "kueue.x-k8s.io", "kueue"),
    *_all("list", "localqueues", "which queues there are", "kueue.x-k8s.io", "kueue"),
    _part("get", "log", "`logs`"),
    # A WebSocket is opened with GET; newer servers ask for the right to create as well.
    _part("get", "exec", "`exec`, `cp`, and a stop that keeps the grace"),
    _part("create", "exec", "`exec`, `cp`, and a stop that keeps the grace"),
    _part("get", "portforward", "port forwarding"),
    _part("create", "portforward", "port forwarding"),
    *_all("create list", "networkpolicies", "keeping other pods away", "networking.k8s.io", "optional"),
    *_all("list", "events", "why a run waits", need="optional"),
    *_all("get list create delete", "persistentvolumeclaims", "`longboat volume`, claims of jobs", need="optional"),
    *_all("list", "resourcequotas", "what the namespace may use", need="optional"),
    *_all("list", "limitranges", "what one pod may ask for", need="optional"),
    *_all("list", "services", "seeing that nothing is left", need="optional"),
    *_all("list", "poddisruptionbudgets", "seeing that nothing is left", "policy", "optional"),
    *_all("create", "pods", "reading a storage when no pod of the run lives", need="helper"),
)
"""Every verb that the engine needs in the namespace of a run. One role with exactly these is printed by `role_for`."""


def role_for(permissions: Iterable[Permission], *, namespace: str, name: str = "longboat-user") -> dict[str, object]:
    """The Role that gives these permissions, as an object."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for permission in permissions:
        resource = permission.resource + (f"/{permission.subresource}" if permission.subresource else "")
        known = verbs.setdefault((permission.group, resource), [])
        if permission.verb not in known:
            known.append(permission.verb)
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": given} for (group, resource), given in verbs.items()
    ]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": namespace},
        "rules": rules,
    }


def format_permissions(permissions: Iterable[Permission]) -> str:
    """For people: `get/list on configmaps (the record of a run), ...`."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for permission in permissions:
        verb, _, resource = str(permission).partition(" ")
        known = verbs.setdefault((resource, permission.why), [])
        if verb not in known:
            known.append(verb)
    return ", ".join(f"{'/'.join(given)} {resource} ({why})" for (resource, why), given in verbs.items())


def grant(permissions: Iterable[Permission], *, namespace: str) -> str:
    """The role that gives these permissions, in words."""
    verbs: dict[str, list[str]] = {}
    for permission in permissions:
        verb, _, resource = str(permission).partition(" ")
        known = verbs.setdefault(resource, [])
        if verb not in known:
            known.append(verb)
    rules = ", ".join(f"{'/'.join(given)} on {resource}" for resource, given in verbs.items())
    return f"a role in namespace {namespace} with {rules}"
