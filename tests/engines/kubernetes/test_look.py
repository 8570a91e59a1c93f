"""Looking without acting: the state that turns would write, and when it is worth looking again."""

from __future__ import annotations

import msgspec

from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.gate.decide import GateCandidate, decide_gate
from longboat.engines.kubernetes.gate.waiting_runs import created_within
from longboat.engines.kubernetes.reconcile.outlook import AGAIN_S, predicted
from longboat.engines.kubernetes.records import Gate, State
from longboat.engines.shared.home import current_user
from longboat.fitting.model.pods import pod_of
from tests.engines.kubernetes.run_samples import (
    NOW,
    ended,
    opened,
    record,
    retried,
    running,
    snapshot,
    verdict,
    workload,
)


def test_an_end_that_nobody_wrote_down_is_shown() -> None:
    seen = predicted(snapshot(ended(0, gang=verdict()), ended(1)), NOW)
    assert (seen.snapshot.state.phase, seen.snapshot.state.exit_code) == ("succeeded", 0)


def test_a_retry_that_is_due_is_shown_and_looked_for_again() -> None:
    over = [ended(0, 3, gang=verdict(3, "exit")), ended(1, 3)]
    seen = predicted(snapshot(*over, job_=retried()), NOW)
    assert (seen.snapshot.state.phase, seen.snapshot.state.attempt) == ("recovering", 1)
    later = predicted(seen.snapshot, NOW + 3600)
    assert later.snapshot.state == seen.snapshot.state and later.again_at == NOW + 3600 + AGAIN_S


def test_a_run_that_waits_is_not_looked_at_without_a_pause() -> None:
    held = msgspec.structs.replace(record(), gated_by="longboat")
    state = State(attempts=(opened(),), gate=Gate(reason="waits for a node"), reason="waits for a node")
    seen = predicted(snapshot(record=held, state=state, workloads=(workload(is_suspended=True),)), NOW)
    assert seen.snapshot.state.reason == "waits for a node" and seen.again_at == NOW + AGAIN_S


def test_an_engine_that_only_looks_takes_no_turns() -> None:
    engine = KubernetesEngine(environment={})
    own = record(user=current_user())
    assert engine._may_act(own) and not engine._may_act(record(user=f"not-{current_user()}"))
    engine.takes_over = False
    assert not engine._may_act(own)


def test_a_run_that_runs_needs_no_further_look() -> None:
    assert predicted(snapshot(running(0), running(1)), NOW).again_at is None


def test_the_order_at_the_gate_is_by_the_servers_clock() -> None:
    assert created_within(100.25, 100.0) == 100.25
    assert created_within(5.0, 100.0) == 100.0 and created_within(1e12, 100.0) == 101.0
    assert created_within(5.0, None) == 5.0


def test_how_long_a_gang_may_take_is_its_own_matter() -> None:
    pods = (pod_of({"metadata": {"name": "worker-0"}, "spec": {"containers": []}}),)
    inside = GateCandidate(run="a", uid="a", created=1.0, pods=pods, let_in=NOW - 60, unschedulable=1, made=1)
    patient = msgspec.structs.replace(inside, run="b", gate_s=300.0)
    hasty = msgspec.structs.replace(inside, run="c", gate_s=1.0)
    found = {one.run: one.action for one in decide_gate([patient, hasty], None, NOW)}
    assert found == {"b": "keep", "c": "put_back"}
