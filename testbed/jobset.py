"""The JobSet controller in a cluster with a real node. How it gets there is in `manifests`."""

from __future__ import annotations

from testbed.manifests import Controller


def configure(text: str) -> str:
    """One replica needs no election, and its certificate is there already."""
    return text.replace("leaderElect: true", "leaderElect: false").replace("enable: true", "enable: false")


CONTROLLER = Controller("jobset", "sigs.k8s.io/jobset", configure)
