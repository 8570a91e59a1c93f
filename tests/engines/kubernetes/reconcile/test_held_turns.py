"""How often a turn reads a run that asks the gate: not again where the gate has answered that it waits on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from longboat.engines.kubernetes.gate import serve
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.reconcile import apply, reconciler
from longboat.engines.kubernetes.reconcile.outlook import AGAIN_S
from longboat.engines.kubernetes.records import Gate, State
from tests.engines.kubernetes.run_samples import NOW, opened, record, snapshot, workload

WAITING = State(attempts=(opened(0),))
CLIENT: Any = SimpleNamespace(now=lambda: NOW)


def held(state: State, *, is_suspended: bool = True) -> RunSnapshot:
    seen = snapshot(state=state, workloads=(workload(is_suspended=is_suspended),))
    return msgspec.structs.replace(seen, record=record(gated_by="longboat"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs that were read; each is seen as it was before."""
    names: list[str] = []

    def observe(_: object, run: str, __: float, ___: object) -> RunSnapshot:
        names.append(run)
        return held(WAITING)

    monkeypatch.setattr(reconciler, "observe", observe)
    monkeypatch.setattr(apply, "write_state", lambda *_: "2")
    return names


def answer(monkeypatch: pytest.MonkeyPatch, gate: Gate | None) -> None:
    state = None if gate is None else msgspec.structs.replace(WAITING, gate=gate)
    monkeypatch.setattr(serve, "ask_gate", lambda *_: state)


def test_a_run_that_waits_on_is_not_read_again(reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, Gate(reason="waits for 8 GPUs"))
    after = reconciler.turn(CLIENT, "train")
    assert reads == ["train"]
    assert (after.snapshot.state.gate.reason, after.snapshot.version) == ("waits for 8 GPUs", "2")
    assert after.again_at == NOW + AGAIN_S


@pytest.mark.parametrize("gate", [None, Gate(let_in=NOW)], ids=["somebody else serves it", "let in"])
def test_what_the_gate_changed_or_did_not_say_is_read(
    reads: list[str], monkeypatch: pytest.MonkeyPatch, gate: Gate | None
) -> None:
    answer(monkeypatch, gate)
    reconciler.turn(CLIENT, "train")
    assert len(reads) == 2


def test_a_run_that_is_put_back_is_read_its_workload_was_changed(
    reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, Gate(reason="put back"))
    inside = held(msgspec.structs.replace(WAITING, gate=Gate(let_in=NOW - 60)))
    reconciler.turn(CLIENT, "train", snapshot=inside)
    assert reads == ["train"]
