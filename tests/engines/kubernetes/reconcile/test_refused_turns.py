"""Followers of a run while an API server that has just restarted refuses everybody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.logs import follow
from longboat.engines.kubernetes.logs.follow import LiveLogs
from longboat.engines.kubernetes.reconcile import reconciler
from longboat.engines.kubernetes.reconcile.reconciler import Reconciler
from longboat.engines.kubernetes.records import State
from longboat.kubeapi.errors import Forbidden, Unreachable

REFUSED = Forbidden('configmaps "job" is forbidden', status=403)
SEEN: Any = object()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What one turn after the other comes to; the last one stays."""
    planned: list[Any] = []

    def turn(*_: object) -> Any:
        answer = planned.pop(0) if len(planned) > 1 else planned[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(reconciler, "turn_or_look", turn)
    monkeypatch.setattr(reconciler, "POLL_S", 0.01)
    return planned


def test_who_was_allowed_waits_for_the_roles(answers: list[Any]) -> None:
    driver = Reconciler(SEEN, "job")
    answers += [SEEN, Unreachable("refused"), REFUSED, REFUSED, SEEN]
    assert driver._turn(None) is driver._turn(None) is SEEN and answers == [SEEN]


def test_who_never_was_is_told_at_once(answers: list[Any]) -> None:
    answers += [REFUSED, SEEN]
    with pytest.raises(Forbidden):
        Reconciler(SEEN, "job")._turn(None)


def test_who_is_not_any_more_is_told_after_a_while(answers: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longboat.kubeapi.refusals.SYNC_S", 0.05)
    driver = Reconciler(SEEN, "job")
    answers += [SEEN, REFUSED]
    driver._turn(None)
    with pytest.raises(Forbidden):
        driver._turn(None)


def test_a_follower_of_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "Reflector", lambda *_, **__: SimpleNamespace(close=lambda: None))
    record: Any = SimpleNamespace(name="job", namespace="team")
    live = LiveLogs(SEEN, record, LogQuery(), open_log=lambda _: None, notice=lambda _: None)
    live.note_unreachable(REFUSED)
    live.note_state(State(phase="running"))
    monkeypatch.setattr("longboat.kubeapi.refusals.SYNC_S", 0.0)
    with pytest.raises(Forbidden):
        live.note_unreachable(REFUSED)


@pytest.mark.parametrize("has_ended", [True, False])
def test_the_pods_of_an_ended_run_are_listed_again_only_where_one_had_not_ended(
    has_ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "Reflector", lambda *_, **__: SimpleNamespace(close=lambda: None))
    listed: list[str] = []
    monkeypatch.setattr(follow, "list_pods", lambda _, record: listed.append(record.name) or [])
    record: Any = SimpleNamespace(name="job", namespace="team")
    live = LiveLogs(SEEN, record, LogQuery(), open_log=lambda _: None, notice=lambda _: None)
    pods: Any = [SimpleNamespace(end=object()), SimpleNamespace(end=object() if has_ended else None)]
    live.note_state(State(phase="running"), pods)
    assert not listed
    live.note_state(State(phase="succeeded"), pods)
    assert listed == ([] if has_ended else ["job"])
    assert live._views() == (pods if has_ended else [])
