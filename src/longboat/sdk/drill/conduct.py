"""Conduct of a recovery drill: the undisturbed run, the disturbed one, the kills."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from longboat.core.errors import DrillFailed, EngineError, LongboatError, Refused, UsageError
from longboat.core.runs import LogQuery, RunStatus
from longboat.core.times import format_time
from longboat.engines.engine import Engine, Submission
from longboat.sdk.drill.judge import DoneKill, DrillResult, Reference, judge, metric_of, points_of
from longboat.sdk.drill.kills import Kill
from longboat.sdk.drill.trace import TracedStep, read_step, traced

REPORT = "a trainer reports them with longboat.step(n, loss=...)"
NOT_THE_RANK = 3
KILL_RANK = f"""
seen=$(tr '\\0' '\\n' <"/proc/$1/environ") || exit {NOT_THE_RANK}
newline='
'
seen=$newline$seen$newline
case $seen in *"${{newline}}LONGBOAT_RUN_UID=$2$newline"*) ;; *) exit {NOT_THE_RANK} ;; esac
for name in LONGBOAT_RANK RANK OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID; do
    case $seen in
    *"$newline$name=$3$newline"*) kill -9 "$1"; exit ;;
    *"$newline$name="*) exit {NOT_THE_RANK} ;;
    esac
