"""What a moving run leaves alone, and what is told of one that nobody takes: on real embedded engines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from longboat.cli.commands.jobs.failover_process import look_after
from longboat.cli.commands.jobs.run_several import begin, first_turns, wait_for_start
from longboat.core.errors import NotFound, Refused, UsageError
from longboat.core.runs import Phase, RunStatus
from longboat.engines.shared.files import open_lock, try_lock, write_value
from longboat.engines.shared.home import Home
from longboat.multicluster import failover as module
from longboat.multicluster.ask import NamedEngine
from longboat.multicluster.failover import TOLD_S, Failover, lost_runs
from longboat.multicluster.failover_steps import FailoverState, judge_leaving, judge_waiting
from tests.multicluster.test_failover import RUN, TwoHomes, Wire, until


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoHomes]:
    monkeypatch.setattr(module, "ASK_AGAIN_S", 0.0)  # the test's patience, not the users'
    two = TwoHomes(tmp_path)
    yield two
    two.close()


def leaving(homes: TwoHomes) -> Failover:
    """A run that waits on `a` and is about to leave."""
    driver = homes.driver(Wire())
    driver.begin("a")
    until(lambda: driver.turn() or step_of(driver) == "leave", "it is to leave")
    assert homes.engines["a"].status(RUN).phase == "pending"
    return driver


def step_of(driver: Failover) -> str:
    assert driver.transfer is not None
    return driver.transfer.step


def other_run(homes: TwoHomes) -> RunStatus:
    """A waiting run of the same name, of another job."""
    return homes.engines["a"].submit(
        msgspec.structs.replace(homes.submission(["sleep", "300"], run_id="other"), run_id=RUN)
    )


def large(homes: TwoHomes) -> None:
    """What no place can ever run."""
    (role,) = homes.moving.job.roles
    gpus = msgspec.structs.replace(role.resources.gpus, count=2)
    resources = msgspec.structs.replace(role.resources, gpus=gpus)
    job = msgspec.structs.replace(homes.moving.job, roles=(msgspec.structs.replace(role, resources=resources),))
    homes.moving = msgspec.structs.replace(homes.moving, job=job)


def test_a_run_of_another_job_is_not_taken_for_ours(homes: TwoHomes) -> None:
    theirs = other_run(homes)
    driver = homes.driver(Wire())
    places = [NamedEngine(name, engine) for name, engine in homes.engines.items()]
    with pytest.raises(UsageError, match="of another job"):
        begin(driver, places, homes.moving, is_new=False, quiet=True)
    assert driver.transfer is None and homes.driver(Wire()).transfer is None
    assert homes.where()["a"].uid == theirs.uid

    homes.engines["a"].delete(RUN)
    ours = homes.engines["a"].submit(homes.moving)
    begin(driver, places, homes.moving, is_new=False, quiet=True)
    assert driver.transfer is not None and (driver.transfer.step, driver.transfer.uid) == ("wait", ours.uid)
    homes.moving = homes.submission(["sleep", "1"], run_id=RUN)
    with pytest.raises(UsageError, match="of another job"):
        homes.driver(Wire()).check_goes_on()


@pytest.mark.parametrize("step", ["wait", "leave"])
def test_a_run_that_took_its_name_is_neither_stopped_nor_moved(homes: TwoHomes, step: str) -> None:
    driver = leaving(homes)
    if step == "wait":
        assert driver.transfer is not None
        driver._write(msgspec.structs.replace(driver.transfer, step="wait"))
    homes.engines["a"].delete(RUN)
    theirs = other_run(homes)
    with pytest.raises(NotFound, match="was removed from a"):
        driver.turn()
    driver._write(FailoverState(run=RUN, places=("a", "b"), left_uid="another"))
    assert driver.turn() is None or homes.where()["b"]  # submitted to b: what a has now is not removed
    assert homes.where()["a"].uid == theirs.uid and homes.where()["a"].phase == "pending"


def test_what_its_user_stops_or_removes_is_not_begun_elsewhere(homes: TwoHomes) -> None:
    driver = leaving(homes)
    homes.engines["a"].stop(RUN)
    until(lambda: homes.engines["a"].status(RUN).phase == "stopped", "the user's stop")
    status = driver.turn() or driver.turn()
    assert status is not None and status.phase == "stopped"
    homes.engines["a"].delete(RUN)
    driver = leaving(homes)
    homes.engines["a"].delete(RUN)
    with pytest.raises(NotFound):
        driver.turn()
    assert homes.where() == {}


@pytest.mark.parametrize(
    ("phase", "started", "is_stopping", "verdict"),
    [
        ("pending", None, False, "stop"),
        ("pending", None, True, "stop"),
        ("pending", 1.0, True, "settled"),
        ("stopped", None, True, "left"),
        ("stopped", None, False, "settled"),
        ("stopped", 1.0, True, "settled"),
        ("running", 1.0, True, "settled"),
        ("failed", None, True, "settled"),
    ],
)
def test_leaving(phase: Phase, started: float | None, is_stopping: bool, verdict: str) -> None:
    status = RunStatus(
        name=RUN, uid="u", job=RUN, phase=phase, engine="local", created=0.0, nodes=1, gpus=1, started=started
    )
    state = FailoverState(run=RUN, places=("a",), step="leave", uid="u", is_stopping=is_stopping)
    assert judge_leaving(state, status) == verdict
    assert judge_leaving(state, msgspec.structs.replace(status, uid="another")) == "removed"
    assert judge_leaving(state, None) == "removed"
    assert judge_leaving(FailoverState(run=RUN, places=("a",), refused="quota"), None) == "left"
    if started is not None:
        assert judge_waiting(status, 9.0, 1.0) == "settled"


def test_who_opened_a_lock_that_was_removed_meanwhile_does_not_hold_it(
    homes: TwoHomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = homes.root / "mine" / "failovers"
    with pytest.raises(NotFound), homes.driver(Wire()).alone():
        opened = open_lock(folder / f"{RUN}.lock")
        raise NotFound("removed")
    assert list(folder.iterdir()) == []
    descriptors = [opened]
    monkeypatch.setattr(module, "open_lock", lambda path: descriptors.pop() if descriptors else open_lock(path))
    late = homes.driver(Wire())
    with monkeypatch.context() as patch:
        patch.setattr(module, "open_lock", open_lock)
        first = homes.driver(Wire()).alone()
        first.__enter__()
    with pytest.raises(UsageError, match="another command"), late.alone():
        pass
    first.__exit__(None, None, None)


def test_ctrl_c_before_it_is_anywhere_stays_an_interrupt(homes: TwoHomes, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = homes.driver(Wire())
    driver.begin("a")

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "turn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        wait_for_start(driver)
    assert homes.driver(Wire()).transfer is None
    theirs = other_run(homes)
    driver.begin("a", msgspec.structs.replace(theirs, uid="ours"))
    with pytest.raises(KeyboardInterrupt):
        wait_for_start(driver)
    assert homes.where()["a"].phase == "pending"


def test_a_detached_run_that_no_place_takes_is_told(homes: TwoHomes) -> None:
    large(homes)
    home = Home(homes.root / "mine")
    driver = homes.driver(Wire())
    driver.begin("a")
    with pytest.raises(Refused):  # before anything is left to a process
        first_turns(driver)
    driver.begin("a")
    assert "nobody looks after moving any more, which was given to a" in lost_runs(home)[RUN]
    lock = open_lock(homes.root / "mine" / "failovers" / f"{RUN}.lock")
    assert try_lock(lock) and lost_runs(home) == {}
    look_after(driver, lock)
    assert "moving runs nowhere, no place takes it: " in lost_runs(home)[RUN]
    again = homes.driver(Wire())
    with again.alone():
        assert again.transfer is None and lost_runs(home) == {}
    old = FailoverState(run=RUN, places=("a",), step="refused", since=time.time() - TOLD_S - 1)
    write_value(homes.root / "mine" / "failovers" / f"{RUN}.json", old)
    assert lost_runs(home) == {} and list((homes.root / "mine" / "failovers").iterdir()) == []


def test_an_id_that_is_no_name_reaches_no_file(homes: TwoHomes) -> None:
    homes.moving = msgspec.structs.replace(homes.moving, run_id="../elsewhere")
    with pytest.raises(UsageError):
        homes.driver(Wire())
