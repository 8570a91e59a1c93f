"""A run that was let in before others keeps the reason, and `explain` says it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from longboat.core.runs import RunStatus
from longboat.engines.kubernetes.explain import explain as explaining
from longboat.engines.kubernetes.gate import serve, waiting_runs
from longboat.engines.kubernetes.gate.decide import Admission
from longboat.engines.kubernetes.records import Gate, State
from longboat.kubeapi.client import Client
from tests.engines.kubernetes.run_samples import NOW, job, record, snapshot, workload

REASON = "may start before big: it will not delay it"


class Patched:
    """A client that takes every patch."""

    def __init__(self) -> None:
        self.patches: list[Any] = []

    def now(self) -> float:
        return NOW

    def patch(self, kind: Any, name: str, body: Any) -> None:
        self.patches.append(body)


def test_the_reason_is_kept_with_the_state() -> None:
    client = Patched()
    run = waiting_runs.WaitingRun(
        record=record(), state=State(), version="1", made=NOW, workloads=(workload(is_suspended=True),)
    )
    verdict = Admission(run=run.record.name, namespace=run.record.namespace, action="let_in", reason=REASON)
    state = serve._serve(cast(Client, client), run, verdict, NOW)
    assert client.patches == [{"spec": {"suspend": False}}]
    assert (state.gate.let_in, state.gate.reason, state.reason) == (NOW, REASON, "")


@pytest.mark.parametrize(("let_in", "facts"), [(NOW - 5, (REASON,)), (None, ())])
def test_explain_says_why_it_could_start_before_others(let_in: float | None, facts: tuple[str, ...]) -> None:
    seen = snapshot(state=State(phase="running", gate=Gate(let_in=let_in, reason=REASON)))
    status = RunStatus(name="r", uid="u", job="r", phase="running", engine="kubernetes", created=NOW, nodes=1, gpus=1)
    found = explaining.explain(cast(Client, Patched()), seen, status)
    assert [fact for fact in found.facts if fact == REASON] == list(facts)


@pytest.mark.parametrize(
    ("timeout_s", "lasts_s"), [(None, None), (600.0, 600.0 + waiting_runs.START_S), (-1e9, waiting_runs.START_S)]
)
def test_a_timeout_tells_how_long_it_holds_its_nodes(timeout_s: float | None, lasts_s: float | None) -> None:
    made = record(job(timeout_s=timeout_s))
    run = waiting_runs.WaitingRun(record=made, state=State(), version="1", made=NOW, workloads=())
    candidate = waiting_runs.candidate_of(run, NOW, {})
    assert candidate is not None and candidate.lasts_s == lasts_s
