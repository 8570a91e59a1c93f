"""Manifests of the controller for `longboat install`: Deployment and least RBAC. Pure.

Its rights over runs are one ClusterRole, bound by a RoleBinding in each namespace that it serves; by a
ClusterRoleBinding only where it was asked to serve all. Everywhere else it reads nodes, volumes and pods, to know what
is free, and nothing more. It lists no Secrets and reads those of runs by name. Leases it may only make, and change
those that are its own by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests.security_context import container_security, unprivileged
from longboat.kubeapi.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEPLOYMENT,
    NAMESPACE,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Kind,
)
from longboat.kubeapi.leases import CONTROLLER, GATE, MANAGED_BY

Object = dict[str, Any]

HOME = names.SYSTEM
RUNS_ROLE = f"{CONTROLLER}-runs"
"""The ClusterRole with what turns need; it gives nothing until it is bound somewhere."""
SEEN = f"{CONTROLLER}-seen"
"""The right of everybody to see whether there is a controller."""
LABELS = {**MANAGED_BY, "app.kubernetes.io/name": CONTROLLER}
EVERYBODY = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}
HEALTH_PORT = 8086
USER = 65532  # nonroot of distroless images; any but 0 does


class RbacRule(NamedTuple):
    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


RUNS: tuple[RbacRule, ...] = (
    # Records. `create` and `delete`: of an expired run one is left that owns nothing, and the other goes.
    RbacRule("", "configmaps", ("get", "list", "watch", "patch", "create", "delete")),
    RbacRule("", "namespaces", ("get",)),  # budgets
    RbacRule("", "pods", ("list", "watch", "delete")),
    RbacRule("", "pods/exec", ("create", "get")),  # a stop that keeps the grace; `get`: servers before 1.35
    RbacRule("", "pods/log", ("get",)),  # the last lines, kept in the record
    RbacRule("", "secrets", ("get", "create")),  # the gang file of the first attempt, and of the next
    RbacRule("", "services", ("get", "create")),  # `get`: whether one that is there already is the run's
    RbacRule("", "events", ("list",)),  # why a volume keeps a container from starting
    RbacRule("", "persistentvolumeclaims", ("list",)),
    RbacRule("batch", "jobs", ("get", "list", "watch", "create", "patch", "delete")),
    RbacRule("jobset.x-k8s.io", "jobsets", ("get", "list", "watch", "create", "patch", "delete")),
    # Services that follow their run: one variable of their own Deployments. Who may make Jobs can do no more with it.
    RbacRule("apps", "deployments", ("get", "list", "watch", "patch")),
    RbacRule("kueue.x-k8s.io", "workloads", ("list",)),
    RbacRule("resource.k8s.io", "resourceclaimtemplates", ("get", "create")),
    RbacRule("coordination.k8s.io", "leases", ("create",)),
    RbacRule("coordination.k8s.io", "leases", ("get", "update", "delete"), (GATE,)),
)
"""What turns do in the namespace of a run."""

CLUSTER: tuple[RbacRule, ...] = (
    RbacRule("", "nodes", ("get", "list", "watch")),  # `watch`: notices of termination
    RbacRule("", "persistentvolumes", ("list",)),
    RbacRule("", "pods", ("list",)),
)
"""What the gate must see: how much there is, and how much of it is taken, by anybody."""

ELECTION: tuple[RbacRule, ...] = (
    RbacRule("coordination.k8s.io", "leases", ("create",)),
    RbacRule("coordination.k8s.io", "leases", ("get", "update", "delete"), (CONTROLLER,)),
)


def objects(*, image: str, only: Sequence[str] | None, version: str) -> list[Object]:
    """Manifests in the order of their creation. `only`: the namespaces that the controller serves; None: all."""
    named = {"name": CONTROLLER, "labels": {**LABELS, "app.kubernetes.io/version": version}}
    placed = {**named, "namespace": HOME}
    seen = {**placed, "name": SEEN}
    bodies = [
        home_namespace(),
        object_of(SERVICE_ACCOUNT, placed, automountServiceAccountToken=False),
        object_of(ROLE, placed, rules=rules_of(ELECTION)),
        binding_of(ROLE_BINDING, placed, ROLE),
        object_of(ROLE, seen, rules=rules_of((RbacRule("apps", "deployments", ("get",), (CONTROLLER,)),))),
        binding_of(ROLE_BINDING, seen, ROLE, EVERYBODY),
        object_of(CLUSTER_ROLE, named, rules=rules_of(CLUSTER)),
        binding_of(CLUSTER_ROLE_BINDING, named, CLUSTER_ROLE),
        object_of(CLUSTER_ROLE, {**named, "name": RUNS_ROLE}, rules=rules_of(RUNS)),
    ]
    runs = {**named, "name": RUNS_ROLE}
    if only is None:
        bodies.append(binding_of(CLUSTER_ROLE_BINDING, runs, CLUSTER_ROLE))
    else:
        bodies += [binding_of(ROLE_BINDING, {**runs, "namespace": namespace}, CLUSTER_ROLE) for namespace in only]
    volumes = [{"name": "home", "emptyDir": {"sizeLimit": "64Mi"}}]
    return [*bodies, object_of(DEPLOYMENT, placed, spec=deployment_of(LABELS, _container(image, only), volumes))]


def home_namespace() -> Object:
    """The namespace of the controller and the autoscaler."""
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    return object_of(NAMESPACE, {"name": HOME, "labels": {**LABELS, **level}})


def object_of(kind: Kind, metadata: Object, **fields: Any) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def binding_of(kind: Kind, metadata: Object, role: Kind, subject: Object | None = None) -> Object:
    """A binding to the service account that the labels name, unless another subject is given."""
    own = {
        "kind": SERVICE_ACCOUNT.kind,
        "name": metadata["labels"]["app.kubernetes.io/name"],
        "namespace": HOME,
    }
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role.kind, "name": metadata["name"]}
    return object_of(kind, metadata, roleRef=reference, subjects=[subject or own])


def rules_of(table: tuple[RbacRule, ...]) -> list[Object]:
    rules: list[Object] = []
    for rule in table:
        body: Object = {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": list(rule.verbs)}
        rules.append({**body, "resourceNames": list(rule.names)} if rule.names else body)
    return rules


def deployment_of(labels: Object, container: Object, volumes: list[Object], **annotations: str) -> Object:
    """A Deployment of one pod that fits the restricted level, under the service account that the labels name."""
    marks = {"annotations": {f"longboat.dev/{name}": value for name, value in annotations.items()}}
    return {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, **(marks if annotations else {})},
            "spec": {
                "serviceAccountName": labels["app.kubernetes.io/name"],
                "automountServiceAccountToken": True,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 30,
                "securityContext": unprivileged(USER),
                "containers": [container],
                "volumes": volumes,
            },
        },
    }


def _container(image: str, only: Sequence[str] | None) -> Object:
    command = ["longboat", "controller", "--lease", HOME, "--health-port", str(HEALTH_PORT)]
    return {**container_of("controller", image, HEALTH_PORT, "512Mi"), "command": [*command, *only_options(only)]}


def container_of(name: str, image: str, port: int, memory: str) -> Object:
    """All but its command; `port` answers /healthz and /readyz."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "LONGBOAT_HOME", "value": "/home/longboat"},
            {"name": "LONGBOAT_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": memory}},
        "securityContext": {**(container_security("restricted") or {}), "readOnlyRootFilesystem": True},
        "livenessProbe": _probe(port, "/healthz", periodSeconds=20, initialDelaySeconds=10, timeoutSeconds=10),
        "readinessProbe": _probe(port, "/readyz", periodSeconds=2, timeoutSeconds=5),
        "volumeMounts": [{"name": "home", "mountPath": "/home/longboat"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",  # `install` shows why it does not start
    }


def _probe(port: int, path: str, **numbers: int) -> Object:
    return {"httpGet": {"path": path, "port": port}, "failureThreshold": 3, **numbers}


def only_options(only: Sequence[str] | None) -> list[str]:
    return ["--only", ",".join(only)] if only else []


def served_namespaces(deployment: Object) -> tuple[str, ...] | None:
    """The namespaces that an installed controller serves; None: all."""
    words = deployment["spec"]["template"]["spec"]["containers"][0].get("command") or []
    return tuple(str(words[words.index("--only") + 1]).split(",")) if "--only" in words[:-1] else None
