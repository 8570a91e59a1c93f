"""The doctor on clusters of the tests, as a user has it: a client, settings with the test image, an environment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.doctor.examine import ClusterTarget, examine_cluster
from longboat.doctor.findings import Finding
from longboat.engines.kubernetes.settings import ClusterSettings
from testbed.clusters import Cluster
from tests.engines.kubernetes.broken import IMAGE, opened

Findings = dict[str, Finding]


@contextlib.contextmanager
def target_of(
    cluster: Cluster, namespace: str, kubeconfig: Path | None = None, **settings: Any
) -> Iterator[ClusterTarget]:
    with opened(cluster, namespace, kubeconfig) as client:
        chosen = ClusterSettings(**{"image": IMAGE, **settings})
        variables = {"KUBECONFIG": str(kubeconfig or cluster.kubeconfig), "PATH": "/usr/bin:/bin"}
        yield ClusterTarget(client, chosen, variables)


@pytest.fixture
def examine(cluster: Cluster, namespace: str) -> Callable[..., Findings]:
    """Findings by name: `examine(kubeconfig=None, with_pods=False, namespace=..., **settings)`."""

    def findings(
        kubeconfig: Path | None = None, *, with_pods: bool = False, place: str = namespace, **settings: Any
    ) -> Findings:
        with target_of(cluster, place, kubeconfig, **settings) as target:
            return {each.name: each for each in examine_cluster(target, with_pods=with_pods).findings}

    return findings
