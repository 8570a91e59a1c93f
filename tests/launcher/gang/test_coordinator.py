"""What node 0 decides, as data: events in, orders and a verdict out; and the same verdict as the embedded engine's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.core.runs import RankReport
from longboat.engines.local.supervise.attempt_outcome import AttemptEnd, NodeOutcome, judge, stop_code
from longboat.launcher.gang.coordinator import Coordinator
from longboat.launcher.gang.messages import from_leader

NODES = ["worker-0", "worker-1", "worker-2"]


def coordinator(nodes: list[str] | None = None, deciding: list[str] | None = None) -> Coordinator:
    nodes = nodes or NODES
    court = Coordinator(nodes, nodes if deciding is None else deciding, 30.0)
    for node in nodes:
        court.heard(node, 0.0)
    return court


def report(rank: int, code: int = 1, *, by: str | None = None, **keys: Any) -> dict[str, Any]:
    cause = "exit" if code and by is None else None
    return {"rank": rank, "node": f"worker-{rank}", "exit_code": code, "ended_by": by, "cause": cause, **keys}


def outcome(code: int = 0, *, by: str | None = None, cause: str | None = None, **keys: Any) -> dict[str, Any]:
    return {"exit_code": code, "ended_by": by, "cause": cause, "message": keys.pop("message", ""), **keys}


def reasons(orders: list[Any]) -> dict[str, str]:
    return {node: order.get("reason", order["do"]) for node, order in orders}


def test_go_when_the_last_is_ready() -> None:
    court = coordinator()
    assert court.ready("worker-2", "x") == [] and court.ready("worker-0", "x") == []
    assert court.missing() == ["worker-1"]
    orders = court.ready("worker-1", "/ckpt")
    assert orders == [(node, {"do": "go", "resume_from": "/ckpt"}) for node in NODES]
    assert court.ready("worker-1", "/ckpt") == []


def test_no_node_starts_its_ranks_after_a_failed_setup() -> None:
    court = coordinator()
    court.ready("worker-0", None)
    assert reasons(court.ended("worker-1", outcome(5, cause="setup"), 1.0)) == dict.fromkeys(
        ("worker-0", "worker-2"), "failure"
    )
    court.ready("worker-1", None)
    assert court.ready("worker-2", None) == []


def test_only_the_first_reason_counts() -> None:
    court = coordinator()
    assert reasons(court.report("worker-1", report(1, 7), 1.0)) == {"worker-0": "failure", "worker-2": "failure"}
    for orders in (
        court.report("worker-0", report(0, 8), 1.1),
        court.timeout(1.2),
        court.evicted("worker-2", 1.3),
        court.stalled(0, 5.0, 1.4),
        court.ended("worker-1", outcome(7, by="failure", cause="exit"), 1.5),
    ):
        assert orders == []
    assert (court.verdict()["exit_code"], court.verdict()["node"]) == (7, "worker-1")


def test_a_stop_may_only_hasten() -> None:
    court = coordinator()
    assert {order["grace_s"] for _, order in court.stop(None, 1.0)} == {30.0}
    again = court.stop(0.0, 2.0)
    assert [order["grace_s"] for _, order in again] == [0.0, 0.0, 0.0] and court.reason == "stop"
    court.ended("worker-1", outcome(0, by="stop"), 3.0)
    assert [node for node, _ in court.stop(0.0, 4.0)] == ["worker-0", "worker-2"]


def test_who_follows_checkpoints_is_told_which_is_the_last() -> None:
    court = coordinator(["worker-0", "worker-1", "eval-0"], ["worker-0", "worker-1"])
    assert court.ended("worker-0", outcome(), 1.0, 40) == []
    ((node, order),) = court.ended("worker-1", outcome(), 2.0, None)
    assert (node, order["reason"], order["newest"]) == ("eval-0", "success", 40)


def test_success_of_the_deciding_ends_the_others() -> None:
    court = coordinator(["ps-0", "worker-0"], ["worker-0"])
    assert reasons(court.ended("worker-0", outcome(), 1.0)) == {"ps-0": "success"}
    assert not court.is_over
    court.ended("ps-0", outcome(0, by="success"), 2.0)
    assert court.is_over and court.verdict()["cause"] is None and court.verdict()["exit_code"] == 0


def test_a_node_that_ends_early_ends_nobody() -> None:
    court = coordinator(deciding=["worker-0"])
    assert court.ended("worker-1", outcome(), 1.0) == []
    assert court.reason is None and not court.is_over


def test_the_report_of_a_later_arrival_never_wins_across_nodes() -> None:
    """Times of different machines say nothing: the report that came second claims to be older."""
    court = coordinator()
    court.report("worker-2", report(2, 7, ended_ns=10**15), 1.0)
    court.report("worker-1", report(1, 8, ended_ns=5), 1.001)
    assert court.verdict()["exit_code"] == 7


def test_within_a_node_its_clock_counts() -> None:
    court = coordinator()
    court.report("worker-1", report(1, 7, ended_ns=20), 1.0)
    court.report("worker-1", {**report(2, 8, ended_ns=10), "node": "worker-1"}, 1.5)
    assert court.verdict()["exit_code"] == 8


def test_lost() -> None:
    court = coordinator()
    assert reasons(court.lost("worker-1", 5.0, "silent", 35.0)) == {"worker-0": "failure", "worker-2": "failure"}
    assert (court.verdict()["cause"], court.verdict()["exit_code"]) == ("lost", 208)
    assert court.verdict()["message"] == "node worker-1: silent" and court.verdict()["node"] == "worker-1"


def test_victims_of_a_lost_node() -> None:
    """A rank failed shortly before, or after, the last word of the lost node: it is not the culprit."""
    for failed, heard, culprit in ((10.0, 9.0, "lost"), (10.0, 11.5, "lost"), (10.0, 12.5, "exit")):
        court = coordinator()
        court.report("worker-2", report(2, 7), failed)
        court.lost("worker-1", heard, "silent", 45.0)
        assert court.verdict()["cause"] == culprit
    court = coordinator()  # its own rank had failed before its launcher went
    court.report("worker-1", report(1, 7), 10.0)
    court.lost("worker-1", 10.5, "silent", 45.0)
    assert court.verdict()["exit_code"] == 7


def test_a_node_lost_while_the_gang_ends_is_not_why() -> None:
    court = coordinator()
    court.stop(None, 1.0)
    court.lost("worker-1", 1.5, "silent", 31.0)
    for node in ("worker-0", "worker-2"):
        court.ended(node, outcome(0, by="stop"), 2.0)
    assert court.is_over and court.verdict()["cause"] is None


def test_missing_peers_are_named() -> None:
    court = Coordinator(NODES, NODES, 30.0)
    court.heard("worker-0", 0.0)
    orders = court.peers_missing(600.0, 600.0)
    assert set(reasons(orders).values()) == {"failure"}
    verdict = court.verdict()
    assert (verdict["cause"], verdict["exit_code"]) == ("peers", 209)
    assert verdict["message"] == "2 of 3 nodes did not come within 600 s: worker-1, worker-2"
    court.ended("worker-0", outcome(209, cause="peers"), 601.0)
    assert court.is_over


def test_eviction() -> None:
    court = coordinator()
    assert reasons(court.evicted("worker-1", 1.0)) == {"worker-0": "evicted", "worker-2": "evicted"}
    court.report("worker-0", report(0, 1), 1.5)
    verdict = court.verdict()
    assert (verdict["cause"], verdict["exit_code"], verdict["node"]) == ("preemption", 208, "worker-1")


def stack(function: str) -> str:
    return f'Current thread 0x1 (most recent call first):\n  File "/x/train.py", line 3 in {function}\n'


def test_all_that_run_are_asked_for_a_checkpoint() -> None:
    court = Coordinator(NODES, NODES, 30.0)
    assert court.save() == [], "no rank has started"
    for node in NODES:
        court.ready(node, None)
    court.ended("worker-2", outcome(0), 1.0)
    assert court.save() == [("worker-0", {"do": "save"}), ("worker-1", {"do": "save"})]
    court.stop(None, 2.0)
    assert court.save() == [], "they are asked already, by the stop"


def test_hang() -> None:
    court = coordinator()
    assert reasons(court.stalled(0, 61.0, 1.0)) == dict.fromkeys(NODES, "dump")
    court.stalled(1, 62.0, 1.5)
    for rank, function in enumerate(("all_reduce", "load", "all_reduce")):
        court.report(f"worker-{rank}", report(rank, 134, by="hang"), 2.0)
        court.report(f"worker-{rank}", report(rank, 134, by="hang", stacks=stack(function)), 2.5)
        court.ended(f"worker-{rank}", outcome(210, by="hang", cause="hang"), 3.0)
    verdict = court.verdict()
    assert (verdict["cause"], verdict["exit_code"], verdict["first"]["rank"]) == ("hang", 210, 1)
    assert "rank 1 made no progress for 62 s; odd one out: rank 1 in load (train.py:3)" in verdict["message"]


def test_setup_and_data_have_longboat_s_own_code() -> None:
    for cause in ("setup", "data"):
        court = coordinator()
        court.ended("worker-2", outcome(4, cause=cause, message="x", tail=["last"]), 1.0)
        court.ended("worker-0", outcome(0, by="failure"), 2.0)
        court.ended("worker-1", outcome(0, by="failure"), 2.0)
        verdict = court.verdict()
        assert (verdict["cause"], verdict["exit_code"], verdict["message"]) == (cause, 209, "node worker-2: x")
        assert verdict["tail"] == ["last"]


# the same as on this machine


class Story:
    """What happened, told to both engines: on this machine with one clock, over the line in the order of arrival."""

    def __init__(self, draw: st.DrawFn) -> None:
        count = draw(st.integers(1, 4))
        self.nodes = [f"worker-{n}" for n in range(count)]
        self.deciding = self.nodes[: draw(st.integers(1, count))]
        self.reason: str | None = draw(st.sampled_from([None, None, "stop", "timeout"]))
        self.reports: list[dict[str, Any]] = []
        self.outcomes: dict[str, dict[str, Any]] = {}
        for rank, node in enumerate(draw(st.permutations(self.nodes))):
            self._node(draw, node, rank)

    def _node(self, draw: st.DrawFn, node: str, place: int) -> None:
        kind = draw(st.sampled_from(["well", "failed", "told", "setup"]))
        rank, at = int(node[-1]), (place + 1) * 10_000_000_000
        ended_by = self.reason or "failure"
        if kind == "well":
            self.reports.append({**report(rank, 0), "ended_ns": at})
            self.outcomes[node] = outcome(0, ended_ns=at)
        elif kind == "failed" and self.reason is None:
            self.reports.append({**report(rank, draw(st.integers(1, 250)), message="own"), "ended_ns": at})
            code = self.reports[-1]["exit_code"]
            self.outcomes[node] = outcome(code, by="failure", cause="exit", message="own", ended_ns=at)
        elif kind == "setup" and self.reason is None:
            self.outcomes[node] = outcome(draw(st.integers(1, 250)), cause="setup", message="bad", ended_ns=at)
        else:
            code = draw(st.sampled_from([0, 143, 3]))
            self.reports.append({**report(rank, code, by=ended_by), "ended_ns": at})
            self.outcomes[node] = outcome(code, by=ended_by, ended_ns=at)

    def over_the_line(self) -> dict[str, Any]:
        court = coordinator(self.nodes, self.deciding)
        if self.reason == "stop":
            court.stop(None, 0.5)
        if self.reason == "timeout":
            court.timeout(0.5)
        for node, ended in self.outcomes.items():
            now = ended["ended_ns"] / 1e9
            for each in self.reports:
                if each["node"] == node:
                    court.report(node, each, now)
            court.ended(node, {**ended, "arrival": now}, now)
        self.found_reason = court.reason
        return court.verdict()

    def on_this_machine(self) -> AttemptEnd:
        return AttemptEnd(
            outcomes={
                node: NodeOutcome(**{k: v for k, v in ended.items() if k != "arrival"})
                for node, ended in self.outcomes.items()
            },
            reports=[RankReport(**each) for each in self.reports],
            nodes=self.nodes,
            deciding=self.deciding,
            reason=self.found_reason,
        )


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_same_verdict_as_the_embedded_engine(data: st.DataObject) -> None:
    story = Story(data.draw)
    verdict = story.over_the_line()
    ending = story.on_this_machine()
    failure = judge(ending)
    if failure is None:
        assert verdict["cause"] is None
        assert verdict["exit_code"] == (stop_code(ending) if ending.reason == "stop" else 0)
    else:
        assert (verdict["cause"], verdict["exit_code"]) == (failure.cause, failure.exit_code)
        assert verdict["message"] == failure.message or failure.cause == "lost"
        assert (verdict["first"] or {}).get("rank") == (failure.rank.rank if failure.rank else None)


RULE = {"count": 2, "on": [], "backoff_s": 1.0, "within_s": 10.0}


def failed(*, has_gone: bool = True, **more: Any) -> Coordinator:
    """A gang of two whose rank 1 has failed, and that has ended."""
    gang = coordinator(["a-0", "a-1"])
    for node in ("a-0", "a-1"):
        gang.heard(node, 0.0)
        if has_gone:
            gang.ready(node, None)
    gang.report("a-1", report(1, 5), 1.0)
    gang.ended("a-1", outcome(5, cause="exit", stays=True, arrival=1.5), 1.5)
    gang.ended("a-0", outcome(143, by="failure", **{"stays": True, "arrival": 2.0, **more}), 2.0)
    return gang


def test_a_failure_of_ranks_is_restarted_in_place_by_the_job_s_retries() -> None:
    gang = failed()
    order = gang.restart(RULE, 1, gang.verdict())
    assert order is not None and (order["attempt"], order["delay_s"]) == (2, 2.0)
    assert (order["ended"]["exit_code"], order["ended"]["rank"]) == (5, 1)
    assert from_leader(order) == order
    for rule in (None, {**RULE, "count": 1}, {**RULE, "on": ["oom"]}, {**RULE, "backoff_s": 6.0}):
        assert gang.restart(rule, 1, gang.verdict()) is None


def test_what_is_not_restarted_in_place() -> None:
    """A member that cannot stay, ranks that never started, a stop, a lost node, node 0 that was taken away."""
    others = [failed(stays=False), failed(has_gone=False)]
    for event in ("stop", "evicted", "lost"):
        gang = coordinator(["a-0", "a-1"])
        for node in ("a-0", "a-1"):
            gang.heard(node, 0.0)
            gang.ready(node, None)
        if event == "stop":
            gang.stop(None, 1.0)
        elif event == "evicted":
            gang.evicted("a-0", 1.0)
        else:
            gang.lost("a-1", 0.5, "silent", 1.0)
        gang.ended("a-0", outcome(143, by="failure", stays=event != "evicted", arrival=2.0), 2.0)
        others.append(gang)
    assert [gang.restart(RULE, 0, gang.verdict()) for gang in others] == [None] * 5


@pytest.mark.parametrize("event", ["evicted", "replaced"])
def test_a_member_whose_pod_is_made_anew_is_waited_for(event: str) -> None:
    gang = coordinator(["a-0", "a-1", "a-2"])
    for node in gang.members:
        gang.heard(node, 0.0)
        gang.ready(node, None)
    if event == "evicted":
        gang.evicted("a-1", 1.0)
        gang.ended("a-1", outcome(208, cause="preemption", stays=False, arrival=2.0), 2.0)
    else:
        gang.replaced("a-1", 0.5, "a second one", 1.0)
    gang.ended("a-0", outcome(143, by=event, stays=True, arrival=2.0), 2.0)
    assert not gang.is_over
    gang.ended("a-2", outcome(143, by=event, stays=True, arrival=3.0), 3.0)
    assert gang.is_over
    order = gang.restart(RULE, 0, gang.verdict())
    assert order is not None and (order["attempt"], order["replaced"]) == (1, ["a-1"])
    assert order["ended"]["cause"] == ("preemption" if event == "evicted" else "lost")
    assert from_leader(order) == order
    assert gang.restart(RULE, 2, gang.verdict()) is None, "it costs a retry"


def test_before_the_ranks_start_another_launcher_takes_a_place_at_once() -> None:
    gang = coordinator(["a-0", "a-1"])
    for node in gang.members:
        gang.heard(node, 0.0)
    gang.ready("a-1", None)
    assert gang.came_anew("a-1") and gang.unheard() == ["a-1"]
    gang.ready("a-0", None)
    assert gang.missing() == ["a-1"], "it is waited for"
    gang.heard("a-1", 1.0)
    gang.ready("a-1", None)
    assert gang.has_gone and not gang.came_anew("a-1")
