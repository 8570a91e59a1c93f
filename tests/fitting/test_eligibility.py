"""Taints, selectors, node affinity and volumes keep a pod off a node; the fast form agrees with the words."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.fitting.eligibility import admits
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import pod_of
from longboat.fitting.pod_affinity import AffinityView
from longboat.fitting.predicates import amount_refusals, placing_refusals
from tests.fitting.bodies import (
    GPU,
    node,
    node_affinity,
    pod,
    pod_body,
    reason,
    wants,
)


def test_taints_and_cordons() -> None:
    tainted = node("n", taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}])
    assert reason(pod("p"), tainted) == "taint dedicated=x:NoSchedule is not tolerated"
    assert reason(pod("p", tolerations=[{"key": "dedicated", "operator": "Exists"}]), tainted) is None
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned = node("n", unschedulable=True, taints=[cordon])
    assert reason(pod("p"), cordoned) == "the node is cordoned"
    assert reason(pod("p", tolerations=[{"operator": "Exists"}]), cordoned) is None


def test_selectors() -> None:
    shape = node("n", labels={"gpu": "h100", "n": "5"})
    assert reason(pod("p", nodeSelector={"gpu": "h100"}), shape) is None
    assert reason(pod("p", nodeSelector={"gpu": "a100"}), shape) == "nodeSelector wants gpu=a100, the node has gpu=h100"
    assert reason(pod("p", nodeSelector={"x": "y"}), shape) == "nodeSelector wants x=y, the node has no label x"
    either = node_affinity([wants("gpu", "In", "a100")], [wants("n", "Gt", "7")])
    assert reason(pod("p", affinity=either), shape) == "node affinity wants gpu=a100, or n > 7"
    assert reason(pod("p", affinity=node_affinity([wants("n", "Gt", "4")])), shape) is None


def test_reasons_that_no_waiting_cures_come_alone() -> None:
    assert reason(pod("p", {GPU: "8"}, nodeSelector={"x": "y"}), node("n")) == (
        "nodeSelector wants x=y, the node has no label x"
    )


def test_volumes() -> None:
    claims = {("default", "data"): (((("zone", "In", ("a",)),),),)}
    body = pod_body("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    wanted = pod_of(body, claims)
    assert reason(wanted, node("n", labels={"zone": "a"})) is None
    assert (
        reason(wanted, node("n", labels={"zone": "b"})) == "the volume of claim data can only be reached where zone=a"
    )


LABELS = st.dictionaries(st.sampled_from(["a", "b", "n"]), st.sampled_from(["1", "2", "x"]))


TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["t", "u"]),
            "value": st.sampled_from(["", "1"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
        }
    ),
    max_size=2,
)


WANTS = st.builds(
    lambda key, operator, values: wants(key, operator, *(values if operator in ("In", "NotIn") else values[:1])),
    st.sampled_from(["a", "b", "n"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(st.sampled_from(["1", "2", "x"]), min_size=1, max_size=2),
)


TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(["t", "u"]),
            "operator": st.sampled_from(["Exists", "Equal"]),
            "value": st.sampled_from(["", "1"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
        },
    ),
    max_size=2,
)


@given(
    LABELS,
    TAINTS,
    st.booleans(),
    st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]), max_size=1),
    st.none() | st.lists(st.lists(WANTS, max_size=2), min_size=1, max_size=2),
    TOLERATIONS,
)
@settings(max_examples=300, deadline=None)
def test_the_fast_form_agrees_with_the_words(
    labels: Any, taints: Any, cordoned: bool, selector: Any, terms: Any, tolerations: Any
) -> None:
    shape = node("n", labels=labels, taints=taints, unschedulable=cordoned)
    rules = {"nodeSelector": selector, "tolerations": tolerations}
    if terms is not None:
        rules["affinity"] = node_affinity(*terms)
    wanted = pod("p", {"cpu": "1"}, **rules)
    assert admits(wanted.shape.placing, shape) is not bool(placing_refusals(wanted.shape.placing, shape))
    fleet = Fleet([shape])
    assert bool(fleet.eligible(wanted.shape.placing)) is admits(wanted.shape.placing, shape)
    state = fleet.states["n"]
    assert (state.fits(wanted.shape) > 0) is not bool(amount_refusals(wanted, state))
    assert AffinityView(wanted, fleet).allows(state) and not AffinityView(wanted, fleet).refusals(state)
