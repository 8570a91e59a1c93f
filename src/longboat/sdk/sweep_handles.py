"""Sweeps for Python users: `sweep` begins one, and its handle answers from where the sweep is kept."""

from __future__ import annotations

import os

from longboat.core.errors import NotFound, UsageError
from longboat.engines.engine import Engine, Submission
from longboat.engines.shared.home import Home
from longboat.sdk.arguments import path_of, seconds_of, text_of
from longboat.sdk.handles import Run, engine_of
from longboat.sdk.problems import plain_errors
from longboat.sdk.submit import JobSource, load
from longboat.sdk.sweeps import ensure_driven, open_sweep, remove_sweep, stop_sweep, wait_sweep
from longboat.sweeps.report import SweepReport, report_of


class SweepHandle:
    """One sweep, by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"SweepHandle({self.name!r})"

    @plain_errors
    def status(self) -> SweepReport:
        """The sweep as it is now: `trials`, each with `params`, `phase`, `metric`, `run`, and `best`, one of them."""
        home = Home()
        sweep = open_sweep(home, self.name)
        ensure_driven(home, sweep)
        state = sweep.state()
        return report_of(sweep.record(), state)

    @plain_errors
    def wait(self, timeout_s: float | None = None) -> SweepReport:
        """Block until the sweep has ended. Raises WaitTimeout; the sweep goes on then."""
        home = Home()
        sweep = open_sweep(home, self.name)
        state = wait_sweep(home, sweep, lambda _: None, timeout_s=seconds_of("timeout_s", timeout_s))
        return report_of(sweep.record(), state)

    @plain_errors
    def best(self) -> Run:
        """The run of the best trial so far. Raises NotFound where no trial has reported a metric."""
        report = self.status()
        if report.best is None:
            raise NotFound(
                f"no trial of {self.name} has reported a metric that it could be chosen by",
                hint="the trainer reports one with longboat.step(n, loss=...)",
            )
        return Run(report.best.run, open_sweep(Home(), self.name).engine)

    @plain_errors
    def stop(self) -> None:
        """Ask the sweep to stop and return; `wait` waits for it."""
        home = Home()
        sweep = open_sweep(home, self.name)
        stop_sweep(sweep)
        ensure_driven(home, sweep)

    @plain_errors
    def delete(self, *, purge: bool = False) -> None:
        """Stop it if it runs, then remove it with the runs of its trials; checkpoints stay unless `purge`."""
        home = Home()
        sweep = open_sweep(home, self.name)
        stop_sweep(sweep)
        wait_sweep(home, sweep, lambda _: None)
        remove_sweep(home, sweep, purge=purge)


@plain_errors
def sweep(
    source: JobSource | None = None,
    /,
    *,
    name: str | None = None,
    base: str | os.PathLike[str] | None = None,
    engine: Engine | str | None = None,
    **fields: object,
) -> SweepHandle:
    """Begin a sweep of a job with `sweep` and return at once; it goes on without this process.

    `name` makes it idempotent: the same name with the same job again gives the sweep that exists. The other arguments
    are those of `run`.
    """
    from longboat.sweeps.submit import create_sweep, existing, place_of, plan_sweep, record_of

    checked, folder = load(source, fields)
    if checked.sweep is None:
        raise UsageError("nothing to sweep: the job has no `sweep`", hint='sweep(..., sweep={"lr": [0.1, 0.01]})')
    home, place = Home(), engine_of(engine)
    submission = Submission(
        job=checked,
        base=os.path.abspath(path_of("base", base) if base is not None else folder),
        environment=dict(os.environ),
    )
    named = None if name is None else text_of("name", name)
    record = None if named is None else existing(home, place, named, submission)
    if record is None:
        record = record_of(home, place, submission, named, place_of(place))
        plan_sweep(place, record)
        record = create_sweep(home, place, record)
    ensure_driven(home, open_sweep(home, record.name))
    return SweepHandle(record.name)
