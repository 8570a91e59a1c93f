"""The Kubernetes engine: the promises of engines/engine.py kept with objects of a cluster.

Methods that look at a run take its turn (`reconcile.reconciler`) if it is a run of the caller's own, or one that the
caller was asked to stop or remove. Runs of others are looked at and left as they are; their submitters and the
controller drive them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longboat.core.errors import LongboatError, NotFound, Refused, UsageError, WaitTimeout
from longboat.core.plans import Plan
from longboat.core.runs import Explanation, LogLine, LogQuery, PrunedItem, PruneQuery, RunStatus
from longboat.engines.engine import Submission
from longboat.engines.kubernetes.status import ENGINE

if TYPE_CHECKING:
    from longboat.engines.kubernetes.exec.rank_input import RankInput
    from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
    from longboat.engines.kubernetes.records import Record
    from longboat.engines.kubernetes.settings import ClusterSettings
    from longboat.engines.kubernetes.submit.preparation import PreparedRun
    from longboat.engines.kubernetes.submit.submission import Submitter
    from longboat.kubeapi.client import Client
    from longboat.metrics.values import Activity, RunMetrics
    from longboat.storage.inventory.entries import CheckpointPlace


class KubernetesEngine:
    """Runs in one namespace of one cluster. `on_notice` is told what the user should know but that stops nothing."""

    name = ENGINE
    takes_over: bool = True

    def __init__(
        self,
        *,
        context: str | None = None,
        namespace: str | None = None,
        environment: Mapping[str, str] | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        self.environment = dict(os.environ if environment is None else environment)
        self._context, self._namespace = context, namespace
        self._notice = on_notice or (lambda text: None)
        self._opened: tuple[int, Client, ClusterSettings] | None = None
        self._ending: set[str] = set()  # runs that we were asked to end
        self._inputs: dict[str, RankInput] = {}  # uid -> stdin, passed on while the run's log is followed
        self._followed: set[str] = set()  # runs of others, of which that was said

    @property
    def client(self) -> Client:
        return self._open()[0]

    @property
    def settings(self) -> ClusterSettings:
        return self._open()[1]

    def _open(self) -> tuple[Client, ClusterSettings]:
        """Opened when first needed, and again after a fork: connections cannot be shared by processes."""
        if self._opened is None or self._opened[0] != os.getpid():
            from longboat.engines.kubernetes.settings import read_settings
            from longboat.kubeapi.client import Client

            everywhere = read_settings(self.environment)
            context = self._context or everywhere.cluster().context
            client = Client.open(context=context, namespace=self._namespace, environment=self.environment)
            settings = everywhere.cluster(client.context)
            if self._namespace is None and settings.namespace is not None:
                client.close()
                client = Client.open(context=context, namespace=settings.namespace, environment=self.environment)
            self._opened = (os.getpid(), client, settings)
        return self._opened[1], self._opened[2]

    def close(self) -> None:
        if self._opened is not None and self._opened[0] == os.getpid():
            self._opened[1].close()
        self._opened = None

    # submitting

    def plan(self, submission: Submission) -> Plan:
        from longboat.engines.kubernetes.submit.plan import make_plan

        return make_plan(*self.prepared(submission))

    def manifests(self, submission: Submission) -> tuple[list[dict[str, Any]], list[str]]:
        """The run as objects that `kubectl apply` takes and that need no Longboat, and what to know about them."""
        from longboat.engines.kubernetes.submit.plan import make_manifests

        return make_manifests(*self.prepared(submission))

    def submit(self, submission: Submission) -> RunStatus:
        from longboat.engines.kubernetes.names import check_run_id
        from longboat.engines.kubernetes.status import is_unfinished_submission
        from longboat.engines.lifecycle.resubmission import note_of, note_submission
        from longboat.engines.refusals import check_same_job
        from longboat.engines.shared.code_snapshot import with_absolute_secrets
        from longboat.engines.shared.secret_urls import redacted_job

        submission = self._complete(submission)
        if submission.run_id is not None:
            check_run_id(submission.run_id)
            status = self._find(submission.run_id)
            if status is not None and not is_unfinished_submission(status):
                check_same_job(status, redacted_job(with_absolute_secrets(submission)))
                return status
        submitter, prepared = self.prepared(submission)
        record = submitter.submit(prepared, submission.run_id)
        if record is None:
            return self.status(submission.run_id or "")
        note_submission(
            submitter.home,
            record.uid,
            note_of(submission, run=record.name, namespace=record.namespace, code=record.bundle),
        )
        if submission.stdin is not None and record.stdin:
            from longboat.engines.kubernetes.exec.rank_input import RankInput

            self._inputs[record.uid] = RankInput(self.client, record.namespace, submission.stdin, self._notice)
        return self._first_status(record)

    def resubmission(self, run: str) -> Submission:
        from longboat.engines.kubernetes.record_store import find_record, read_record
        from longboat.engines.lifecycle.resubmission import noted_submission
        from longboat.engines.shared.home import Home

        record, _ = read_record(find_record(self.client, run))
        home = Home(environment=self.environment)
        noted = noted_submission(home, record.uid, run=run, namespace=self.client.namespace, job=record.job)
        return self._complete(noted)

    def _first_status(self, record: Record) -> RunStatus:
        """A run that waits at the gate is let in now, if there is room; another one is on its way already."""
        from longboat.engines.kubernetes.records import State
        from longboat.engines.kubernetes.status import STARTING, brief_status

        if record.gated_by != "longboat":
            return brief_status(record, State(reason=STARTING))
        snapshot = self._observe(record.name)
        return brief_status(snapshot.record, snapshot.state)

    def _find(self, run: str) -> RunStatus | None:
        try:
            return self.status(run)
        except NotFound:
            return None

    def _complete(self, submission: Submission) -> Submission:
        import msgspec

        if submission.in_place:
            raise Refused(
                "--in-place runs in a folder of this machine, which the cluster does not have",
                hint="leave it out: the cluster gets a copy of the code; or --engine local",
            )
        if submission.stdin is not None:
            from longboat.engines.kubernetes.exec.rank_input import has_input

            stdin = submission.stdin if has_input(submission.stdin) else None
            submission = msgspec.structs.replace(submission, stdin=stdin)
        if submission.environment:
            return submission
        return msgspec.structs.replace(submission, environment=self.environment)

    def prepared(self, submission: Submission) -> tuple[Submitter, PreparedRun]:
        """A submission that was checked; nothing is created yet. Raises Refused."""
        from longboat.engines.kubernetes.submit.preparation import prepare
        from longboat.engines.kubernetes.submit.submission import Submitter
        from longboat.engines.shared.home import Home

        home = Home(environment=self.environment)
        home.prepare()
        prepared = prepare(self.client, self.settings, home, self._complete(submission))
        return Submitter(self.client, self.settings, home, self._notice), prepared

    # observing

    def list(self) -> Sequence[RunStatus]:
        from longboat.engines.kubernetes.explain.machine_orders import with_orders
        from longboat.engines.kubernetes.reconcile.listing import list_runs

        return with_orders(self.client, list_runs(self.client, self._notice))

    def with_steps(self, runs: Sequence[RunStatus]) -> Sequence[RunStatus]:
        from longboat.engines.kubernetes.reconcile.listing import with_steps

        return with_steps(self.client, runs)

    def status(self, run: str) -> RunStatus:
        from longboat.engines.kubernetes.explain.machine_orders import with_orders
        from longboat.engines.kubernetes.status import full_status

        return with_orders(self.client, [full_status(self.client, self._observe(run))])[0]

    def metrics_of(self, run: str) -> RunMetrics:
        from longboat.engines.kubernetes.logs.metrics_files import metrics_of_run

        return metrics_of_run(self.client, self._observe(run), self._notice)

    def activity(self) -> Activity:
        from longboat.engines.kubernetes.reconcile.listing import activity_of

        return activity_of(self.client, self.list())

    def _observe(self, run: str) -> RunSnapshot:
        from longboat.engines.kubernetes.reconcile.reconciler import turn_or_look

        return turn_or_look(self.client, run, self._may_act).snapshot

    def _may_act(self, record: Record) -> bool:
        """Whether turns of the run are taken here. What a record says of its user is anybody's word: that a turn does
        no harm to whoever takes it does not rest on this, but on `creation`."""
        from longboat.engines.shared.home import current_user

        return self.takes_over and (record.user == current_user() or record.name in self._ending)

    def _drives(self, record: Record) -> bool:
        """`_may_act`, with a notice to a user who follows another user's run: it is not driven from here."""
        may_act = self._may_act(record)
        if not may_act and record.name not in self._followed:
            self._followed.add(record.name)
            self._notice(f"{record.name} is another's run: it is followed here, not restarted or admitted")
        return may_act

    def logs(self, run: str, query: LogQuery, *, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[LogLine]:
        from longboat.engines.kubernetes.record_store import find_record

        snapshot = self._observe(run)
        if query.follow and not snapshot.state.is_final:
            self._drives(snapshot.record)
        is_silent = True
        for line in self._log_lines(snapshot, query, is_wanted):
            is_silent = False
            yield line
        if is_silent and query.follow and is_wanted():
            find_record(self.client, run)  # no line because it was removed under our eyes is another thing than no line

    def _log_lines(self, snapshot: RunSnapshot, query: LogQuery, is_wanted: Callable[[], bool]) -> Iterator[LogLine]:
        """What there is, and with `follow` what comes until the run has ended; its turns are taken here meanwhile."""
        from longboat.engines.kubernetes.logs.merge import RunLogs
        from longboat.engines.kubernetes.status import expiry_words
        from longboat.kubeapi.errors import Forbidden, Unreachable

        is_followed = query.follow and not snapshot.state.is_final
        given = self._inputs.get(snapshot.record.uid)
        on_pod = given.attach if given is not None else None
        with RunLogs(self.client, snapshot.record, query, on_notice=self._notice, on_pod=on_pod) as logs:
            if snapshot.state.expired is not None:
                self._notice(expiry_words(snapshot.record, snapshot.state))
            if not is_followed or query.tail is not None:
                yield from logs.past(snapshot.state)
            if not is_followed:
                return
            with logs.follow(snapshot.state) as live:
                while not live.is_complete and is_wanted():
                    if live.wants_state():
                        try:
                            live.note_snapshot(self._observe(snapshot.record.name))
                        except (Unreachable, Forbidden) as error:
                            live.note_unreachable(error)
                    yield from live.arrived()
                yield from logs.vanished(live)

    def wait(self, run: str, *, timeout_s: float | None = None) -> RunStatus:
        from longboat.engines.kubernetes.reconcile.reconciler import wait_for_end
        from longboat.engines.kubernetes.status import full_status

        snapshot = wait_for_end(self.client, run, timeout_s, self._drives)
        if not snapshot.state.is_final:
            state = snapshot.state
            why = f": {state.reason}" if state.reason else ""
            raise WaitTimeout(f"{run} is still {state.phase} after {timeout_s or 0:g} s{why}", hint="the run goes on")
        return full_status(self.client, snapshot)

    def set_priority(self, run: str, priority: int) -> None:
        from longboat.engines.kubernetes.manifests.workloads import QUEUE_PRIORITY
        from longboat.engines.kubernetes.record_store import PRIORITY
        from longboat.engines.kubernetes.status import brief_status
        from longboat.engines.lifecycle.priorities import check_waiting
        from longboat.kubeapi.kinds import CONFIG_MAP

        snapshot = self._observe(run)
        check_waiting(brief_status(snapshot.record, snapshot.state), priority)
        if snapshot.record.gated_by == "kueue":
            raise UsageError(
                f"{run} waits in a queue of Kueue, which knows priorities by its own classes",
                hint=f"kubectl label its Job or JobSet with {QUEUE_PRIORITY}=NAME",
            )
        self.client.patch(CONFIG_MAP, run, {"metadata": {"annotations": {PRIORITY: str(priority)}}})
        self._observe(run)

    # ending

    def stop(self, run: str, *, grace_s: float | None = None) -> None:
        from longboat.engines.kubernetes.record_store import STOP, stop_text
        from longboat.kubeapi.kinds import CONFIG_MAP

        self._ending.add(run)
        if self._observe(run).state.is_final:
            return
        asked = {"metadata": {"annotations": {STOP: stop_text(self.client.now(), grace_s)}}}
        self.client.patch(CONFIG_MAP, run, asked)
        self._observe(run)

    def kept_checkpoints(self, run: str) -> str | None:
        return None  # what a storage holds of removed runs is not noted anywhere

    def delete(self, run: str, *, purge: bool = False) -> None:
        from longboat.core.words import listing
        from longboat.engines.kubernetes.reconcile.reconciler import wait_for_end
        from longboat.engines.kubernetes.record_store import find_record, read_record
        from longboat.engines.kubernetes.records import State
        from longboat.engines.kubernetes.removal import clear_storage, purge_store, remove_run
        from longboat.engines.lifecycle.resubmission import forget_submission
        from longboat.engines.shared.home import Home

        body = find_record(self.client, run)
        record: Record | None = None
        state = State()
        try:
            record, state = read_record(body)
            if not state.is_final:
                self.stop(run)
                state = wait_for_end(self.client, run, None, self._may_act).state
        except NotFound:
            pass  # Somebody else removes it at the same time; what is left is waited for below.
        except LongboatError as error:
            self._notice(f"{error.message}; removing what is there")
        if record is not None and state.started is not None:
            if purge:
                purge_store(record, self.environment)
            try:
                rest = clear_storage(self.client, record, purge=purge)
                if rest:
                    self._notice(f"not written by Longboat, so it stays: {listing(rest, 5)}")
            except LongboatError as error:
                if purge:
                    raise
                self._notice(f"logs and artifacts of {run} stay in its storage: {error.message}")
        remove_run(self.client, run, body, record)
        if record is not None:
            forget_submission(Home(environment=self.environment), record.uid)

    def prune(self, query: PruneQuery) -> Iterator[PrunedItem]:
        from longboat.engines.kubernetes.pruning import prunable, prune

        def turn(run: str) -> RunSnapshot:
            self._ending.add(run)
            return self._observe(run)

        return prune(self.client, prunable(self.list(), query, self._followed, self._notice), query, turn)

    # beside the ranks

    def exec(self, run: str, command: Sequence[str], *, node: str | None = None, rank: int | None = None) -> int:
        from longboat.engines.kubernetes.exec.files import execute

        return execute(self.client, self._observe(run), command, node=node, rank=rank)

    def copy_from(self, run: str, source: str, destination: Path, *, node: str | None = None) -> None:
        from longboat.engines.kubernetes.exec.files import copy_out

        copy_out(self.client, self._observe(run), source, destination, node=node)

    def copy_to(self, run: str, source: Path, destination: str, *, node: str | None = None) -> None:
        from longboat.engines.kubernetes.exec.files import copy_in

        copy_in(self.client, self._observe(run), source, destination, node=node)

    def kill_node(self, run: str, node: str, *, launcher_only: bool) -> None:
        from longboat.engines.kubernetes.exec.files import kill_pod

        kill_pod(self.client, self._observe(run), node, is_graceful=launcher_only)

    def note_drill(self, run: str, text: str) -> None:
        from longboat.engines.kubernetes.record_store import note_drill

        note_drill(self.client, run, text)

    @contextlib.contextmanager
    def checkpoints(self, run: str) -> Iterator[CheckpointPlace]:
        from longboat.engines.kubernetes.checkpoints import open_place

        with open_place(self.client, self._observe(run), self.environment) as place:
            yield place

    def explain(self, run: str) -> Explanation:
        from longboat.engines.kubernetes.gate.openings import explain_run

        return explain_run(self.client, self._observe(run), self.environment)
