"""The gate as data: who is let in, who waits and for what, who is put back."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.engines.kubernetes.gate.decide import (
    Admission,
    ClusterUsage,
    GateCandidate,
    Prospect,
    back_off_s,
    decide_gate,
    foresee,
)
from longboat.fitting.backfill import LONGEST_PASSED_S, UpcomingNode
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod
from longboat.fitting.packing import Placement, place
from tests.fitting.bodies import GPU, gang, node, pod

NOW = 1_000_000.0


def run(name: str, count: int = 1, requests: dict[str, str] | None = None, **fields: Any) -> GateCandidate:
    spec = fields.pop("spec", {})
    pods = tuple(gang(count, {GPU: "1"} if requests is None else requests, name="worker", **spec))
    return GateCandidate(run=name, uid=f"uid-{name}", pods=pods, **{"created": NOW, **fields})


def inside(name: str, count: int = 1, requests: dict[str, str] | None = None, **fields: Any) -> GateCandidate:
    """One that was let in a moment ago."""
    return run(name, count, requests, **{"let_in": NOW - 1, **fields})


def bound(name: str, node_name: str, requests: dict[str, str] | None = None, *, holder: str | None = None) -> Pod:
    labels = {"longboat.dev/run": holder} if holder else {}
    return pod(name, {GPU: "1"} if requests is None else requests, labels=labels, nodeName=node_name)


def cluster(*pods: Pod, gpus: int = 2, nodes: int = 1) -> ClusterUsage:
    shapes = tuple(node(f"n{number}", {GPU: str(gpus)}) for number in range(nodes))
    return ClusterUsage(nodes=shapes, pods=pods)


def verdicts(candidates: list[GateCandidate], room: ClusterUsage | None, **more: Any) -> dict[str, Admission]:
    return {one.run: one for one in decide_gate(candidates, room, NOW, **more)}


def actions(candidates: list[GateCandidate], room: ClusterUsage | None, **more: Any) -> dict[str, str]:
    return {name: one.action for name, one in verdicts(candidates, room, **more).items()}


def test_a_run_that_a_budget_holds_back_waits_and_keeps_nobody_waiting() -> None:
    first = run("first", 2, created=NOW - 9, held="held back by the budget of the namespace")
    judged = verdicts([first, run("second", 2)], cluster(gpus=2))
    assert judged["first"].action == "wait" and judged["first"].is_held
    assert judged["first"].reason == "held back by the budget of the namespace"
    assert judged["second"].action == "let_in" and not judged["second"].is_held
    assert actions([first, run("second", 2)], None) == {"first": "wait", "second": "let_in"}
    assert foresee(run("new", 2), [first], cluster(gpus=2), NOW).starts


def test_what_fits_is_let_in_and_counted() -> None:
    found = actions([run("a", 2, created=1.0), run("b", 1, created=2.0)], cluster())
    assert found == {"a": "let_in", "b": "wait"}


def test_a_waiting_run_says_for_what_and_who_has_it() -> None:
    room = cluster(*(bound(f"h{number}", "n0", holder="holder") for number in range(2)))
    assert verdicts([run("waiter")], room)["waiter"].reason == "waits for 1 GPU: 0 free of 2; held by holder"


def test_first_come_first_served() -> None:
    """A small later run does not pass a large earlier one, although it would fit; one without GPUs does."""
    room = cluster(bound("f", "n0", holder="first"))
    large, small = run("large", 1, {GPU: "2"}, created=1.0), run("small", created=2.0)
    found = verdicts([small, run("none", 2, {"cpu": "1"}, created=3.0), large], room)
    assert {name: one.action for name, one in found.items()} == {"large": "wait", "small": "wait", "none": "let_in"}
    assert found["large"].reason == "waits for 2 GPUs: 1 free of 2; held by first"
    assert found["small"].reason == "waits: would delay large; 1 run before it (large)"
    later = verdicts([small, large], cluster())
    assert (later["large"].action, later["small"].action) == ("let_in", "wait")
    assert later["small"].reason == "waits for 1 GPU: 0 free of 2; held by large"


def test_a_run_that_delays_nobody_goes_first_and_says_so() -> None:
    """Machines for the large one are on their way: what is idle meanwhile is for others."""
    large, small = run("large", 1, {GPU: "8"}, created=NOW - 60), run("small", created=NOW - 30)
    held = [bound(f"h{number}", f"n{number}", {GPU: "5"}, holder="h") for number in range(2)]
    room = cluster(*held, gpus=8, nodes=2)
    found = verdicts([large, small], room)
    assert found["small"].action == "let_in", "the large one keeps one node free, not both"
    assert found["small"].reason == "may start before large: it will not delay it"
    tight = cluster(held[0], gpus=8)
    assert verdicts([large, small], tight)["small"].reason == "waits: would delay large; 1 run before it (large)"
    machine = UpcomingNode(shape=node("m", {GPU: "8"}), ready=NOW + 200)
    coming = msgspec.structs.replace(tight, upcoming=(machine,))
    assert verdicts([large, small], coming)["small"].action == "let_in"
    ordered = msgspec.structs.replace(cluster(gpus=8), upcoming=(machine,))
    pair = run("pair", 2, {GPU: "8"}, created=NOW - 60)
    assert actions([pair, small], ordered) == {"pair": "wait", "small": "wait"}, "its first machine is kept for it"
    brief = msgspec.structs.replace(small, lasts_s=150.0)
    assert actions([pair, brief], ordered) == {"pair": "wait", "small": "let_in"}, "ends before the second one comes"


def test_a_machine_that_has_joined_and_still_boots_is_waited_for() -> None:
    large, small = run("large", 1, {GPU: "8"}, created=NOW - 60), run("small", created=NOW - 30)
    here = cluster(bound("h", "n0", {GPU: "5"}, holder="h"), gpus=8)
    machine = UpcomingNode(shape=node("m", {GPU: "8"}), ready=NOW + 30)
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    for joined in (node("m", {GPU: "8"}, taints=[taint]), node("m")):
        room = msgspec.structs.replace(here, nodes=(*here.nodes, joined), upcoming=(machine,))
        assert actions([large, small], room) == {"large": "wait", "small": "let_in"}
    ready = msgspec.structs.replace(here, nodes=(*here.nodes, node("m", {GPU: "8"})), upcoming=(machine,))
    assert actions([large, small], ready) == {"large": "let_in", "small": "let_in"}


def test_known_ends_of_running_runs_make_room_for_reservations() -> None:
    held = [bound(f"h{number}", f"n{number}", {GPU: "5"}, holder=f"r{number}") for number in range(2)]
    running = [
        inside(f"r{number}", 1, {GPU: "5"}, placed=("worker-0",), made=1, ready=1, lasts_s=lasts)
        for number, lasts in enumerate((None, 500.0))
    ]
    room = cluster(*held, gpus=8, nodes=2)
    large = run("large", 1, {GPU: "8"}, created=NOW - 60)
    small, brief = run("small", 1, {GPU: "3"}), run("brief", 1, {GPU: "3"}, lasts_s=400.0, created=NOW + 1)
    assert actions([*running, large, brief], room)["brief"] == "let_in"
    both = verdicts([*running, large, small, brief], room)
    assert (both["small"].action, both["brief"].action) == ("let_in", "let_in"), "on n0, and on n1 until r1 ends"
    late = msgspec.structs.replace(brief, lasts_s=600.0)
    assert verdicts([*running, large, small, late], room)["brief"].reason.startswith("waits: would delay large")


def test_nobody_passes_a_run_that_has_waited_for_hours() -> None:
    held = [bound(f"h{number}", f"n{number}", {GPU: "5"}, holder="h") for number in range(2)]
    room = cluster(*held, gpus=8, nodes=2)
    old = run("old", 1, {GPU: "8"}, created=NOW - LONGEST_PASSED_S)
    found = verdicts([old, run("small"), run("none", 1, {"cpu": "1"})], room)
    assert {name: one.action for name, one in found.items()} == {"old": "wait", "none": "let_in", "small": "wait"}
    assert found["small"].reason == "waits: would delay old; 1 run before it (old)"


def test_priority_then_creation_then_name() -> None:
    ones = [run("b"), run("a"), run("late", created=NOW + 1, priority=5), run("old", created=1.0)]
    assert list(verdicts(ones, cluster(gpus=4))) == ["late", "old", "a", "b"]
    assert actions(ones, cluster(gpus=1)) == {"late": "let_in", "old": "wait", "a": "wait", "b": "wait"}


def test_cpus_and_memory_are_waited_for_too() -> None:
    room = cluster(bound("w", "n0", {"cpu": "6", "memory": "30Gi"}, holder="wide"))
    narrow = run("narrow", 1, {"cpu": "6"})
    assert verdicts([narrow], room)["narrow"].reason == "waits for 6 CPUs: 2 free of 8; held by wide"
    both = verdicts([run("both", 2, {"cpu": "3", "memory": "4Gi"})], room)["both"].reason
    assert both == "waits for 8Gi of memory (2 x 4Gi): 2Gi free of 32Gi and 6 CPUs (2 x 3): 2 free of 8; held by wide"
    assert actions([narrow, run("unstated", 1, {}, created=NOW + 1)], room)["unstated"] == "let_in"


def test_runs_on_other_nodes_do_not_wait_for_each_other() -> None:
    shapes = (node("h", {GPU: "8"}, labels={"gpu": "h100"}), node("a", {GPU: "8"}, labels={"gpu": "a100"}))
    room = ClusterUsage(nodes=shapes, pods=(bound("x", "h", {GPU: "8"}, holder="x"),))
    first = run("first", created=NOW - 9, spec={"nodeSelector": {"gpu": "h100"}})
    second = run("second", created=NOW - 8, spec={"nodeSelector": {"gpu": "a100"}})
    anywhere = run("anywhere", created=NOW - 7)
    found = verdicts([first, second, anywhere], room)
    assert [one.action for one in found.values()] == ["wait", "let_in", "let_in"]
    assert found["first"].reason == "waits for 1 GPU: 0 free of 8; held by x"
    assert found["second"].reason == "", "it asks for other nodes"
    assert found["anywhere"].reason == "may start before first: it will not delay it"


def test_fragmented_gpus_are_named_in_the_reason() -> None:
    room = cluster(*(bound(f"x{number}", f"n{number}", {GPU: "4"}) for number in range(2)), gpus=8, nodes=2)
    found = verdicts([run("whole", 1, {GPU: "8"})], room)["whole"]
    assert found.reason == (
        "waits for 8 GPUs: 8 free of 16, at most 4 on one node; held by the pod default/x0, the pod default/x1"
    )


def test_what_was_let_in_counts_although_its_pods_are_not_there_yet() -> None:
    """The heart of it: two gangs of 5 on 8 GPUs are never both in."""
    first, second = inside("first", 5), run("second", 5)
    found = verdicts([first, second], cluster(gpus=8))
    assert (found["first"].action, found["second"].action) == ("keep", "wait")
    assert found["first"].reason == "its pods are being made"
    assert found["second"].reason == "waits for 5 GPUs (5 x 1): 3 free of 8; held by first"
    some = msgspec.structs.replace(first, placed=("worker-0", "worker-3"), made=5)
    room = cluster(*(bound(f"p{number}", "n0", holder="first") for number in range(2)), gpus=8)
    found = verdicts([some, second], room)
    assert found["first"].reason == "2 of 5 pods have a node"
    assert found["second"].reason == "waits for 5 GPUs (5 x 1): 3 free of 8; held by first"


def test_pods_of_others_that_are_about_to_be_placed_count() -> None:
    coming = pod("coming", {GPU: "2"})
    assert actions([run("a")], cluster(coming)) == {"a": "wait"}
    for change in ({"is_unschedulable": True}, {"is_gated": True}, {"is_terminating": True}):
        assert actions([run("a")], cluster(msgspec.structs.replace(coming, **change))) == {"a": "let_in"}


def test_a_run_too_large_for_the_cluster_stops_nobody() -> None:
    daemon = msgspec.structs.replace(pod("d", {"cpu": "1"}, nodeName="n0"), owner="DaemonSet")
    huge = run("huge", 3, created=1.0)
    whole = run("whole", 1, {"cpu": "8"}, created=2.0)
    misfit = run("misfit", created=3.0, spec={"nodeSelector": {"no": "such"}})
    found = verdicts([huge, whole, misfit, run("small", 2, {GPU: "1", "cpu": "1"}, created=4.0)], cluster(daemon))
    assert [one.action for one in found.values()] == ["wait", "wait", "wait", "let_in"]
    more = "would be free with nothing else on these nodes"
    assert found["huge"].reason == f"waits for 3 GPUs (3 x 1): 2 of 2 {more}"
    assert found["whole"].reason == f"waits for 8 CPUs: 7 of 8 {more}"
    assert found["misfit"].reason == "no node takes it: 1 node: nodeSelector wants no=such, the node has no label no"


def test_a_retry_keeps_its_place_and_what_it_had() -> None:
    retried = run("retried", created=5.0, is_recovering=True, not_before=NOW + 3)
    urgent, earlier = run("urgent", priority=9), run("earlier", created=1.0)
    found = verdicts([urgent, earlier, retried], cluster(gpus=1))
    assert [one.action for one in found.values()] == ["wait", "wait", "wait"]
    assert found["retried"].reason == "its next attempt starts in 3 s"
    assert found["urgent"].reason == "waits for 1 GPU: 0 free of 1; held by retried"
    now = msgspec.structs.replace(retried, not_before=0.0)
    assert actions([urgent, earlier, now], cluster(gpus=1)) == {
        "urgent": "wait",
        "retried": "let_in",
        "earlier": "wait",
    }


def test_a_retry_that_lost_its_place_is_first_of_its_priority() -> None:
    room = cluster(bound("x", "n0", {GPU: "2"}))
    retried = run("retried", created=5.0, is_recovering=True)
    assert list(verdicts([run("earlier", created=1.0), retried, run("urgent", priority=1)], room)) == [
        "urgent",
        "retried",
        "earlier",
    ]


LATE = {"let_in": NOW - 300.0}


@pytest.mark.parametrize(
    ("fields", "action"),
    [
        ({**LATE, "made": 5, "unschedulable": 1, "ready": 4}, "put_back"),
        ({**LATE, "made": 3, "ready": 3, "not_made": 2}, "put_back"),  # a quota keeps the rest from being made
        ({**LATE, "made": 4, "ready": 4}, "keep"),  # one has ended already
        ({**LATE, "made": 5, "unschedulable": 0, "ready": 0}, "keep"),  # images are being pulled
        ({**LATE, "made": 5, "ready": 5}, "keep"),
        ({"let_in": NOW - 299.0, "made": 5, "unschedulable": 5}, "keep"),
    ],
)
def test_put_back_only_when_late_and_without_all_pods(fields: dict[str, Any], action: str) -> None:
    for room in (cluster(gpus=8), None):
        assert actions([run("a", 5, **fields)], room) == {"a": action}


def test_what_put_back_says() -> None:
    late = run("a", 5, **LATE, made=5, unschedulable=2, ready=3, tries=1)
    found = verdicts([late], cluster(gpus=8))["a"]
    delay = back_off_s("uid-a", 2)
    assert (found.tries, found.not_before) == (2, NOW + delay)
    assert found.reason == f"re-queued: 2 of 5 pods found no node within 300 s; tries again in {delay:.0f} s"
    again = run("a", 5, tries=2, not_before=found.not_before)
    waits = verdicts([again, run("b", created=NOW + 1)], cluster(gpus=8))
    assert waits["a"].action == "wait" and waits["b"].action == "let_in", "who pauses keeps nobody waiting"
    assert waits["a"].reason == f"was re-queued because not all its pods found a node; tries again in {delay:.0f} s"


def test_the_pause_doubles_and_differs_from_run_to_run() -> None:
    for tries, least in ((1, 30), (2, 60), (3, 120), (5, 480), (6, 600), (99, 600)):
        assert least <= back_off_s("x", tries) <= least * 1.25
    assert back_off_s("x", 3) == back_off_s("x", 3)
    assert len({back_off_s(f"uid-{number}", 1) for number in range(20)}) == 20


def test_who_may_not_see_the_nodes_lets_in_one_at_a_time() -> None:
    a, b, c = run("a", created=1.0), run("b", created=2.0), run("c", created=0.5, not_before=NOW + 9, tries=1)
    found = verdicts([a, b, c], None)
    assert {name: one.action for name, one in found.items()} == {"c": "wait", "a": "let_in", "b": "wait"}
    assert found["b"].reason == "waits until all pods of a have a node"
    half = inside("a", 2, placed=("worker-0",), made=2)
    assert actions([half, b], None)["b"] == "wait"
    assert actions([inside("a", 1, placed=("worker-0",), made=1), b], None)["b"] == "let_in"


def test_who_may_not_see_the_nodes_is_not_held_up_by_a_gang_that_finds_no_node() -> None:
    stuck = inside("stuck", 2, let_in=NOW - 31, placed=("worker-0",), made=2, unschedulable=1)
    found = actions([stuck, run("b")], None)
    assert found == {"stuck": "put_back", "b": "let_in"}
    assert actions([stuck], None) == {"stuck": "keep"}, "where nobody waits, it may hope for longer"
    assert actions([stuck, run("b", not_before=NOW + 1)], None)["stuck"] == "keep"
    assert actions([stuck, run("b")], cluster(gpus=8))["stuck"] == "keep", "where nodes are seen, others pass it anyway"


def test_who_was_put_back_comes_after_those_who_were_not_where_nodes_may_not_be_seen() -> None:
    stuck = run("stuck", priority=9, tries=3, created=1.0)
    assert actions([stuck, run("b")], None) == {"stuck": "wait", "b": "let_in"}


def test_runs_of_one_name_in_two_namespaces_are_two() -> None:
    ones = [run("a", namespace="x"), run("a", namespace="y", created=NOW + 1)]
    found = decide_gate(ones, cluster(gpus=1), NOW)
    assert [(one.namespace, one.action) for one in found] == [("x", "let_in"), ("y", "wait")]
    assert found[1].reason == "waits for 1 GPU: 0 free of 1; held by runs of other namespaces", "no names of others"


def test_who_is_before_it_in_another_namespace_is_counted_and_not_named() -> None:
    holder = bound("p", "n0", holder="holder")
    ones = [run("first", 2, namespace="x"), run("second", namespace="y", created=NOW + 1)]
    ones += [run("third", namespace="y", created=NOW + 2)]
    reasons = {one.run: one.reason for one in decide_gate(ones, cluster(holder, gpus=2), NOW)}
    assert reasons["second"] == "waits: would delay a run of another namespace; 1 run before it"
    assert reasons["third"].endswith("2 runs before it (second, ...)")


SIZES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=10)


@given(SIZES, st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_whoever_is_let_in_fits_and_order_is_kept(
    sizes: list[tuple[int, int, int]], nodes: int, chance: random.Random
) -> None:
    room = cluster(gpus=4, nodes=nodes)
    ones = [
        run(f"r{number}", count, {GPU: str(gpus)} if gpus else {"cpu": "1"}, priority=priority, created=float(number))
        for number, (count, gpus, priority) in enumerate(sizes)
    ]
    found = decide_gate(ones, room, NOW)
    shuffled = list(ones)
    chance.shuffle(shuffled)
    assert decide_gate(shuffled, room, NOW) == found
    by_name = {one.run: one for one in ones}
    fleet, empty = Fleet(room.nodes), Fleet(room.nodes)
    let_in = [by_name[one.run] for one in found if one.action == "let_in"]
    together = [
        msgspec.structs.replace(member, name=f"{one.run}/{member.name}") for one in let_in for member in one.pods
    ]
    sums: dict[str, int] = {}
    for member in together:
        for resource, count in member.shape.requests:
            sums[resource] = sums.get(resource, 0) + count
    assert all(count <= fleet.totals().get(resource, 0) for resource, count in sums.items())
    blocked: set[str] = set()
    for verdict in found:
        one = by_name[verdict.run]
        asks = {resource for member in one.pods for resource, _ in member.shape.requests}
        could = isinstance(place(one.pods, empty), Placement)
        if verdict.action == "let_in":
            assert could and (not asks & blocked or verdict.reason.startswith("may start before"))
        else:
            assert verdict.reason.startswith("waits")
            blocked = blocked or (asks if could else set())  # the first who waits: those behind it keep nothing yet


def test_a_large_cluster_and_many_waiting_runs_are_judged_once_per_kind() -> None:
    room = cluster(*(bound(f"p{number}", f"n{number}", {GPU: "8"}) for number in range(300)), gpus=8, nodes=300)
    found = verdicts([run(f"r{number}", 2, {GPU: "4"}, created=float(number)) for number in range(400)], room)
    assert {one.action for one in found.values()} == {"wait"}
    assert found["r399"].reason.endswith("399 runs before it (r0, r1, r2, r3, ...)")


def test_what_a_run_that_is_not_there_yet_would_hear() -> None:
    """`foresee` answers for one more run, behind those that wait, and changes nothing for them."""
    holder = inside("holder", 2, created=1.0, let_in=NOW - 60, lasts_s=600.0, placed=("worker-0", "worker-1"))
    full = cluster(*(bound(f"holder-{number}", "n0", holder="holder") for number in range(2)))
    ours = run("?", created=NOW)
    assert foresee(ours, [], cluster(), NOW) == Prospect(starts=True)

    prospect = foresee(ours, [holder], full, NOW)
    assert (prospect.starts, prospect.is_possible, prospect.start) == (False, True, NOW - 60 + 600.0)
    assert prospect.reason == "waits for 1 GPU: 0 free of 2; held by holder"

    endless = msgspec.structs.replace(holder, lasts_s=None)
    assert foresee(ours, [endless], full, NOW).start is None
    queued = foresee(ours, [holder, run("first", 2, created=2.0, lasts_s=60.0)], full, NOW)
    assert (queued.start, queued.reason) == (None, "waits: would delay first; 1 run before it (first)")

    never = foresee(run("?", 1, {GPU: "4"}), [], cluster(), NOW)
    assert (never.starts, never.is_possible) == (False, False)
    coming = UpcomingNode(shape=node("new", {GPU: "4"}), ready=NOW + 90.0)
    soon = foresee(run("?", 1, {GPU: "4"}), [], msgspec.structs.replace(cluster(), upcoming=(coming,)), NOW)
    assert (soon.is_possible, soon.start) == (True, NOW + 90.0)
