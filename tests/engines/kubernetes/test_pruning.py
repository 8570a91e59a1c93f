"""`prune` on a cluster: a turn before a removal, whose runs, and what happens to the others when one stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from longboat.core.errors import EngineError, NotFound
from longboat.core.runs import PruneQuery, RunStatus
from longboat.engines.kubernetes import pruning
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.records import State
from longboat.engines.kubernetes.status import brief_status
from longboat.engines.shared.home import current_user
from longboat.kubeapi.client import Client
from tests.engines.kubernetes.run_samples import ended, record, running, snapshot

ENDED = State(phase="succeeded", exit_code=0, ended=100.0)
QUERY = PruneQuery(ended_before=500.0)


class Clock:
    def now(self) -> float:
        return 1000.0


CLIENT = cast("Client", Clock())


def listed(*runs: str, user: str = "anna") -> list[RunStatus]:
    return [brief_status(record(name=run, user=user), ENDED) for run in runs]


def seen(run: str, state: State = ENDED, *pods: Any) -> RunSnapshot:
    return msgspec.structs.replace(snapshot(*pods), record=record(name=run), state=state)


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs whose objects went."""
    gone: list[str] = []
    monkeypatch.setattr(pruning, "expire", lambda _, snapshot: gone.append(snapshot.record.name))
    monkeypatch.setattr(pruning, "wait_until_gone", lambda *_: None)
    return gone


def test_what_a_turn_finds_counts_and_not_the_list(removed: list[str]) -> None:
    found = {
        "over": seen("over", ENDED, ended()),
        "again": seen("again", State(phase="recovering", ended=100.0)),
        "young": seen("young", msgspec.structs.replace(ENDED, ended=900.0)),
        "going": seen("going", ENDED, ended(), running(1)),
        "expired": seen("expired", msgspec.structs.replace(ENDED, expired=200.0)),
    }
    items = list(pruning.prune(CLIENT, listed(*found), QUERY, found.__getitem__))
    assert removed == ["over"]
    problems = {item.name: item.problem for item in items}
    assert problems.pop("over") is None and set(problems) == {"again", "young", "going"}
    assert "is recovering" in str(problems["again"]) and "train-a0-worker-1" in str(problems["going"])


def test_one_that_is_gone_or_stays_does_not_keep_the_others(removed: list[str]) -> None:
    def turn(run: str) -> RunSnapshot:
        if run != "last":
            raise NotFound("gone") if run == "gone" else EngineError("stuck")
        return seen(run)

    items = list(pruning.prune(CLIENT, listed("gone", "stuck", "last"), QUERY, turn))
    assert [(item.name, item.problem) for item in items] == [("stuck", "stuck"), ("last", None)]
    assert removed == ["last"]


def test_a_look_takes_no_turn(removed: list[str]) -> None:
    def turn(run: str) -> RunSnapshot:
        raise AssertionError(run)

    query = msgspec.structs.replace(QUERY, dry_run=True)
    assert [item.name for item in pruning.prune(CLIENT, listed("a", "b"), query, turn)] == ["a", "b"] and not removed


def test_runs_of_others_stay_unless_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: Sequence[RunStatus] = [*listed("mine", user=current_user()), *listed("theirs", user="somebody-else")]
    monkeypatch.setattr(KubernetesEngine, "list", lambda _: runs)
    monkeypatch.setattr(KubernetesEngine, "client", CLIENT)
    said: list[str] = []
    engine = KubernetesEngine(on_notice=said.append)
    query = msgspec.structs.replace(QUERY, dry_run=True)
    for _ in range(2):
        assert [item.name for item in engine.prune(query)] == ["mine"]
    assert said == ["1 run of others stays: --all-users takes it too"]
    everybody = msgspec.structs.replace(query, all_users=True)
    assert [item.name for item in engine.prune(everybody)] == ["mine", "theirs"]
