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


def test_a_metrics_name_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = Sweep(space={"x": (1, 2)}, metric=Metric(name=NAME))
    job = Job(name="j", roles=(Role(name="worker", run="true"),), sweep=sweep)
    folder = SweepFolder(Home(tmp_path), "s")
    assert folder.create(SweepRecord(name="s", uid="u", job=job, base="/", created=0.0, user="me", engine="local"))
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
