"""The add-on metrics: metrics-server, for `kubectl top` and autoscalers of pods. Its image comes from its project."""

from __future__ import annotations

from longboat.clusters.addons.addon import AddonInputs, AddonManifest, Object
from longboat.engines.kubernetes.install.controller_manifests import RbacRule, object_of, rules_of
from longboat.engines.kubernetes.manifests.security_context import container_security, unprivileged
from longboat.kubeapi.kinds import (
    API_SERVICE,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEPLOYMENT,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
)

VERSION = "0.9.0"
IMAGE = f"registry.k8s.io/metrics-server/metrics-server:v{VERSION}"
NAME, NAMESPACE, PORT = "metrics-server", "kube-system", 10250
LABELS = {"k8s-app": NAME}
RULES = (RbacRule("", "nodes/metrics", ("get",)), RbacRule("", "pods", ("get", "list", "watch")))
NODES = RbacRule("", "nodes", ("get", "list", "watch"))
VIEW = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in ("admin", "edit", "view")}
"""Who may see pods may see what they use."""


def make(_inputs: AddonInputs) -> AddonManifest:
    return AddonManifest("metrics", metrics_objects(), VERSION)


def metrics_objects() -> list[Object]:
    placed: Object = {"name": NAME, "namespace": NAMESPACE, "labels": LABELS}
    named: Object = {"name": f"system:{NAME}", "labels": LABELS}
    reader: Object = {"name": "system:aggregated-metrics-reader", "labels": {**LABELS, **VIEW}}
    used = RbacRule("metrics.k8s.io", "pods", ("get", "list", "watch"))
    group = "metrics.k8s.io"
    return [
        object_of(SERVICE_ACCOUNT, placed),
        object_of(CLUSTER_ROLE, reader, rules=rules_of((used, used._replace(resource="nodes")))),
        object_of(CLUSTER_ROLE, named, rules=rules_of((*RULES, NODES))),
        _binding(CLUSTER_ROLE_BINDING, named, CLUSTER_ROLE.kind, named["name"]),
        _binding(CLUSTER_ROLE_BINDING, {**named, "name": f"{NAME}:system:auth-delegator"}, CLUSTER_ROLE.kind,
                 "system:auth-delegator"),
        _binding(ROLE_BINDING, {**placed, "name": f"{NAME}-auth-reader"}, "Role",
                 "extension-apiserver-authentication-reader"),
        object_of(SERVICE, placed, spec={
            "selector": LABELS,
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": "https"}],
        }),
        object_of(DEPLOYMENT, placed, spec=_deployment()),
        object_of(API_SERVICE, {"name": f"v1beta1.{group}", "labels": LABELS}, spec={
            "group": group,
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,  # it signs its own certificate, in memory
            "service": {"name": NAME, "namespace": NAMESPACE},
        }),
    ]  # fmt: skip


def _binding(kind: Kind, metadata: Object, role_kind: str, role: str) -> Object:
    subject = {"kind": SERVICE_ACCOUNT.kind, "name": NAME, "namespace": NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}
    return object_of(kind, metadata, roleRef=reference, subjects=[subject])


def _deployment() -> Object:
    arguments = [
        "--cert-dir=/tmp",
        f"--secure-port={PORT}",
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        "--kubelet-use-node-status-port",
        "--metric-resolution=15s",
        "--kubelet-insecure-tls",  # kubelets of kubeadm sign their own certificates
    ]
    container = {
        "name": NAME,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments,
        "ports": [{"name": "https", "containerPort": PORT, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
        "livenessProbe": _probe("/livez", periodSeconds=10, initialDelaySeconds=20),
        "readinessProbe": _probe("/readyz", periodSeconds=5, initialDelaySeconds=5),
        "securityContext": {**(container_security("restricted") or {}), "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": unprivileged(1000),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    return {
        "replicas": 1,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }


def _probe(path: str, **numbers: int) -> Object:
    request = {"path": path, "port": "https", "scheme": "HTTPS"}
    return {"httpGet": request, "failureThreshold": 3, **numbers}
