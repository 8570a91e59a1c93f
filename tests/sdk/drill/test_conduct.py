"""A drill kills the rank that it means, and no other process whatever a log says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from longboat.core.errors import EngineError
from longboat.core.runs import RunStatus
from longboat.sdk.drill.conduct import Drill
from longboat.sdk.drill.kills import Kill
from longboat.sdk.drill.trace import TracedStep

RUN = RunStatus(
    name="fit", uid="0123abcd", job="fit", phase="running", engine="local", created=1.0, nodes=1, gpus=0
)  # fmt: skip
KILL = Kill(kind="rank", rank=1, node="worker-0", step=3)
SLEEPERS: list[subprocess.Popen[bytes]] = []


class ThisMachine:
    """Executes beside the ranks, which are processes of this machine."""

    def exec(self, run: str, command: Sequence[str], *, node: str | None = None, rank: int | None = None) -> int:
        assert (run, rank) == ("fit", 1)
        return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode


@pytest.fixture(autouse=True)
def ended_sleepers() -> Iterator[None]:
    yield
    while SLEEPERS:
        sleeper = SLEEPERS.pop()
        sleeper.kill()
        sleeper.wait()


def sleeper(**variables: str) -> subprocess.Popen[bytes]:
    SLEEPERS.append(subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], **variables}))
    return SLEEPERS[-1]


def kill(pid: int) -> list[str]:
    messages: list[str] = []
    engine: Any = ThisMachine()
    drill = Drill(engine, [KILL], metric=None, tolerance=0.01, tell=messages.append)
    done = drill._kill(RUN, KILL, [TracedStep(0, 1, 3, 5.0, pid, {})])
    assert done.kill == KILL and done.attempt == 0
    return messages


@pytest.mark.parametrize(
    "variables",
    [
        {"LONGBOAT_RUN_UID": "0123abcd", "LONGBOAT_RANK": "1", "RANK": "0"},
        {"LONGBOAT_RUN_UID": "0123abcd", "OMPI_COMM_WORLD_RANK": "1"},
    ],
)
def test_the_rank_is_killed(variables: dict[str, str]) -> None:
    rank = sleeper(**variables)
    assert kill(rank.pid) == ["run fit: killed rank 1 at step 3"]
    assert rank.wait() == -9


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"LONGBOAT_RUN_UID": "0123abcd"},  # the launcher
        {"LONGBOAT_RUN_UID": "0123abcd", "LONGBOAT_RANK": "11"},
        {"LONGBOAT_RUN_UID": "0123abcd", "LONGBOAT_RANK": "0", "RANK": "1"},
        {"LONGBOAT_RUN_UID": "0123abcdef", "LONGBOAT_RANK": "1"},
        {"LONGBOAT_RUN_UID": "another", "LONGBOAT_RANK": "1"},
    ],
)
def test_another_process_is_not_killed(variables: dict[str, str]) -> None:
    other = sleeper(**variables)
    with pytest.raises(EngineError, match=f"process {other.pid} is not rank 1 of fit") as caught:
        kill(other.pid)
    assert caught.value.hint and other.poll() is None


def test_a_process_that_is_gone() -> None:
    gone = sleeper()
    gone.kill()
    gone.wait()
    with pytest.raises(EngineError, match="is not rank 1"):
        kill(gone.pid)
