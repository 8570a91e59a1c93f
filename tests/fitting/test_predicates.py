"""Why a pod does not fit, in words; and the fast forms agree with the words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.fitting.eligibility import admits
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod, pod_of
from longboat.fitting.pod_affinity import AffinityView
from longboat.fitting.predicates import amount_refusals, placing_refusals, why_not
from tests.fitting.bodies import GPU, affinity, node, node_affinity, pod, pod_body, term, wants

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
A, B = {ZONE: "a"}, {ZONE: "b"}


def at(name: str, found: Pod) -> Pod:
    return msgspec.structs.replace(found, node=name)


def reason(wanted: Pod, shape: Any, *others: Pod) -> str | None:
    fleet = Fleet([shape], [at(shape.name, one) for one in others])
    return why_not(wanted, fleet.states[shape.name])


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ({"cpu": "8"}, None),
        ({"cpu": "8001m"}, "needs 8.001 CPUs, 8 free"),
        ({"memory": "33Gi"}, "needs 33Gi of memory, 32Gi free"),
        ({GPU: "8"}, "needs 8 nvidia.com/gpu, 4 free"),
        ({"vpc.amazonaws.com/efa": "1"}, "needs 1 vpc.amazonaws.com/efa, the node has none"),
        ({"vpc.amazonaws.com/efa": "0"}, None),
        ({"cpu": "9", GPU: "5"}, "needs 9 CPUs, 8 free; needs 5 nvidia.com/gpu, 4 free"),
    ],
)
def test_amounts(requests: dict[str, str], words: str | None) -> None:
    assert reason(pod("p", requests), node("n", {GPU: "4"})) == words


def test_what_is_there_counts() -> None:
    shape = node("n", {GPU: "8", "pods": "3"})
    assert reason(pod("p", {GPU: "4"}), shape, pod("o", {GPU: "5"})) == "needs 4 nvidia.com/gpu, 3 free"
    full = reason(pod("p"), shape, pod("a"), pod("b"), pod("c"))
    assert full == "the node has no room for another pod (3 are there)"


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


def test_ports() -> None:
    def serving(name: str, port: int) -> Pod:
        container = {"name": "c", "ports": [{"containerPort": port, "hostPort": port}]}
        return pod(name, containers=[container])

    assert reason(serving("p", 80), node("n"), serving("o", 80)) == "port 80/TCP of the node is taken"
    assert reason(serving("p", 81), node("n"), serving("o", 80)) is None


def test_apart_holds_both_ways() -> None:
    apart = affinity("podAntiAffinity", term(HOST, {"app": "x"}))
    shape = node("n")
    keeper, plain = pod("k", labels={"app": "x"}, affinity=apart), pod("o", labels={"app": "x"})
    assert reason(keeper, shape, plain) == "wants no pod with app=x on the same node, and one is there"
    assert reason(plain, shape, keeper) == "a pod there wants no pod with app=x on the same node"
    assert reason(keeper, shape, pod("o", labels={"app": "y"})) is None
    elsewhere = msgspec.structs.replace(plain, namespace="other")
    assert reason(keeper, shape, elsewhere) is None


def test_apart_by_zone() -> None:
    apart = affinity("podAntiAffinity", term(ZONE, {"app": "x"}))
    fleet = Fleet([node("a1", labels=A), node("a2", labels=A), node("b1", labels=B), node("c")])
    fleet.add(pod("o", labels={"app": "x"}), fleet.states["a1"])
    wanted = pod("p", affinity=apart)
    assert why_not(wanted, fleet.states["a2"]) == "wants no pod with app=x in the same zone, and one is there"
    assert why_not(wanted, fleet.states["b1"]) is None
    assert why_not(wanted, fleet.states["c"]) is None, "a node in no zone is in nobody's zone"


def test_near() -> None:
    near = affinity("podAffinity", term(ZONE, {"app": "x"}))
    fleet = Fleet([node("a1", labels=A), node("b1", labels=B), node("c")])
    wanted = pod("p", affinity=near)
    assert why_not(wanted, fleet.states["a1"]) == "wants a pod with app=x in the same zone, and none is there"
    itself = pod("q", labels={"app": "x"}, affinity=near)
    assert why_not(itself, fleet.states["a1"]) is None, "the first of a kind may start anywhere"
    assert "a label that the node does not have" in (why_not(itself, fleet.states["c"]) or "")
    fleet.add(pod("o", labels={"app": "x"}), fleet.states["b1"])
    assert why_not(wanted, fleet.states["b1"]) is None
    assert why_not(itself, fleet.states["a1"]) is not None


def spread(skew: int = 1, **more: Any) -> list[dict[str, Any]]:
    one = {"topologyKey": ZONE, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"}
    return [{**one, "labelSelector": {"matchLabels": {"app": "x"}}, **more}]


def test_spread() -> None:
    fleet = Fleet([node("a1", labels=A), node("b1", labels=B), node("c")])
    wanted = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread())
    assert why_not(wanted, fleet.states["a1"]) is None
    fleet.add(pod("o", labels={"app": "x"}), fleet.states["a1"])
    assert why_not(wanted, fleet.states["a1"]) == "is to be spread over zones: zone a would be ahead by 2, 1 allowed"
    assert why_not(wanted, fleet.states["b1"]) is None
    assert "a label that the node does not have" in (why_not(wanted, fleet.states["c"]) or "")
    two = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread(2))
    assert why_not(two, fleet.states["a1"]) is None
    many = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread(minDomains=3))
    assert why_not(many, fleet.states["b1"]) is None and why_not(many, fleet.states["a1"]) is not None


def test_spread_counts_only_where_the_pod_may_be() -> None:
    nodes = [node("a1", labels={**A, "pool": "x"}), node("b1", labels=B)]
    fleet = Fleet(nodes, [at("a1", pod("o", labels={"app": "x"}))])
    only = {"nodeSelector": {"pool": "x"}}
    wanted = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread(), **only)
    assert why_not(wanted, fleet.states["a1"]) is None, "zone b does not count: the pod cannot be there"
    ignoring = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread(nodeAffinityPolicy="Ignore"), **only)
    assert why_not(ignoring, fleet.states["a1"]) is not None
    tainted = [node("a1", labels=A), node("b1", labels=B, taints=[{"key": "t", "effect": "NoSchedule"}])]
    fleet = Fleet(tainted, [at("a1", pod("o", labels={"app": "x"}))])
    by_default = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread())
    assert why_not(by_default, fleet.states["a1"]) is not None
    honouring = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread(nodeTaintsPolicy="Honor"))
    assert why_not(honouring, fleet.states["a1"]) is None


def test_terminating_pods_do_not_count_for_the_spread() -> None:
    leaving = msgspec.structs.replace(pod("o", labels={"app": "x"}), is_terminating=True)
    fleet = Fleet([node("a1", labels=A), node("b1", labels=B)], [at("a1", leaving)])
    wanted = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread())
    assert why_not(wanted, fleet.states["a1"]) is None


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
