"""The Kueue controller in a cluster with a real node, and the objects of a queue. How it gets there: `manifests`."""

from __future__ import annotations

from testbed.api import Object
from testbed.manifests import Controller

VERSION = "kueue.x-k8s.io/v1beta2"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def configure(text: str) -> str:
    """One replica needs no election, and its certificate is there already."""
    return text.replace("leaderElect: true", "leaderElect: false") + "internalCertManagement:\n  enable: false\n"


def queue(name: str, namespace: str, quotas: dict[str, str]) -> list[Object]:
    """A queue for jobs of one namespace with these quotas, such as `{"cpu": "4", "nvidia.com/gpu": "16"}`."""
    resources = [{"name": resource, "nominalQuota": quota} for resource, quota in quotas.items()]
    group = {"coveredResources": list(quotas), "flavors": [{"name": name, "resources": resources}]}
    chosen = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return [
        {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": name}},
        {
            "apiVersion": VERSION,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": chosen, "resourceGroups": [group]},
        },
        {
            "apiVersion": VERSION,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterQueue": name},
        },
    ]


SAMPLE = queue("sample", "default", {"cpu": "1"})[1]
CONTROLLER = Controller("kueue", "sigs.k8s.io/kueue", configure, SAMPLE)
