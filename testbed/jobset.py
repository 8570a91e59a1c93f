"""The JobSet controller in a cluster with a real node. How it gets there is in `manifests`."""

from __future__ import annotations

from testbed.api import Object
from testbed.manifests import Controller

VERSION = "jobset.x-k8s.io/v1alpha2"


def configure(text: str) -> str:
    """One replica needs no election, and its certificate is there already."""
    return text.replace("leaderElect: true", "leaderElect: false").replace("enable: true", "enable: false")


def job_set(name: str, namespace: str, pod: Object, pods: int = 1) -> Object:
    """A JobSet of one job `main` with so many pods; the pods' names are served as `NAME-main-0-INDEX.NAME`."""
    job = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", **pod}},
    }
    return {
        "apiVersion": VERSION,
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicatedJobs": [{"name": "main", "replicas": 1, "template": {"spec": job}}]},
    }


SAMPLE = job_set("sample", "default", {"containers": [{"name": "main", "image": "sample"}]})
CONTROLLER = Controller("jobset", "sigs.k8s.io/jobset", configure, SAMPLE)
