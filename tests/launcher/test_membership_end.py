"""Where it is asked for, the nodes of a gang that failed end together: none of them before all have ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.nodes import PATIENCE_S
from tests.launcher.pods import Pods

SLOW = """
import os, signal, sys, time
def leave(*_):
    while not os.path.exists(os.environ["SHARED"] + "/go"):
        time.sleep(0.02)
    print("last words", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("begun", flush=True)
time.sleep(600)
"""


@pytest.fixture
def gangs() -> Iterator[list[Pods]]:
    made: list[Pods] = []
    yield made
    for one in made:
        one.close()


@pytest.mark.parametrize("together", [True, False])
def test_who_failed_stays_until_all_have_ended(gangs: list[Pods], tmp_path: Path, together: bool) -> None:
    gang = Pods(
        tmp_path,
        roles={"slow": 2, "chief": 1},
        script=SLOW,
        commands={"chief": ["python", "-c", "import sys, time; time.sleep(1); sys.exit(7)"]},
        line={"together": together},
    )
    gangs.append(gang)
    gang.start_all()
    gang.until(lambda: (gang.node(2) / "outcome.json").exists())
    deadline = time.monotonic() + (2.0 if together else PATIENCE_S)
    while gang.processes[2].poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (gang.processes[2].poll() is None) is together
    (tmp_path / "go").touch()
    assert gang.wait(2) == 7
    assert gang.wait(0) == 7  # node 0 says what became of the gang
    gang.wait(1)
    assert gang.verdict["node"] == "chief-0"
    assert all("last words" in gang.log(place, f"{place}.out") for place in (0, 1))


def test_who_ended_well_does_not_wait(gangs: list[Pods], tmp_path: Path) -> None:
    gang = Pods(
        tmp_path,
        roles={"slow": 1, "quick": 1},
        script=SLOW,
        commands={"quick": ["python", "-c", "print(1)"]},
        line={"together": True},
    )
    gangs.append(gang)
    gang.start_all()
    assert gang.wait(1) == 0
    assert gang.processes[0].poll() is None
    (tmp_path / "go").touch()
    gang.tell(0, "stop", "1")
    gang.wait(0)
