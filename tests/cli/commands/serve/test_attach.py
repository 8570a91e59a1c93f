"""What is said of a rollout while it is waited for."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from longboat.cli.commands.serve.attach import show_rollout
from longboat.core.errors import EngineError
from longboat.serving.service_status import ServiceStatus

STATUS = ServiceStatus(
    name="svc", url="", engine="kubernetes", run="r", step=1, version=1, replicas=1, ready=0, phase="starting",
    reason="pulls its image", created=0.0, user="u",
)  # fmt: skip


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_cluster_that_is_away_for_a_moment_ends_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[ServiceStatus | Exception] = [EngineError("connection refused"), STATUS]
    is_told = threading.Event()

    def status(name: str) -> ServiceStatus:
        answer = answers.pop(0) if answers else STATUS
        if isinstance(answer, Exception):
            raise answer
        is_told.set()
        return answer

    def wait(name: str) -> ServiceStatus:
        assert is_told.wait(60.0)
        return STATUS

    services: Any = SimpleNamespace(status=status, wait=wait)
    show_rollout(services, "svc", quiet=False)
    assert "longboat: svc is starting, 0 of 1 ready: pulls its image" in capsys.readouterr().err
