"""The board of a sweep: its trials in a table, the best one, what mattered; and following it until it has ended."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from longboat.cli.output.tables import print_fields, print_table
from longboat.cli.output.terminal import PHASE_COLOURS, clean, note, paint, say
from longboat.cli.output.times import show_duration
from longboat.core.jobs import Scalar
from longboat.core.variables import show_param
from longboat.core.words import counted, listing
from longboat.engines.shared.home import Home
from longboat.sdk.sweeps import REMOTE_LOOK_S, OpenSweep, ensure_driven, stop_sweep
from longboat.sweeps.report import SweepReport, TrialReport, report_of
from longboat.sweeps.trials import FINAL, SweepState, exit_code

MOST_METRICS = 6  # in one line
MOST_REASONS = 3
"""Why trials failed: mostly all for one reason, and the best trial stays in sight."""
LOOK_S = 0.2
"""The state is one small file of this machine."""
DRIVER_S = {False: 1.0, True: 15.0}
"""How often a follower looks whether the sweep still has a driver; of one in a cluster that is a request or two."""


def show_value(value: Scalar) -> str:
    """A parameter as people read it: of a drawn number six digits; -o json and the trial have all of it."""
    whole = show_param(value)
    return min(f"{value:.6g}", whole, key=len) if isinstance(value, float) else whole


def show_params(trial: TrialReport) -> str:
    return " ".join(f"{name}={show_value(value)}" for name, value in trial.params.items())


def show_number(value: float | None) -> str | None:
    return None if value is None else f"{value:.6g}"


def print_board(report: SweepReport) -> None:
    """Print the whole sweep."""
    ended = sum(1 for trial in report.trials if trial.phase in FINAL)
    of = "" if report.planned is None else f" of {report.planned}"
    print_fields(
        [
            ("sweep", report.name),
            ("phase", f"{report.phase}{': ' if report.reason else ''}{report.reason}"),
            ("trials", f"{ended}{of} have ended; {report.method}, {report.parallel} at once"),
            ("metric", f"{report.metric.name} ({report.metric.goal})" if report.metric else None),
        ]
    )
    if not report.trials:
        return
    print()
    names = list(report.trials[0].params)
    metric = (report.metric.name if report.metric else "metric").upper()
    head = ("TRIAL", "RUN", "PHASE", metric, "STEP", "TRIES", "TIME", *(name.upper() for name in names))
    print_table(head, [_row(trial, names) for trial in report.trials])
    print()
    print_best(report)
    print_failures([trial for trial in report.trials if trial.phase == "failed"])


def _row(trial: TrialReport, names: list[str]) -> tuple[object, ...]:
    lasted = None if trial.started is None else (trial.ended or time.time()) - trial.started
    values = (show_value(trial.params[name]) for name in names)
    tries = trial.attempts or None
    return (
        trial.trial,
        trial.run,
        trial.phase,
        show_number(trial.metric),
        trial.step,
        tries,
        show_duration(lasted),
        *values,
    )


def no_best(report: SweepReport) -> str:
    """Why there is no best trial."""
    if any(trial.metric is not None for trial in report.trials):
        return "no trial with a metric has ended well"
    wanted = report.metric.name if report.metric is not None else ""
    names = sorted({name for trial in report.trials for name in trial.metrics})
    if wanted and names:
        return f"no trial has reported {wanted}; reported is {listing(names, MOST_METRICS)}"
    return "no trial has reported a metric that it could be chosen by"


def print_best(report: SweepReport) -> None:
    """Print the best trial, the command that runs it again, and which parameters mattered."""
    if report.best is None or report.metric is None:
        print(f"best: {no_best(report)}")
        return
    value = show_number(report.best.metric)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in report.importance.items())
    print_fields(
        [
            ("best", f"trial {report.best.trial}, {report.metric.name} {value}: {show_params(report.best)}"),
            ("again", report.command),
            ("importance", f"{shares} (of the variance between values of one parameter)" if shares else None),
        ]
    )


def print_failures(failed: Sequence[TrialReport]) -> None:
    """Why trials failed: each reason once, with the first trial that has it."""
    by_reason: dict[str, list[TrialReport]] = {}
    for trial in failed:
        by_reason.setdefault(trial.reason or "not known why", []).append(trial)
    for reason, trials in list(by_reason.items())[:MOST_REASONS]:
        runs = trials[0].run if len(trials) == 1 else f"{len(trials)} trials, first {trials[0].run}"
        print(f"failed: {clean(runs)}: {clean(reason)}; longboat explain {clean(trials[0].run)}")
    if len(by_reason) > MOST_REASONS:
        print(f"failed: {counted(len(by_reason) - MOST_REASONS, 'other reason')}: longboat sweep status -o json")


class SweepFollower:
    """Prints what happens to a sweep. Ctrl-C once stops it, twice kills its trials, three times leaves."""

    def __init__(self, home: Home, sweep: OpenSweep, *, quiet: bool) -> None:
        self.home, self.sweep, self.quiet = home, sweep, quiet
        self.record = sweep.record()
        self.phases: dict[int, str] = {}
        self.interrupts = self.passed_on = 0
        self.problem: str | None = None

    def interrupted(self, _number: int, _frame: FrameType | None) -> None:
        self.interrupts += 1
        if self.interrupts > 2:
            raise KeyboardInterrupt

    def run(self) -> SweepState:
        before = signal.signal(signal.SIGINT, self.interrupted)
        try:
            looked = time.monotonic()
            while True:
                state = self.sweep.state()
                self.report(report_of(self.record, state))
                if state.is_final:
                    return state
                self.pass_on()
                if time.monotonic() - looked > DRIVER_S[self.sweep.is_in_cluster]:
                    looked = time.monotonic()
                    self.see_to_driver()
                time.sleep(REMOTE_LOOK_S if self.sweep.is_in_cluster else LOOK_S)
        finally:
            signal.signal(signal.SIGINT, before)

    def see_to_driver(self) -> None:
        problem = ensure_driven(self.home, self.sweep)
        if problem is not None and problem != self.problem:
            note(problem)
        self.problem = problem

    def pass_on(self) -> None:
        """Ctrl-C as a request to stop."""
        if self.interrupts == self.passed_on:
            return
        self.passed_on = self.interrupts
        is_first = self.interrupts == 1
        say(
            f"\nlongboat: stopping {self.record.name}; Ctrl-C again kills its trials"
            if is_first
            else "\nlongboat: killing"
        )
        stop_sweep(self.sweep, None if is_first else 0.0)

    def report(self, report: SweepReport) -> None:
        """Print trials whose phase has changed."""
        changed = [trial for trial in report.trials if self.phases.get(trial.trial) != trial.phase]
        self.phases.update({trial.trial: trial.phase for trial in changed})
        if self.quiet:
            return
        for trial in changed:
            if trial.phase not in (*FINAL, "running", "recovering"):
                continue
            phase = paint(trial.phase, PHASE_COLOURS.get(trial.phase, "dim"), sys.stderr)
            value = show_number(trial.metric)
            metric = f", {report.metric.name} {value}" if report.metric and value and trial.phase in FINAL else ""
            reason = f": {trial.reason}" if trial.reason and trial.phase in ("failed", "recovering") else ""
            say(clean(f"longboat: {trial.run} ({show_params(trial)}) ") + phase + clean(f"{metric}{reason}"))


def follow(home: Home, sweep: OpenSweep, *, quiet: bool) -> int:
    """Print what happens until the sweep has ended, then its board; the exit code of the sweep."""
    follower = SweepFollower(home, sweep, quiet=quiet)
    if not quiet:
        report = report_of(follower.record, sweep.state())
        say(f"longboat: sweep {report.name}: {counted(report.planned or 0, 'trial')}, {report.parallel} at once")
    state = follower.run()
    if not quiet:
        print_board(report_of(follower.record, state))
    return exit_code(state)
