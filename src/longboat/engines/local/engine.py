"""The embedded engine: the promises of engines/engine.py kept with plain files and processes of this machine."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longboat.core.errors import EngineError, NotFound, UsageError, WaitTimeout
from longboat.core.guards.interrupts import held_interrupts
from longboat.core.plans import Plan
from longboat.core.runs import Explanation, LogLine, LogQuery, PrunedItem, PruneQuery, RunStatus
from longboat.engines.engine import Submission
from longboat.engines.local.records import LocalRecord, LocalState
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.settings import LocalSettings
from longboat.engines.local.status import ENGINE, EndedRuns, brief_status, full_status
from longboat.engines.local.supervise.spawn import first_environment, nap, spawn, take_over
from longboat.engines.local.supervise.wakeups import wake
from longboat.engines.shared.files import write_value
from longboat.engines.shared.home import Home, check_run_id

if TYPE_CHECKING:
    from longboat.bundles.manifests import CodeSnapshot
    from longboat.engines.lifecycle.outlook import Outlook
    from longboat.engines.local.containers.choice import ContainerChoice
    from longboat.engines.local.logs import LogFileFollower
    from longboat.engines.local.submit.preparation import SubmissionPreparation
    from longboat.metrics.values import Activity, RunMetrics
    from longboat.storage.inventory.entries import CheckpointPlace

SHORT_RUN_S = 2.0
"""For this long a follower looks often: the end of a short run is shown at once."""
RECOVERY_S = 1.0
"""How often a waiting command checks that the run's supervisor is alive."""


