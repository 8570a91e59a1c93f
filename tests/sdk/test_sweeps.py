"""Sweeps as users name them, wait for them and remove them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.jobs import Job, Role, Sweep
from longboat.core.runs import RunStatus
from longboat.engines.shared.home import Home
from longboat.sdk import sweeps
from longboat.sdk.sweeps import OpenSweep, find_sweep, remove_damaged, remove_sweep, wait_sweep
from longboat.sweeps.record import SweepFolder, SweepRecord
from longboat.sweeps.trials import SweepState, SweepTrial

TRIALS = tuple(
    SweepTrial(number=number, params={"x": 1}, run=f"s-t{number}", phase="succeeded", is_submitted=True)
    for number in (1, 2, 3)
)


class Runs:
    """Two runs of the sweep and one that somebody else has made since."""

    name = "local"

    def __init__(self) -> None:
        self.labels = {"s-t1": {"sweep": "s", "sweep-uid": "u"}, "s-t2": {"sweep": "s", "sweep-uid": "v"}}
        self.deleted: list[tuple[str, bool]] = []

    def status(self, run: str) -> RunStatus:
        if run not in self.labels:
            raise NotFound(run)
        return RunStatus(
            name=run, uid=run, job="j", phase="succeeded", engine="local", created=0.0, nodes=1, gpus=0,
            labels=self.labels[run],
        )  # fmt: skip

    def delete(self, run: str, *, purge: bool = False) -> None:
        self.deleted.append((run, purge))


def sweep_folder(root: Path, state: SweepState, name: str = "s") -> SweepFolder:
    job = Job(name="j", roles=(Role(name="worker", run="true"),), sweep=Sweep(space={"x": (1, 2, 3)}))
    folder = SweepFolder(Home(root), name)
    assert folder.create(SweepRecord(name=name, uid="u", job=job, base="/", created=0.0, user="me", engine="local"))
    folder.write_state(state)
    return folder


def opened(folder: SweepFolder, runs: Any) -> OpenSweep:
    return OpenSweep(folder.name, folder, runs, folder)


def test_only_runs_of_the_sweep_are_removed_with_it(tmp_path: Path) -> None:
    runs = Runs()
    folder = sweep_folder(tmp_path, SweepState(trials=TRIALS, phase="succeeded"))
    remove_sweep(Home(tmp_path), opened(folder, runs), purge=True)
    assert runs.deleted == [("s-t1", True)] and not folder.exists()


def test_a_damaged_sweep_can_be_removed(tmp_path: Path) -> None:
    folder = sweep_folder(tmp_path, SweepState(trials=TRIALS))
    (folder.directory / "record.json").write_bytes(b"{")
    with pytest.raises(EngineError, match="damaged") as caught:
        folder.record()
    assert "longboat sweep rm --force s" in (caught.value.hint or "")
    assert remove_damaged(Home(tmp_path), "s", None) == ["s-t1", "s-t2", "s-t3"]
    assert not folder.exists()


def test_whoever_waits_starts_few_drivers_and_hears_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = ["", "the cluster is away", "the cluster is away", "", "it is being drained"]
    states = [SweepState(trials=(change(TRIALS[0], reason),)) for reason in reasons for _ in range(5)]
    folder = sweep_folder(tmp_path, states[0])
    clock, drivers, messages = [0.0], [0], []

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        ended = SweepState(phase="stopped")
        folder.write_state(states.pop(0) if states else ended)

    def driven(*_args: Any) -> None:
        drivers[0] += 1

    monkeypatch.setattr(sweeps, "ensure_driven", driven)
    monkeypatch.setattr("longboat.sdk.sweeps.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("longboat.sdk.sweeps.time.sleep", sleep)
    assert wait_sweep(Home(tmp_path), opened(folder, Runs()), messages.append).phase == "stopped"
    assert messages == ["s waits for s-t1: the cluster is away", "s waits for s-t1: it is being drained"]
    assert 2 <= drivers[0] <= 4  # 26 looks in 5.2 s


def change(trial: SweepTrial, reason: str) -> SweepTrial:
    return SweepTrial(number=trial.number, params=trial.params, run=trial.run, phase="running", reason=reason)


def test_names_beginnings_and_the_latest(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(NotFound, match="no sweeps yet"):
        find_sweep(home, "a")
    for name in ("tune", "tune-2", "other"):
        sweep_folder(tmp_path, SweepState(), name)
    assert find_sweep(home, "tune").name == "tune"
    assert find_sweep(home, "oth").name == "other"
    assert find_sweep(home, "-").name in ("other", "tune", "tune-2")
    with pytest.raises(UsageError, match="beginning of 2 sweeps"):
        find_sweep(home, "tu")
    with pytest.raises(NotFound):
        find_sweep(home, "oth", is_whole=True)


def test_on_a_full_disk_nothing_that_is_printed_ends_the_driver(tmp_path: Path) -> None:
    """Whatever it calls may print. Here it finds that the sweep is gone, and something prints then."""
    program = "import sys; from longboat.sdk.sweeps import main; main('gone'); print(1); print(2, file=sys.stderr)"
    with open("/dev/full", "wb") as full:
        environment = {**os.environ, "LONGBOAT_HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=full, env=environment, timeout=60)
    assert done.returncode == 0
