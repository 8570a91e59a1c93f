"""A job that is larger than its queue can ever give is refused as such: as data, and by a real Kueue's objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import Refused
from longboat.engines.kubernetes.settings import ClusterSettings
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts, observe
from longboat.engines.kubernetes.submit.facts.surroundings import LocalQueue
from longboat.engines.kubernetes.submit.kueue_quotas import FlavorQuota, flavor_quotas
from longboat.engines.kubernetes.submit.preflight import check
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.broken import apply, job_of, opened

GPU = "nvidia.com/gpu"


def cluster_queue(name: str, cohort: str = "", **flavors: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {"name": flavor, "resources": [{"name": GPU, **({"nominalQuota": one} if isinstance(one, str) else one)}]}
        for flavor, one in flavors.items()
    ]
    spec = {
        "resourceGroups": [{"coveredResources": [GPU], "flavors": rows}],
        **({"cohortName": cohort} if cohort else {}),
    }
    return {"metadata": {"name": name}, "spec": spec}


def most(
    mine: dict[str, Any], *others: dict[str, Any], cohorts: list[dict[str, Any]] | None = None
) -> list[int | None]:
    return [flavor.most[GPU] for flavor in flavor_quotas(mine, [mine, *others], cohorts)]


def test_what_a_queue_can_ever_give() -> None:
    quota = {"nominalQuota": "8", "borrowingLimit": "2"}
    assert most(cluster_queue("a", h100="8", a100="4")) == [8, 4]
    rich = cluster_queue("b", "lab", h100="16")
    assert most(cluster_queue("a", "lab", h100="8"), rich, cohorts=[]) == [24]
    assert most(cluster_queue("a", "lab", h100=quota), rich, cohorts=[]) == [10]
    assert most(cluster_queue("a", "lab", h100=quota), rich) == [10]
    miser = cluster_queue("b", "lab", h100={"nominalQuota": "16", "lendingLimit": "1"})
    assert most(cluster_queue("a", "lab", h100=quota), miser, cohorts=[]) == [9]
    assert most(cluster_queue("a", "lab", h100="8"), rich) == [None], "cohorts may not be listed"
    assert most(cluster_queue("a", "lab", h100="8"), rich, cohorts=[{"metadata": {"name": "lab"}}]) == [None]
    assert most(cluster_queue("a", "lab", h100="8"), cluster_queue("c", "other", h100="9"), cohorts=[]) == [8]


def seen(*flavors: FlavorQuota) -> ClusterFacts:
    queue = LocalQueue(name="research", cluster_queue="all", is_active=True, flavors=flavors or None)
    return ClusterFacts(namespace="team", version="v1.36.4", groups={"kueue.x-k8s.io": ("v1beta2",)}, queues=(queue,))


def gives(name: str = "h100", **most: int) -> FlavorQuota:
    return FlavorQuota(name=name, most={"cpu": 1000 * most["cpu"]} if "cpu" in most else {GPU: most["gpus"]})


@pytest.mark.parametrize(
    ("fields", "cluster", "told"),
    [
        ({"nodes": 3, "gpus": 8}, seen(gives(gpus=16)), ["more than 16 GPUs", "asks for 24 GPUs", "`nodes: 2`"]),
        ({"gpus": 8}, seen(gives(gpus=4)), ["more than 4 GPUs", "asks for 8 GPUs", "`nodes: 1` with `gpus: 4`"]),
        ({"nodes": 2, "gpus": 8}, seen(gives(gpus=8), gives("a100", gpus=8)), ["more than 8 GPUs", "`nodes: 1`"]),
        (
            {"roles": {"a": {"gpus": 8}, "b": {"gpus": 8}}},
            seen(gives(gpus=8), gives("a100", gpus=4)),
            ["more than 12 GPUs", "the job asks for 16 GPUs", "over all roles"],
        ),
        ({"nodes": 2, "cpus": 4}, seen(gives(cpu=4)), ["more than 4 CPUs", "asks for 8 CPUs"]),
    ],
)
def test_too_large_for_its_queue(
    tmp_path: Path, fields: dict[str, Any], cluster: ClusterFacts, told: list[str]
) -> None:
    with pytest.raises(Refused) as refusal:
        check(job_of(tmp_path, **fields), cluster, ClusterSettings(queue="research"))
    assert "queue research can never give" in refusal.value.message
    for words in told:
        assert words in f"{refusal.value.message} {refusal.value.hint}"


@pytest.mark.parametrize(
    ("fields", "cluster"),
    [
        ({"nodes": 2, "gpus": 8}, seen(gives(gpus=16))),
        ({"roles": {"a": {"gpus": 8}, "b": {"gpus": 4}}}, seen(gives(gpus=8), gives("a100", gpus=4))),
        ({"nodes": 9, "gpus": 8}, seen()),
        ({"nodes": 9, "gpus": 8}, seen(FlavorQuota(name="h100", most={GPU: None}))),
        ({"nodes": 9, "cpus": 8}, seen(gives(gpus=1))),
        ({"nodes": 1}, seen(gives(cpu=0))),
    ],
    ids=["fits", "in two flavors", "not known", "a cohort not known", "not covered", "asks for nothing"],
)
def test_what_the_queue_may_give_is_taken(tmp_path: Path, fields: dict[str, Any], cluster: ClusterFacts) -> None:
    check(job_of(tmp_path, **fields), cluster, ClusterSettings(queue="research"))


@pytest.mark.pods("controllers")
def test_a_real_queue(cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> None:
    from testbed import kueue

    apply(kubectl, *kueue.queue(namespace, namespace, {"cpu": "1"}))
    chosen = ClusterSettings(queue=namespace)
    try:
        with opened(cluster, namespace) as client:
            large, small = job_of(tmp_path, nodes=3, cpus=0.5), job_of(tmp_path, nodes=2, cpus=0.1)
            check(small, observe(client, small, chosen), chosen)
            with pytest.raises(Refused, match="can never give more than 1 CPU.* asks for 1.5 CPUs"):
                check(large, observe(client, large, chosen), chosen)
    finally:
        kubectl("delete", "localqueue", namespace)
        kubectl("delete", "clusterqueue,resourceflavor", namespace)
