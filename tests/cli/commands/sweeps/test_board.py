"""What is printed of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.cli.commands.sweeps.board import SweepFollower, print_board
from longboat.core.jobs import Job, Metric, Role, Sweep
from longboat.engines.shared.home import Home
from longboat.sweeps.record import SweepFolder, SweepRecord
from longboat.sweeps.report import report_of
from longboat.sweeps.trials import SweepState, SweepTrial

NAME = "\x1b[2Jloss"


def created(home: Path, sweep: Sweep) -> SweepFolder:
    job = Job(name="j", roles=(Role(name="worker", run="true"),), sweep=sweep)
    folder = SweepFolder(Home(home), "s")
    assert folder.create(SweepRecord(name="s", uid="u", job=job, base="/", created=0.0, user="me", engine="local"))
    return folder


def test_why_trials_failed_is_told_once_for_each_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reasons = ["exit code 7", "exit code 7", "out of memory", "lost", "\x1b[2Jno image", ""]
    trials = tuple(
        SweepTrial(number=number, params={"x": 1}, run=f"s-t{number}", phase="failed", reason=reason)
        for number, reason in enumerate(reasons, 1)
    )
    folder = created(tmp_path, Sweep(space={"x": (1, 2)}))
    print_board(report_of(folder.record(), SweepState(trials=trials)))
    lines = capsys.readouterr().out.splitlines()
    assert "failed: 2 trials, first s-t1: exit code 7; longboat explain s-t1" in lines
    assert "failed: s-t3: out of memory; longboat explain s-t3" in lines
    assert lines[-1] == "failed: 2 other reasons: longboat sweep status -o json"


def test_drawn_numbers_are_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = {"lr": 0.007704879023867309, "drop": 0.1, "width": 12345678, "low": 1e-07, "same": True}
    trials = (SweepTrial(number=1, params=params, run="s-t1", phase="succeeded", metrics={"loss": 0.5}),)
    folder = created(tmp_path, Sweep(space=dict.fromkeys(params, (1, 2)), metric=Metric(name="loss")))
    print_board(report_of(folder.record(), SweepState(trials=trials, metric=Metric(name="loss"))))
    shown = capsys.readouterr().out
    assert "lr=0.00770488 drop=0.1 width=12345678 low=1e-07 same=true" in shown


def test_a_metrics_name_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = Sweep(space={"x": (1, 2)}, metric=Metric(name=NAME))
    folder = created(tmp_path, sweep)
    trials = (
        SweepTrial(number=1, params={"x": 1}, run="s-t1", phase="succeeded", metrics={NAME: 0.5}),
        SweepTrial(number=2, params={"x": 2}, run="s-t2", phase="failed", reason="\x1b]0;title\x07"),
    )
    report = report_of(folder.record(), SweepState(trials=trials, metric=sweep.metric))
    SweepFollower(Home(tmp_path), folder, quiet=False).report(report)
    print_board(report)
    shown = capsys.readouterr()
    assert "longboat: s-t1 (x=1) succeeded, \\x1b[2Jloss 0.5\n" in shown.err
    assert "longboat: s-t2 (x=2) failed: \\x1b]0;title\\x07\n" in shown.err
    assert "\\x1b[2JLOSS" in shown.out and "\x1b" not in shown.out + shown.err
