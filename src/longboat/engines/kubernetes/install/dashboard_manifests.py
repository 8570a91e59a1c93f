"""Manifests of the dashboard for `longboat install --ui`: Deployment, Service, least RBAC. Pure.

With its own rights it reads records and pods of the namespaces that it shows, and nothing else: no Secrets, no exec,
nothing that changes anything, nothing cluster-wide. Where users are named it may also act as these, by impersonation,
and only as these: what each of them may do is the cluster's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from longboat.engines.kubernetes.install.controller_manifests import (
    HOME,
    USER,
    Object,
    RbacRule,
    binding_of,
    container_of,
    deployment_of,
    object_of,
    rules_of,
)
from longboat.kubeapi.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEPLOYMENT,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
)
from longboat.kubeapi.leases import MANAGED_BY

DASHBOARD = "longboat-ui"
ACTS_AS = f"{DASHBOARD}-users"
LABELS = {**MANAGED_BY, "app.kubernetes.io/name": DASHBOARD}
PORT = 8080
TOKEN_FOLDER = "/etc/longboat-ui"

READS: tuple[RbacRule, ...] = (
    RbacRule("", "configmaps", ("get", "list", "watch")),  # records; RBAC knows no labels
    RbacRule("", "pods", ("get", "list", "watch")),
    RbacRule("", "pods/log", ("get",)),
    RbacRule("", "events", ("list",)),  # why a pod does not start
    RbacRule("batch", "jobs", ("get", "list")),
)
"""What the list of runs and a page of a run are made of, in the namespaces that are shown."""


class DashboardSetup(NamedTuple):
    """What an installed dashboard shows, and to whom."""

    namespaces: tuple[str, ...]
    public_url: str | None = None
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


def dashboard_objects(*, image: str, setup: DashboardSetup, version: str) -> list[Object]:
    """Manifests in the order of their creation, but for the Secret with the token: its value is in no manifest."""
    named = {"name": DASHBOARD, "labels": {**LABELS, "app.kubernetes.io/version": version}}
    placed = {**named, "namespace": HOME}
    bodies = [
        object_of(SERVICE_ACCOUNT, placed, automountServiceAccountToken=False),
        object_of(CLUSTER_ROLE, named, rules=rules_of(READS)),
        *(binding_of(ROLE_BINDING, {**named, "namespace": each}, CLUSTER_ROLE) for each in setup.namespaces),
    ]
    if setup.users:
        acting = {**named, "name": ACTS_AS}
        bodies += [
            object_of(CLUSTER_ROLE, acting, rules=rules_of(impersonation_of(setup.users, setup.groups))),
            binding_of(CLUSTER_ROLE_BINDING, acting, CLUSTER_ROLE),
        ]
    port = {"name": "http", "port": PORT, "targetPort": PORT}
    volumes: list[Object] = [
        {"name": "home", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}},  # lines of logs on their way, of all who look
        {"name": "token", "secret": {"secretName": DASHBOARD, "defaultMode": 0o440}},
    ]
    deployment = deployment_of(LABELS, _container(image, setup), volumes)
    deployment["template"]["spec"]["securityContext"]["fsGroup"] = USER  # else root alone may read the token
    bodies.append(object_of(SERVICE, placed, spec={"selector": LABELS, "ports": [port]}))
    return [*bodies, object_of(DEPLOYMENT, placed, spec=deployment)]


def impersonation_of(users: Sequence[str], groups: Sequence[str]) -> tuple[RbacRule, ...]:
    """Only who is named: the right to be anybody would be the right to be an administrator."""
    rules = (RbacRule("", "users", ("impersonate",), tuple(users)),)
    return (*rules, RbacRule("", "groups", ("impersonate",), tuple(groups))) if groups else rules


def _container(image: str, setup: DashboardSetup) -> Object:
    command = ["longboat", "ui", "--no-browser", "--no-local", "--port", str(PORT), "--bind", "0.0.0.0"]
    command += ["--insecure-bind", "--token-file", f"{TOKEN_FOLDER}/token"]
    command += [word for name in setup.namespaces for word in ("--namespace", name)]
    command += ["--public-url", setup.public_url] if setup.public_url else []
    if setup.users:
        command += ["--users-from-proxy", *(word for name in setup.groups for word in ("--group", name))]
    else:
        command += ["--read-only"]
    body = container_of("ui", image, PORT, "512Mi")
    mounts = [*body["volumeMounts"], {"name": "tmp", "mountPath": "/tmp"}]
    mounts += [{"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True}]
    ready = {**body["readinessProbe"], "httpGet": {"path": "/healthz", "port": PORT}}
    return {**body, "command": command, "volumeMounts": mounts, "readinessProbe": ready}
