"""The cluster's name service: CoreDNS as a Deployment, quick to see new pods.

Names outside the cluster do not exist: a test that asks for one gets its answer at once, on every machine the same.
"""

from __future__ import annotations

from testbed import api, images
from testbed.api import Object
from testbed.clusters import Cluster

SPACE = "kube-system"
REAL_LABEL = "testbed.longboat.test/real"
FIRST_NODE = {REAL_LABEL: "true", "kubernetes.io/hostname": "node-0"}
LABELS = {"k8s-app": "kube-dns"}
COREFILE = """.:53 {
    errors
    health :8080
    ready :8181
    cache 1
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 1
        fallthrough in-addr.arpa ip6.arpa
    }
    template ANY ANY . {
        rcode NXDOMAIN
    }
}
"""


def permissions() -> list[Object]:
    meta = {"name": "system:coredns"}
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"}
    version = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "coredns", "namespace": SPACE}},
        {"apiVersion": version, "kind": "ClusterRole", "metadata": meta, "rules": rules},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": SPACE}],
        },
    ]


def container() -> Object:
    probe = {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1, "failureThreshold": 60}
    return {
        "name": "coredns",
        "image": images.reference("coredns"),
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "ports": [{"containerPort": 53, "protocol": kind, "name": f"dns-{kind.lower()}"} for kind in ("UDP", "TCP")],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "readinessProbe": probe,
    }


def objects(cluster: Cluster) -> list[Object]:
    meta = {"name": "coredns", "namespace": SPACE, "labels": LABELS}
    pod = {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"operator": "Exists"}],
        # Simulated nodes would take the pod and run nothing; of two real ones, the second is there to be lost.
        "nodeSelector": FIRST_NODE,
        "containers": [container()],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    ports = [{"name": f"dns-{kind.lower()}", "port": 53, "protocol": kind} for kind in ("UDP", "TCP")]
    return [
        *permissions(),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"Corefile": COREFILE}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": LABELS},
                "template": {"metadata": {"labels": LABELS}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**meta, "name": "kube-dns"},
            "spec": {"selector": LABELS, "clusterIP": cluster.dns_address, "ports": ports},
        },
    ]


def start(cluster: Cluster, with_api: api.Api) -> None:
    with_api.apply(objects(cluster))


def is_ready(with_api: api.Api) -> bool:
    deployment = with_api.get(api.path_of("Deployment", "apps/v1", SPACE, "coredns"))
    return bool(deployment and deployment.get("status", {}).get("readyReplicas"))
