"""Controllers, queues, DNS, policies, claims and leftovers, as facts of broken ones."""

from __future__ import annotations

from typing import Any

from longboat.doctor.facts import API, AUTOSCALER, CLUSTER, CONTROLLER, LEFTOVERS, OPERATORS, PODS
from longboat.doctor.values import ApiAnswer, AutoscalerReport, Leftovers, Rollout
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.surroundings import Autoscaler, LocalQueue
from tests.doctor.checks.judging import judged, status

NOW = 1_700_000_000.0


def served(*groups: str, queues: Any = None, ready: int = 1) -> dict[Any, Any]:
    rollouts = [Rollout(name=f"{name}-manager", namespace="sys", wanted=1, ready=ready) for name in ("jobset", "kueue")]
    versions = dict.fromkeys(groups, ("v1alpha2",))
    return {CLUSTER: ClusterFacts(namespace="team", groups=versions, queues=queues), OPERATORS: rollouts}


def test_jobset_and_kueue() -> None:
    assert status("jobset", served("apps", ready=0)) == status("kueue", served("apps", ready=0)) == "ok"
    assert status("jobset", served()) == status("kueue", served()) == "skipped"
    assert status("jobset", {**served("jobset.x-k8s.io"), OPERATORS: []}) == "skipped"
    assert status("jobset", served("jobset.x-k8s.io")) == "ok"
    assert judged("jobset", served("jobset.x-k8s.io", ready=0)).status == "broken"
    assert status("kueue", served("kueue.x-k8s.io")) == "skipped"
    assert status("kueue", served("kueue.x-k8s.io", queues=(LocalQueue(name="q"),))) == "ok"
    assert status("kueue", served("kueue.x-k8s.io", queues=(LocalQueue(name="q"),), ready=0)) == "broken"
    assert status("kueue", served("kueue.x-k8s.io", queues=(LocalQueue(name="q", is_active=False),))) == "warning"


def test_our_own_controller_and_autoscaler() -> None:
    assert status("controller", {CONTROLLER: None}) == "ok"
    assert judged("controller", {CONTROLLER: ("it is not ready", "look")}).hint == "look"

    def scaler(report: AutoscalerReport | None, **more: Any) -> dict[Any, Any]:
        return {AUTOSCALER: report, CLUSTER: ClusterFacts(namespace="team", **more)}

    assert status("autoscaler", scaler(None)) == "ok"
    assert status("autoscaler", scaler(AutoscalerReport(age_s=20.0), autoscaler=Autoscaler(name="longboat"))) == "ok"
    assert status("autoscaler", scaler(AutoscalerReport(age_s=900.0))) == "broken"
    assert status("autoscaler", scaler(AutoscalerReport(age_s=9.0, warnings=("quota of a100",)))) == "warning"


def test_pods_that_do_not_end() -> None:
    def deleted(at: str | None) -> dict[Any, Any]:
        meta = {"name": "p", **({"deletionTimestamp": at} if at else {})}
        return {PODS: [{"metadata": meta}], API: ApiAnswer(server="s", context="c", took_s=0.1, now=NOW)}

    assert status("stuck pods", deleted(None)) == status("stuck pods", deleted("2023-11-14T22:10:00Z")) == "ok"
    assert status("stuck pods", deleted("2023-11-14T20:00:00Z")) == "warning"


def test_leftovers() -> None:
    assert status("leftovers", {LEFTOVERS: Leftovers()}) == "ok"
    ours = judged("leftovers", {LEFTOVERS: Leftovers(helper_pods=("p",), claims=("c",))})
    assert ours.status == "warning" and "pod p, claim c" in ours.detail and ours.fix
    assert "job/old" in (judged("leftovers", {LEFTOVERS: Leftovers(orphans=("job old",))}).hint or "")