done
exit {NOT_THE_RANK}
"""
"""Kills a process only if it is that rank of that run: its number comes from a line of the log, where anybody writes.
The first of the variables that is there counts, as for `longboat.rank()`: mpirun numbers its processes itself."""


class Drill:
    """One drill on one engine. `tell` is told what is being done."""

    def __init__(
        self,
        engine: Engine,
        kills: Sequence[Kill],
        *,
        metric: str | None,
        tolerance: float,
        tell: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._kills = list(kills)
        self._metric = metric
        self._tolerance = tolerance
        self._tell = tell

    def run(self, submission: Submission, reference: str | None) -> DrillResult:
        """Carry it out; `reference`: a run that has ended well, instead of one that is made for this. Raises Refused
        where the job cannot be drilled."""
        if reference is None:
            undisturbed, steps, _ = self._carry_out(submission, ())
            name = undisturbed.name
            if undisturbed.phase != "succeeded":
                why = undisturbed.reason or undisturbed.cause
                raise DrillFailed(f"{name} failed without being disturbed: {why}", hint=f"longboat explain {name}")
        else:
            name, steps = reference, self._traced_steps(reference)
        compared_with = self._reference(name, steps)
        kills = self._placed(compared_with, self._checkpoint_steps(name))
        status, steps, done = self._carry_out(submission, kills, compared_with.ranks)
        if len(done) < len(kills):
            why = status.reason or "it was over"
            raise DrillFailed(
                f"{status.name} {status.phase} before {kills[len(done)]} could be killed: {why}",
                hint="name an earlier step: --kill rank=0@step=N",
            )
        result = judge(compared_with, status, steps, done, self._tolerance)
        for run in dict.fromkeys((status.name, name)):
            self._engine.note_drill(run, note_of(result))
        return result

    def _carry_out(
        self, submission: Submission, kills: Sequence[Kill], ranks: Collection[int] = ()
    ) -> tuple[RunStatus, list[TracedStep], list[DoneKill]]:
        """One run from beginning to end. `ranks`: those that report steps."""
        job = traced(submission.job, kills)
        labels = {**job.labels, "longboat-drill": "disturbed" if kills else "reference"}
        submitted = self._engine.submit(
            msgspec.structs.replace(submission, job=msgspec.structs.replace(job, labels=labels), run_id=None)
        )
        run = submitted.name
        self._tell(f"run {run}: " + (f"kills {', '.join(map(str, kills))}" if kills else "undisturbed"))
        steps: list[TracedStep] = []
        done: list[DoneKill] = []
        resumed: dict[int, str | None] = {0: None}
        try:
            for line in self._engine.logs(run, LogQuery(follow=True)):
                step = read_step(line)
                if step is None:
                    continue
                steps.append(step)
                if step.attempt not in resumed:
                    resumed[step.attempt] = self._resumed_from(run, step.attempt)
                kill = kills[len(done)] if len(done) < len(kills) else None
                if kill is not None and step.attempt >= len(done) and is_due(kill, steps, ranks):
                    done.append(self._kill(submitted, kill, steps))
            return with_resumed(self._engine.wait(run), resumed), steps, done
        except BaseException:
            with contextlib.suppress(LongboatError):
                self._engine.stop(run)
            raise

    def _resumed_from(self, run: str, attempt: int) -> str | None:
        """Asked while the attempt is under way: what a node that is killed would have said at its end is lost."""
        attempts = self._engine.status(run).attempts
        return next((each.resumed_from for each in attempts if each.number == attempt), None)

    def _kill(self, run: RunStatus, kill: Kill, steps: Sequence[TracedStep]) -> DoneKill:
        if kill.kind == "rank":
            pid = next(each.pid for each in reversed(steps) if each.rank == kill.rank)
            command = ["sh", "-c", KILL_RANK, "sh", str(pid), run.uid, str(kill.rank)]
            code = self._engine.exec(run.name, command, rank=kill.rank)
            if code == NOT_THE_RANK:
                raise EngineError(
                    f"process {pid} is not rank {kill.rank} of {run.name}, and was not killed",
                    hint="a line of the log looks like a traced step: `longboat-step {...}`",
                )
            if code != 0:
                raise EngineError(f"rank {kill.rank} of {run.name} could not be killed: exit code {code} of kill")
        else:
            self._engine.kill_node(run.name, kill.node, launcher_only=kill.kind == "launcher")
        self._tell(f"run {run.name}: killed {kill}")
        return DoneKill(kill, steps[-1].attempt, time.time())

    # the reference

    def _traced_steps(self, run: str) -> list[TracedStep]:
        status = self._engine.status(run)
        if status.phase != "succeeded":
            raise UsageError(
                f"{run} is {status.phase}: only a run that ended well is compared with",
                hint="longboat wait waits for it; or give the job file",
            )
        lines = self._engine.logs(run, LogQuery())
        return [step for step in map(read_step, lines) if step is not None]

    def _reference(self, run: str, steps: Sequence[TracedStep]) -> Reference:
        if steps:
            metric = metric_of(steps, self._metric)
            if metric is None:
                raise Refused(f"{run} reports no {self._metric or 'metrics'}: there is nothing to compare", hint=REPORT)
            return Reference(run, points_of(steps, metric), max(each.step for each in steps), metric)
        return self._of_series(run)

    def _of_series(self, run: str) -> Reference:
        """Of a run whose steps were not traced: the series that its launchers kept."""
        series = self._engine.metrics_of(run).series
        points = [TracedStep(0, 0, step, at, 0, {name: value}) for name in series for step, at, value in series[name]]
        if not points:
            raise Refused(f"{run} reports no steps: where it resumes cannot be seen", hint=REPORT)
        metric = metric_of(points, self._metric)
        if metric is None:
            raise Refused(f"{run} reports no {self._metric}", hint=f"it reports {', '.join(sorted(series))}")
        last = max(each.step for each in points)
        return Reference(run, points_of(points, metric), last, metric, is_merged=True)

    def _checkpoint_steps(self, run: str) -> list[int]:
        with self._engine.checkpoints(run) as place:
            steps = [entry.step for entry in place.entries() if entry.complete]
        if not steps:
            raise Refused(
                f"{run} wrote no checkpoints: there is nothing to resume from",
                hint="with longboat.checkpoint(step) as folder: save(folder); docs/checkpoints.md",
            )
        return steps

    def _placed(self, reference: Reference, checkpoints: Sequence[int]) -> list[Kill]:
        """Kills with their steps; one without gets a step shortly after a checkpoint."""
        reported = sorted({step for _, step in reference.points})
        kills = [
            kill if kill.step is not None else msgspec.structs.replace(kill, step=step_after(checkpoints, reported))
            for kill in self._kills
        ]
        for kill in kills:
            if reference.ranks and kill.rank not in reference.ranks:
                raise Refused(
                    f"rank {kill.rank} of {reference.run} reports no steps: when to kill it is not known", hint=REPORT
                )
            if kill.step is not None and kill.step > reference.last_step:
                raise Refused(
                    f"step {kill.step} is never reached: the last step of {reference.run} is {reference.last_step}",
                    hint=f"--kill {kill.kind}=...@step=N with N up to {reference.last_step}",
                )
        return kills


def is_due(kill: Kill, steps: Sequence[TracedStep], ranks: Collection[int]) -> bool:
    """Whether all ranks that report steps have reached that of the kill, in the attempt under way. They wait there, so
    that none is far ahead of another when it happens: ranks that do not talk to each other may be."""
    there = {each.rank for each in steps if each.attempt == steps[-1].attempt and each.step >= (kill.step or 0)}
    return kill.rank in there and there.issuperset(ranks)


def with_resumed(status: RunStatus, resumed: Mapping[int, str | None]) -> RunStatus:
    attempts = [
        msgspec.structs.replace(attempt, resumed_from=attempt.resumed_from or resumed.get(attempt.number))
        for attempt in status.attempts
    ]
    return msgspec.structs.replace(status, attempts=tuple(attempts))


def step_after(checkpoints: Sequence[int], reported: Sequence[int]) -> int:
    """A step in the middle between two checkpoints: it shows whether what came after the first is computed again."""
    inner = [step for step in sorted(checkpoints) if step < reported[-1]]
    if not inner:
        return reported[len(reported) // 2]
    following = next((step for step in sorted(checkpoints) if step > inner[0]), reported[-1])
    between = [step for step in reported if inner[0] < step <= following]
    return between[len(between) // 2] if between else reported[-1]


def note_of(result: DrillResult) -> str:
    """One sentence for the run's status."""
    when = format_time(time.time())
    if not result.ok:
        return f"resume FAILED {when}: {result.failures[0].detail}"
    words = [
        f"{recovery.kill}, {recovery.lost_steps} steps lost, first step after {recovery.first_step_s:.1f} s"
        for recovery in result.recoveries
    ]
    return f"resume verified {when}: {'; '.join(words)}; {result.metric} within {result.tolerance:g}"