class LocalEngine:
    """Runs on this machine. `on_notice` is told what the user should know but that stops nothing."""

    name = ENGINE
    takes_over: bool = True

    def __init__(
        self,
        home: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        on_notice: Callable[[str], None] | None = None,
        settings: LocalSettings = LocalSettings(),  # noqa: B008
    ) -> None:
        self.environment = dict(os.environ if environment is None else environment)
        self.home = Home(home, environment=self.environment)
        self._ended = EndedRuns(self.home)
        self._notice = on_notice or (lambda text: None)
        self._settings = settings

    # submitting

    def plan(self, submission: Submission) -> Plan:
        from longboat.engines.local.submit.plan import make_plan

        prepared = self._preparation().prepare(submission)
        return make_plan(self.home, prepared.submission, prepared.notices, containers=prepared.containers)

    def submit(self, submission: Submission) -> RunStatus:
        from longboat.engines.local.submit.preparation import take_code
        from longboat.engines.local.submit.submission import make_claims

        if submission.run_id is not None:
            check_run_id(submission.run_id)
            if (self.home.runs / submission.run_id).exists():
                return self._replayed(submission, submission.run_id)
        prepared = self._preparation().prepare(submission)
        submission = prepared.submission
        for notice in prepared.notices:
            self._notice(notice)
        self.home.prepare()
        make_claims(self.home, submission.job)
        snapshot, diff = take_code(self.home, prepared, self._notice)
        return self._create(submission, snapshot, diff, prepared.containers)

    def _create(
        self, submission: Submission, snapshot: CodeSnapshot | None, diff: bytes | None, containers: ContainerChoice
    ) -> RunStatus:
        from longboat.engines.local.submit.submission import create_run, free_name, record_of

        while True:
            name = submission.run_id or free_name(self.home, submission)
            record = record_of(
                self.home,
                submission,
                name=name,
                snapshot=snapshot,
                containers=containers,
                gpu_isolation=self._settings.gpu_isolation,
            )
            with held_interrupts() as pressed:  # a run without a supervisor would be started by whoever looks next
                created = create_run(self.home, record, diff)
                if created is not None:
                    self._launch(submission, record, *created)
            if pressed and created is not None:
                self.stop(name)
            if pressed:
                raise KeyboardInterrupt
            if created is not None:
                return brief_status(record, LocalState(reason="is being started"))
            if submission.run_id is not None:
                return self._replayed(submission, submission.run_id)

    def _launch(self, submission: Submission, record: LocalRecord, files: RunFiles, lock: int) -> None:
        try:
            stdin = submission.stdin if record.containers is None else None
            spawn(files, lock, first_environment(record, submission.environment, files.directory), stdin=stdin)
        finally:
            os.close(lock)

    def _replayed(self, submission: Submission, run: str) -> RunStatus:
        """The run that has this id already, if it is of the same job."""
        from longboat.engines.refusals import check_same_job

        job = self._preparation().job_of(submission)
        status = self.status(run)
        if RunFiles(self.home.run_dir(run)).stored_record() is not None:  # of a damaged record the job is not known
            check_same_job(status, job)
        return status

    def _preparation(self) -> SubmissionPreparation:
        from longboat.engines.local.submit.preparation import SubmissionPreparation

        return SubmissionPreparation(self.home, self.environment, self._settings)

    def resubmission(self, run: str) -> Submission:
        from longboat.engines.lifecycle.resubmission import with_recorded
        from longboat.engines.local.records import KEPT_VARIABLES

        files = RunFiles(self.home.run_dir(run))
        files.check_format()
        record = files.stored_record()
        if not files.is_own():
            raise UsageError(f"{run} is a run of another user", hint="only its owner runs it again")
        if record is None:
            raise EngineError(f"the record of {run} is damaged: it cannot be run again", hint="run its job file again")
        environment = with_recorded(self.environment, record.environment, KEPT_VARIABLES)
        return Submission(
            job=record.job,
            base=record.base,
            code=record.bundle,
            outside=record.outside,
            root=record.root,
            environment=environment,
            in_place=record.in_place is not None,
        )

    @property
    def gpu_hour(self) -> float:
        return self._settings.gpu_hour

    def outlook(self, submission: Submission) -> Outlook:
        """Whether it could run now; makes and takes nothing."""
        from longboat.engines.local.submit.outlook import outlook_of

        return outlook_of(self.home, self._preparation(), submission, self.gpu_hour)

    # observing

    def list(self) -> Sequence[RunStatus]:
        seen: list[tuple[RunFiles, LocalRecord]] = []
        recovered = []
        statuses, names = self._ended.look()
        for name in names:
            files = RunFiles(self.home.runs / name)
            try:
                record, state = files.record(), files.state()
                if state.is_final:
                    statuses.append(self._ended.keep(brief_status(record, state)))
                    continue
                if self._recover(files, record):
                    recovered.append(files)
                seen.append((files, record))
            except NotFound:
                continue
            except EngineError as error:
                self._notice(error.message)
        _settle(recovered)
        statuses += [brief_status(record, files.state(), files) for files, record in seen if files.directory.is_dir()]
        return sorted(statuses, key=lambda status: (-status.created, status.name))

    def with_steps(self, runs: Sequence[RunStatus]) -> Sequence[RunStatus]:
        return runs  # `list` reads them with the rest

    def status(self, run: str) -> RunStatus:
        return self._with_figures(full_status(*self._observe(run)))

    def _with_figures(self, status: RunStatus) -> RunStatus:
        from longboat.metrics.judgements import with_figures

        return with_figures(status, time.time())

    def metrics_of(self, run: str) -> RunMetrics:
        from longboat.engines.local.metrics import metrics_of_run

        files, record, state = self._observe(run)
        return metrics_of_run(files, brief_status(record, state, files))

    def activity(self) -> Activity:
        from longboat.engines.local.metrics import activity_of

        return activity_of(self.home, self.list(), self.environment)

    def _observe(self, run: str) -> tuple[RunFiles, LocalRecord, LocalState]:
        """The run's files; a vanished supervisor is replaced on the way."""
        files = RunFiles(self.home.run_dir(run))
        state = files.state()
        record = files.record()
        if not state.is_final:
            if self._recover(files, record):
                _settle([files])
            state = files.state()
        return files, record, state

    def _recover(self, files: RunFiles, record: LocalRecord) -> bool:
        """Start a new supervisor if the run's own has vanished."""
        return self.takes_over and take_over(files, record, self.environment, self._notice)

    def logs(self, run: str, query: LogQuery, *, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[LogLine]:
        from longboat.engines.local.logs import LogFileFollower, last_lines

        files, record, state = self._observe(run)
        follower = LogFileFollower(files.directory, query)
        lines = follower.lines(files.attempts(), is_last=state.is_final)
        yield from lines if query.tail is None else last_lines(lines, query.tail, of_all=query.tail_of_all)
        if query.follow and not state.is_final:
            yield from self._follow(files, record, follower, is_wanted)

    def _follow(
        self, files: RunFiles, record: LocalRecord, follower: LogFileFollower, is_wanted: Callable[[], bool]
    ) -> Iterator[LogLine]:
        pause = 0.004
        began = checked = time.monotonic()
        while is_wanted():
            is_final = files.state().is_final
            is_silent = True
            for line in follower.lines(files.attempts(), is_last=is_final):
                is_silent = False
                yield line
            if is_final:
                return
            if time.monotonic() - checked > RECOVERY_S:
                self._recover(files, record)
                checked = time.monotonic()
            longest = 0.01 if time.monotonic() - began < SHORT_RUN_S else 0.1
            pause = min(pause * 1.25, longest) if is_silent else 0.004
            nap(pause)

    def wait(self, run: str, *, timeout_s: float | None = None) -> RunStatus:
        files, record, state = self._observe(run)
        started = checked = time.monotonic()
        pause = 0.004
        while not state.is_final:
            now = time.monotonic()
            if timeout_s is not None and now - started >= timeout_s:
                raise WaitTimeout(f"{run} is still {state.phase} after {timeout_s:g} s", hint="the run goes on")
            if now - checked > RECOVERY_S:
                self._recover(files, record)
                checked = now
            nap(pause if timeout_s is None else max(0.0, min(pause, started + timeout_s - now)))
            pause = min(pause * 1.25, 0.2)
            state = files.state()
        files.sync()
        return full_status(files, record, state)

    def set_priority(self, run: str, priority: int) -> None:
        from longboat.engines.lifecycle.priorities import check_waiting

        files, record, state = self._observe(run)
        check_waiting(brief_status(record, state), priority)
        write_value(files.priority, priority)
        wake(files)

    # ending

    def stop(self, run: str, *, grace_s: float | None = None) -> None:
        files, _, state = self._observe(run)
        if state.is_final:
            return
        files.request_stop(grace_s)
        wake(files)

    def delete(self, run: str, *, purge: bool = False) -> None:
        from longboat.engines.local.removal import purge_store_of, remove_leftovers, remove_run

        try:
            directory = self.home.run_dir(run)
        except NotFound:
            remove_leftovers(self.home)  # of a removal of this run that was killed
            if purge and self._purge_left(run):
                return
            raise
        RunFiles(directory).check_format()
        try:
            _, _, state = self._observe(run)
            if not state.is_final:
                self.stop(run)
                self.wait(run)
        except EngineError as error:
            self._notice(f"{error.message}; removing what is there")
            RunFiles(directory).request_stop()
            wake(RunFiles(directory))
        if purge:
            purge_store_of(self.home, RunFiles(directory), self.environment)
        left = remove_run(self.home, directory, purge=purge)
        if left.checkpoints is not None:
            self._notice(f"checkpoints of {run} stay in {left.checkpoints}; longboat rm --purge {run} removes them")
        self._tell_foreign(left.foreign)

    def kept_checkpoints(self, run: str) -> str | None:
        from longboat.engines.local.removal import left_by

        record = left_by(self.home, run)
        return None if record is None else record.checkpoint_store or record.checkpoint_dir

    def _purge_left(self, run: str) -> bool:
        from longboat.engines.local.removal import purge_left

        is_there, foreign = purge_left(self.home, run, self.environment)
        self._tell_foreign(foreign)
        return is_there

    def _tell_foreign(self, paths: Sequence[str]) -> None:
        from longboat.core.words import listing

        if paths:
            self._notice(f"not written by Longboat, so it stays: {listing(paths, 5)}")

    def prune(self, query: PruneQuery) -> Iterator[PrunedItem]:
        from longboat.engines.local.pruning import prune

        return prune(self.home, self.list(), query)

    # beside the ranks

    def exec(self, run: str, command: Sequence[str], *, node: str | None = None, rank: int | None = None) -> int:
        from longboat.engines.local.exec_and_copy import execute

        files, record, state = self._observe(run)
        if not files.is_own():
            # Its environment, PATH included, would be that of a process of ours.
            raise UsageError(f"{run} is a run of another user", hint="commands beside its ranks are for its owner")
        options = {"environment": self.environment, "secrets": self._secrets_of(record)}
        return execute(files, state, command, node=node, rank=rank, **options)

    def _secrets_of(self, record: LocalRecord) -> dict[str, str]:
        """The secrets of a run; one that only its submitter's shell had is missed, and said to be."""
        from longboat.engines.shared.secrets import readable_secrets

        return readable_secrets(self.home, record.job.secrets, self.environment, self._notice)

    def copy_from(self, run: str, source: str, destination: Path, *, node: str | None = None) -> None:
        from longboat.engines.local.exec_and_copy import copy_out

        files, record, state = self._observe(run)
        copy_out(files, record, state, source, destination, node=node)

    def copy_to(self, run: str, source: Path, destination: str, *, node: str | None = None) -> None:
        from longboat.engines.local.exec_and_copy import copy_in

        files, record, state = self._observe(run)
        copy_in(files, record, state, source, destination, node=node)

    def kill_node(self, run: str, node: str, *, launcher_only: bool) -> None:
        from longboat.engines.local.exec_and_copy import kill_node

        kill_node(*self._observe(run), node, launcher_only=launcher_only)

    def note_drill(self, run: str, text: str) -> None:
        write_value(RunFiles(self.home.run_dir(run)).drill, text)

    @contextlib.contextmanager
    def checkpoints(self, run: str) -> Iterator[CheckpointPlace]:
        from longboat.engines.local.submit.checkpoint_place import open_place

        yield open_place(self.home, run, self.environment)

    def explain(self, run: str) -> Explanation:
        from longboat.engines.local.explain import explain_run

        files, record, _ = seen = self._observe(run)
        return explain_run(self.home, files, record, self._with_figures(full_status(*seen)), self.environment)


def _settle(recovered: Sequence[RunFiles]) -> None:
    """Give new supervisors a moment, so that the truth is shown rather than the way to it."""
    deadline = time.monotonic() + RECOVERY_S
    while time.monotonic() < deadline and not all(files.state().is_final for files in recovered):
        time.sleep(0.02)
