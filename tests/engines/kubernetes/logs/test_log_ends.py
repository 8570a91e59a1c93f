"""The end of a pod's log: once its container has ended nothing is waited for."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from longboat.core.guards.background_call import BackgroundCall
from longboat.engines.kubernetes.logs.pod_reader import PodLog
from tests.engines.kubernetes.logs.test_pod_reader import Kubelet, Source, read, said


class Late(Source):
    """The API server says so often that its container still runs, after the log's stream has ended."""

    def __init__(self, opening: Any, times: int) -> None:
        super().__init__(opening)
        self.times = times
        self.was_asked = threading.Event()

    def has_ended(self) -> bool:
        self.times -= 1
        if self.times < 0:
            return True
        self.was_asked.set()
        return False

    def conclude(self) -> None:
        """No stream follows."""


@pytest.fixture
def pauses_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHORT_S", "LONG_S"):
        monkeypatch.setattr(f"longboat.engines.kubernetes.logs.pod_reader.{name}", 3600.0)


@pytest.mark.usefixtures("pauses_without_end")
def test_after_the_containers_end_nothing_is_waited_for() -> None:
    assert len(read(PodLog(Late(Kubelet([said(0, 0, 0)], []).open, times=1)))) == 1


@pytest.mark.usefixtures("pauses_without_end")
def test_a_pause_ends_when_somebody_else_sees_the_containers_end() -> None:
    source = Late(Kubelet([said(0, 0, 0)], []).open, times=2)
    log = PodLog(source)
    reading = BackgroundCall(lambda: read(log))
    assert source.was_asked.wait(60.0)
    log.conclude()
    assert [line.seq for line in reading.result()] == [0]
