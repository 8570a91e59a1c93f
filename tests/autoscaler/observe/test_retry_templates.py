"""Templates for retries are no demand: neither they nor what JobSet makes of them want machines."""

from __future__ import annotations

import pytest

from longboat.autoscaler.observe.gangs import GangIndex
from longboat.core.jobs import Retries
from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.manifests.workloads import workloads
from tests.engines.kubernetes.manifest_samples import gpu_role, job, record


@pytest.mark.parametrize("kind", ["job", "jobset"])
@pytest.mark.parametrize("queue", [None, "research"])
def test_a_template_asks_for_no_machines(kind: str, queue: str | None) -> None:
    what = record(job(gpu_role(nodes=2), retries=Retries(count=1)), workload=kind, queue=queue)
    templates = objects.retry_templates(what, "pin")
    named = "JobSet" if kind == "jobset" else "Job"
    assert GangIndex({named: templates}, {}).templates() == {}
    waiting = workloads(what, 0, objects.labels_of(what, 0), suspended=True)
    found = GangIndex({named: [*waiting, *templates]}, {}).templates()
    if kind == "job" or queue:
        ((_, pods),) = next(iter(found.values()))
        assert len(pods) == 2, "of the attempt alone"
