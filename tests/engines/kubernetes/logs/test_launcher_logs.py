"""When the launcher's log files are given up. What they hold is read from real pods in test_fast_logs."""

from __future__ import annotations

from typing import cast

import pytest

from longboat.engines.kubernetes.logs import launcher_logs
from longboat.engines.kubernetes.logs.launcher_logs import LauncherLogs
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden
from longboat.kubeapi.streams.websocket import WebSocketClosed


class EndedSession:
    """An exec that was allowed and has ended well."""

    def receive(self, timeout_s: float) -> None:
        raise WebSocketClosed

    def exit_code(self) -> int:
        return 0

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
