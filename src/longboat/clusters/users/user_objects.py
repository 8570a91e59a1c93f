"""Manifests of a cluster's user: an account, a role in his namespace, the binding of both, his kubeconfig. Pure.

Accounts are in a namespace of their own where nobody may make pods: in the team's, a colleague could start a pod under
the account of another. The role is that of docs/kubernetes.md, and there is no other right.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from longboat.core.errors import UsageError
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.install.controller_manifests import object_of
from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS, role_for
from longboat.kubeapi.kinds import NAMESPACE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from longboat.kubeapi.kubeconfig import NAMESPACE as NAMESPACE_PATTERN
from longboat.kubeapi.kubeconfig import ClusterAccess, pem

Object = dict[str, Any]

ACCOUNTS = "longboat-users"
"""The namespace of all accounts."""
ROLE_NAME = "longboat-cluster-user"
"""Not the name on the page of the docs: a role that an administrator made smaller by hand is not made larger again."""
KIND = "cluster-user"
USER = f"{names.DOMAIN}/cluster-user"
EXPIRES = f"{names.DOMAIN}/token-expires"
OURS = {names.MANAGED_BY: "longboat", names.KIND: KIND}
SELECTOR = ",".join(f"{key}={value}" for key, value in OURS.items())
ENFORCE = "pod-security.kubernetes.io/enforce"
LEVEL = "baseline"
"""Of namespaces made here: who may make pods would else be root on the nodes, by a pod that says so."""

_SYSTEM = ("kube-system", "kube-public", "kube-node-lease", ACCOUNTS, names.SYSTEM)
_NAME = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"


def check_user(name: str) -> None:
    if not re.fullmatch(_NAME, name):
        hint = "a-z, 0-9 and -, beginning with a letter, at most 40 characters"
        raise UsageError(f"{name!r} is not the name of a user", hint=hint)


def check_namespace(namespace: str) -> None:
    if not re.fullmatch(NAMESPACE_PATTERN, namespace):
        raise UsageError(f"{namespace!r} is not the name of a namespace", hint="--namespace vision")
    if namespace in _SYSTEM:
        hint = "who may make pods there rules the cluster: choose a namespace of the team's own"
        raise UsageError(f"the namespace {namespace} belongs to the system", hint=hint)


def binding_name(user: str) -> str:
    return f"longboat-user-{user}"


def namespace_object(namespace: str) -> Object:
    level = "restricted" if namespace == ACCOUNTS else LEVEL
    return object_of(NAMESPACE, {"name": namespace, "labels": {names.MANAGED_BY: "longboat", ENFORCE: level}})


def account_object(user: str) -> Object:
    labels = {**OURS, USER: user}
    metadata = {"name": user, "namespace": ACCOUNTS, "labels": labels}
    return object_of(SERVICE_ACCOUNT, metadata, automountServiceAccountToken=False)


def right_objects(user: str, namespace: str) -> list[Object]:
    """The role of the namespace and the user's binding to it."""
    role = role_for(PERMISSIONS, namespace=namespace, name=ROLE_NAME)
    subject = {"kind": SERVICE_ACCOUNT.kind, "name": user, "namespace": ACCOUNTS}
    return [
        object_of(ROLE, {"name": ROLE_NAME, "namespace": namespace, "labels": OURS}, rules=role["rules"]),
        object_of(
            ROLE_BINDING,
            {"name": binding_name(user), "namespace": namespace, "labels": {**OURS, USER: user}},
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": ROLE.kind, "name": ROLE_NAME},
            subjects=[subject],
        ),
    ]


def token_request(days: int) -> Object:
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": days * 86400},
    }


def kubeconfig_of(user: str, namespace: str, token: str, access: ClusterAccess) -> Object:
    """The user's kubeconfig: the administrator's server address with the user's token, in one file."""
    way = ("server", "tls-server-name", "proxy-url", "insecure-skip-tls-verify", "disable-compression")
    cluster = {key: access.cluster[key] for key in way if key in access.cluster}
    authority = pem(access.cluster, "certificate-authority")
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    name = access.context
    context = {"cluster": name, "user": user, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {**cluster, "server": access.server}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }
