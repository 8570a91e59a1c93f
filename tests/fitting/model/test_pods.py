"""Pods from the API's JSON: shapes that are equal where pods are interchangeable."""

from __future__ import annotations

import msgspec

from longboat.fitting.model.nodes import Toleration
from longboat.fitting.model.pods import PodSelector, PodTerm, pod_of, pods_of
from tests.fitting.bodies import affinity, pod, pod_body, term

DAEMON = {"kind": "DaemonSet", "name": "d", "controller": True}


def test_pods_of_one_job_have_one_shape() -> None:
    one = pod("a", {"cpu": "1"}, labels={"index": "0"}, nodeName="n")
    other = pod("b", {"cpu": "1000m"}, labels={"index": "1"})
    assert one.shape is other.shape or one.shape == other.shape
    assert hash(one.shape) == hash(other.shape)
    assert one.shape != pod("c", {"cpu": "2"}).shape


def test_order_and_repetition_of_tolerations_make_no_difference() -> None:
    first, second = {"key": "a", "operator": "Exists"}, {"key": "b", "value": "x"}
    assert pod("a", tolerations=[first, second]).shape == pod("b", tolerations=[second, first, second]).shape
    assert pod("a", tolerations=[first]).shape.placing.tolerations == (Toleration(key="a", operator="Exists"),)


def test_states() -> None:
    body = pod_body("a", labels={"longboat.dev/run": "r"}, nodeName="n", priority=7)
    body["metadata"].update(ownerReferences=[DAEMON], deletionTimestamp="2026-01-01T00:00:00Z")
    body["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    found = pod_of(body)
    assert (found.node, found.priority, found.run, found.owner) == ("n", 7, "r", "DaemonSet")
    assert found.lasts and found.is_terminating and found.is_ready and not found.is_finished
    body["status"] = {"phase": "Failed"}
    assert pod_of(body).is_finished and pods_of([body]) == []
    waiting = pod_body("b", schedulingGates=[{"name": "x"}])
    waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    assert pod_of(waiting).is_gated and pod_of(waiting).is_unschedulable


def test_preferences_are_left_out() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    anyway = {"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    spec = {"affinity": {"nodeAffinity": preferred, "podAffinity": preferred}, "topologySpreadConstraints": [anyway]}
    assert pod("a", **spec).shape == pod("b").shape


def test_label_keys_take_the_pods_own_values() -> None:
    here = affinity("podAntiAffinity", term("z", {"app": "x"}, matchLabelKeys=["rev"], mismatchLabelKeys=["team"]))
    found = pod("a", labels={"app": "x", "rev": "7", "team": "t"}, affinity=here).shape.apart
    labels = (("app", "In", ("x",)), ("rev", "In", ("7",)), ("team", "NotIn", ("t",)))
    assert found == (PodTerm(who=PodSelector(labels=labels, namespaces=("default",)), key="z"),)


def test_namespaces_of_a_term() -> None:
    def who(**more: object) -> PodSelector:
        return pod("a", affinity=affinity("podAffinity", term("z", {}, **more))).shape.near[0].who

    elsewhere = msgspec.structs.replace(pod("b"), namespace="other")
    assert not who().matches(elsewhere, {})
    assert who(namespaces=["other"]).matches(elsewhere, {})
    assert who(namespaceSelector={}).matches(elsewhere, {})
    labelled = who(namespaceSelector={"matchLabels": {"team": "t"}})
    assert labelled.matches(elsewhere, {"other": {"team": "t"}}) and not labelled.matches(elsewhere, {})
    by_name = who(namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "other"}})
    assert by_name.matches(elsewhere, {})


def test_several_terms_of_affinity_mean_pods_that_match_all() -> None:
    both = affinity("podAffinity", term("z", {"a": "1"}), term("h", {"b": "2"}))
    near = pod("a", affinity=both).shape.near
    assert [one.key for one in near] == ["z", "h"]
    assert near[0].who == near[1].who and len(near[0].who.labels) == 2


def test_a_null_selector_selects_nothing() -> None:
    spread = {"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    found = pod("a", topologySpreadConstraints=[spread]).shape.spread[0]
    assert not found.who.matches(pod("b"), {})
