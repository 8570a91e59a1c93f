"""Preflight and the gate place the same pods: what the settings lay over the template counts for both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longboat.core.errors import Refused
from longboat.engines.kubernetes.gate.decide import ClusterUsage, GateCandidate, decide_gate
from longboat.engines.kubernetes.settings import ClusterSettings
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.gpu_inventory import LEGACY_GPU
from longboat.engines.kubernetes.submit.facts.surroundings import Limit, NodeUse, Quota
from longboat.engines.kubernetes.submit.planned_pods import planned_pods
from longboat.engines.kubernetes.submit.preflight import check
from longboat.fitting.model.nodes import NodeShape, Taint
from longboat.fitting.model.quantities import amounts
from tests.engines.kubernetes.broken import job_of

SPOT = Taint(key="spot", effect="NoSchedule", value="yes")
TOLERATES = {"tolerations": [{"key": "spot", "operator": "Exists"}]}
HARD = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str, *, pool: str | None = None, taints: tuple[Taint, ...] = (), **has: str) -> NodeUse:
    labels = {"kubernetes.io/hostname": name, **({"pool": pool} if pool else {})}
    sizes = {
        "cpu": "8",
        "memory": "32Gi",
        "pods": "110",
        **has,
    }
    return NodeUse(node=NodeShape(name=name, labels=labels, taints=taints, allocatable=amounts(sizes)))


def seen(*nodes: NodeUse) -> ClusterFacts:
    return ClusterFacts(namespace="team", version="v1.36.4", nodes=nodes)


def pod(**spec: Any) -> ClusterSettings:
    return ClusterSettings(pod={"spec": spec})


def pool_affinity(*values: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": list(values)}]}]
    return {"affinity": {"nodeAffinity": {HARD: {"nodeSelectorTerms": terms}}}}


APART = {
    "affinity": {
        "podAntiAffinity": {
            HARD: [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"team": "x"}}}]
        }
    }
}
TEAM = {"metadata": {"labels": {"team": "x"}}}
BESIDE = {"containers": [{"name": "beside", "image": "x", "resources": {"requests": {"cpu": "6"}}}]}


@pytest.mark.parametrize(
    ("chosen", "fields", "nodes", "told"),
    [
        (pod(nodeSelector={"pool": "gone"}), {}, [node("a", pool="x")], ["pool in gone", "nodes here have: pool=x"]),
        (pod(nodeSelector={"pool": "x"}), {}, [node("a")], ["no node takes pods", "no pool"]),
        (pod(**pool_affinity("gone")), {"cpus": 1}, [node("a", pool="x")], ["pool in gone"]),
        (pod(nodeSelector={"pool": "x"}), {"nodes": 2, "cpus": 8}, [node("a", pool="x"), node("b")], ["16 CPUs"]),
        (
            ClusterSettings(pod={**TEAM, "spec": APART}),
            {"nodes": 3},
            [node("a"), node("b")],
            ["only 2 of 3 pods of role worker", "`nodes: 2`"],
        ),
        (pod(**BESIDE), {"cpus": 4}, [node("a")], ["10 CPUs", "the largest node, a, has 8 CPUs"]),
        (
            ClusterSettings(),
            {},
            [node("a", taints=(SPOT,))],
            ["do not tolerate (spot=yes:NoSchedule)"],
        ),
    ],
    ids=["selector", "no such label", "affinity", "too few of the pool", "apart", "a container beside", "taint"],
)
def test_what_the_settings_make_impossible_is_refused(
    tmp_path: Path, chosen: ClusterSettings, fields: dict[str, Any], nodes: list[NodeUse], told: list[str]
) -> None:
    with pytest.raises(Refused) as refusal:
        check(job_of(tmp_path, **fields), seen(*nodes), chosen)
    for words in told:
        assert words in f"{refusal.value.message} {refusal.value.hint}"


@pytest.mark.parametrize(
    ("chosen", "fields", "nodes"),
    [
        (pod(**TOLERATES), {"cpus": 8}, [node("a", taints=(SPOT,))]),
        (pod(**TOLERATES), {"gpus": 2}, [node("a", taints=(SPOT,), **{"nvidia.com/gpu": "2"})]),
        (pod(**TOLERATES, nodeSelector={"pool": "x"}), {"nodes": 2}, [node("a", taints=(SPOT,), pool="x"), node("b")]),
        (ClusterSettings(pod={**TEAM, "spec": APART}), {"nodes": 2}, [node("a"), node("b")]),
    ],
    ids=["tolerated", "tolerated gpus", "both", "apart"],
)
def test_what_the_settings_make_possible_is_taken(
    tmp_path: Path, chosen: ClusterSettings, fields: dict[str, Any], nodes: list[NodeUse]
) -> None:
    check(job_of(tmp_path, **fields), seen(*nodes), chosen)


def test_quotas_and_limits_count_every_container(tmp_path: Path) -> None:
    job, chosen = job_of(tmp_path, cpus=2), pod(**BESIDE)
    quota = Quota(name="small", hard={"requests.cpu": "7"})
    limit = Limit(name="sizes", type="Pod", max={"cpu": "7"})
    for rules in ({"quotas": (quota,)}, {"limits": (limit,)}):
        rich = node("a", cpu="64")
        cluster = ClusterFacts(namespace="team", version="v1.36.4", nodes=(rich,), **rules)  # type: ignore[arg-type]
        check(job, cluster)
        with pytest.raises(Refused, match="8 CPUs"):
            check(job, cluster, chosen)


SPECS = [{}, TOLERATES, {"nodeSelector": {"pool": "x"}}, pool_affinity("x", "y"), {**TOLERATES, **pool_affinity("y")}]
NODES = st.lists(
    st.builds(
        dict,
        pool=st.sampled_from([None, "x", "y"]),
        taints=st.sampled_from([(), (), (SPOT,)]),
        cpu=st.sampled_from(["2", "4", "8"]),
        gpus=st.sampled_from(["0", "1", "4", "8"]),
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    nodes=NODES, spec=st.sampled_from(SPECS), count=st.integers(1, 5), cpus=st.integers(1, 8), gpus=st.integers(0, 8)
)
def test_preflight_refuses_exactly_what_the_gate_would_never_let_in(
    tmp_path: Path, nodes: list[dict[str, Any]], spec: dict[str, Any], count: int, cpus: int, gpus: int
) -> None:
    uses = [
        node(f"n{at}", pool=one["pool"], taints=one["taints"], cpu=one["cpu"], **{"nvidia.com/gpu": one["gpus"]})
        for at, one in enumerate(nodes)
    ]
    cluster, chosen = seen(*uses), pod(**spec)
    job = job_of(tmp_path, nodes=count, cpus=cpus, gpus=gpus)
    pods = planned_pods(job, cluster, chosen)
    (verdict,) = decide_gate(
        [GateCandidate(run="r", uid="u", created=0.0, pods=pods)],
        ClusterUsage(nodes=tuple(use.node for use in uses)),
        1.0,
    )
    try:
        check(job, cluster, chosen)
        is_taken = True
    except Refused:
        is_taken = False
    assert is_taken == (verdict.action == "let_in")


@pytest.mark.parametrize(("offered", "is_let_in"), [("2", True), ("1", False)])
def test_gpus_by_their_old_name_are_counted_by_preflight_and_gate(
    tmp_path: Path, offered: str, is_let_in: bool
) -> None:
    """Up to Kubernetes 1.8. Two pods of one GPU each, on one node."""
    facts = seen(node("a", **{LEGACY_GPU: offered}))
    job = job_of(tmp_path, nodes=2, gpus=1)
    pods = planned_pods(job, facts)
    assert [dict(each.shape.requests)[LEGACY_GPU] for each in pods] == [1, 1]
    candidate = GateCandidate(run="r", uid="u", created=0.0, pods=pods)
    (verdict,) = decide_gate([candidate], ClusterUsage(nodes=tuple(use.node for use in facts.nodes or ())), 1.0)
    assert (verdict.action == "let_in") == is_let_in
