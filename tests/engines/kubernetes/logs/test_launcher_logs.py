"""When the launcher's log files are given up. What they hold is read from real pods in test_fast_logs."""

from __future__ import annotations

from typing import cast

import pytest

from longboat.engines.kubernetes.logs import launcher_logs
from longboat.engines.kubernetes.logs.launcher_logs import LauncherLogs
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden
from longboat.kubeapi.refusals import SYNC_S
from longboat.kubeapi.streams.websocket import WebSocketClosed


class EndedSession:
    """An exec that was allowed and has ended."""

    def __init__(self, code: int = 0) -> None:
        self.code = code

    def receive(self, timeout_s: float) -> None:
        raise WebSocketClosed

    def exit_code(self) -> int:
        return self.code

    def close(self) -> None:
        pass


@pytest.mark.parametrize("was_allowed", [True, False])
def test_who_was_allowed_before_may_try_again_after_a_refusal(
    was_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server that has just restarted refuses everybody until it has read its roles."""
    answers: list[object] = [EndedSession()] if was_allowed else []

    def connect(*_: object, **__: object) -> object:
        if not answers:
            raise Forbidden("pods/exec is forbidden")
        return answers.pop()

    monkeypatch.setattr(launcher_logs, "Session", connect)
    logs = LauncherLogs(cast(Client, None), "default", "pod")
    if was_allowed:
        assert list(logs.read({}, follow=False)) == []
    with pytest.raises(Forbidden):
        list(logs.read({}, follow=False))
    assert logs.is_usable is was_allowed


def test_who_was_refused_once_asks_again_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    answers: list[object] = [Forbidden("pods/exec is forbidden"), EndedSession(), Forbidden("pods/exec is forbidden")]

    def connect(*_: object, **__: object) -> object:
        answer = answers.pop(0) if answers else Forbidden("pods/exec is forbidden")
        if isinstance(answer, Forbidden):
            raise answer
        return answer

    monkeypatch.setattr(launcher_logs, "Session", connect)
    monkeypatch.setattr("longboat.engines.kubernetes.logs.launcher_logs.time.monotonic", lambda: now[0])
    logs = LauncherLogs(cast(Client, None), "default", "pod")
    with pytest.raises(Forbidden):
        list(logs.read({}, follow=False))
    assert not logs.is_usable
    now[0] += SYNC_S
    assert logs.is_usable and list(logs.read({}, follow=False)) == []
    with pytest.raises(Forbidden):
        list(logs.read({}, follow=False))
    assert logs.is_usable, "it was allowed meanwhile"


def test_who_is_refused_twice_has_no_right(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]

    def connect(*_: object, **__: object) -> object:
        raise Forbidden("pods/exec is forbidden")

    monkeypatch.setattr(launcher_logs, "Session", connect)
    monkeypatch.setattr("longboat.engines.kubernetes.logs.launcher_logs.time.monotonic", lambda: now[0])
    logs = LauncherLogs(cast(Client, None), "default", "pod")
    for _ in range(2):
        assert logs.is_usable
        with pytest.raises(Forbidden):
            list(logs.read({}, follow=False))
        now[0] += SYNC_S
    assert not logs.is_usable


@pytest.mark.parametrize(("code", "is_usable"), [(202, True), (137, True), (1, False)])
def test_a_launcher_that_has_not_begun_is_asked_again(
    code: int, is_usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_logs, "Session", lambda *_, **__: EndedSession(code))
    logs = LauncherLogs(cast(Client, None), "default", "pod")
    with pytest.raises(ApiError):
        list(logs.read({}, follow=True))
    assert logs.is_usable is is_usable
