"""The supervisor: one detached process per run. It waits for its turn, starts the gang, watches, retries, ends.

It is the only writer of the run's state. It may be killed at any moment: the next command that looks at the run finds
its lock free and starts another one (`spawn`), which carries on from the files.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from longboat.core.errors import EngineError, InternalError, LongboatError
from longboat.core.jobs import Job
from longboat.core.layouts import ports_needed
from longboat.core.runs import Failure, latest_step
from longboat.engines.local.queue.budgets import BudgetHold
from longboat.engines.local.queue.elastic_slot import ElasticSlot
from longboat.engines.local.queue.machine import Gpu, LocalMachine, observe_machine
from longboat.engines.local.queue.requests import requests_of
from longboat.engines.local.queue.run_size import POLL_S, RunSize
from longboat.engines.local.queue.slots import Ports, discard_ticket
from longboat.engines.local.records import LocalRecord, LocalState, at_present, changed_attempt
from longboat.engines.local.recovery import ending_of_files
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.attempt_data import AttemptOutputs
from longboat.engines.local.supervise.attempt_files import rank_statuses
from longboat.engines.local.supervise.attempt_folders import AttemptPreparation, layout_of
from longboat.engines.local.supervise.attempt_outcome import AttemptEnd, has_succeeded, judge, stop_code
from longboat.engines.local.supervise.chain import look_at_chain
from longboat.engines.local.supervise.launchers import Launchers
from longboat.engines.local.supervise.processes import identify, reap
from longboat.engines.local.supervise.wakeups import TICK_S, StateKeeper, StoppedBeforeStart, wake
from longboat.engines.shared.files import log_line
from longboat.engines.shared.home import Home
from longboat.engines.shared.retry_policy import (
    InputFailed,
    TimeLimit,
    describe,
    retry_after,
    retry_note,
    start_failure,
)
from longboat.engines.shared.secrets import read_secrets, readable_secrets

CHAIN_S = 0.5
"""How often a run looks at those it starts after: three small files each, and nobody wakes it when they end."""
PRUNE_S = 30.0  # while ranks run: checkpoints come minutes apart, and a look lists a folder
SLOW_END_S = 1.0  # most ranks end sooner when they are asked to
SAVE_S = 600.0
"""How long the end of a run waits for a full disk; after that the next command finds the end from the other files."""


class Supervisor(StateKeeper):
    def __init__(self, directory: Path) -> None:
        super().__init__(RunFiles(directory))
        self.home = Home(directory.parent.parent)
        self._submitted: LocalRecord = self.files.stored_record() or self.files.record()
        self._slot: ElasticSlot | None = None
        self._ports = Ports()
        self._node_ports: list[tuple[int, ...]] = []
        self._gpus: list[tuple[Gpu, ...]] = []
        self._staying: Launchers | None = None  # launchers that have outlived their ranks, for a restart in place
        self._limit = TimeLimit(self.record.job.timeout_s)
        self._ending_since: float | None = None
        self.stdin: int | None = None
        self._outputs = AttemptOutputs(self.home, self.files, self._submitted)
        self._size = RunSize(self._submitted.job, Path(self._submitted.checkpoint_dir), self._machine)

    @property
    def record(self) -> LocalRecord:
        """With the job as the present attempt has it."""
        return at_present(self._submitted, self.state)

    @property
    def job(self) -> Job:
        return self.record.job

    def _machine(self) -> LocalMachine:
        return observe_machine(self.home.root, os.environ, with_gpus=bool(self._submitted.job.gpus))

    def run(self) -> None:
        """From here to the end of the run."""
        before = self.state
        self._save(supervisor=identify(os.getpid()))
        try:
            failure = self._pick_up(before) if before.supervisor is not None else None
            while not self.state.is_final:
                if failure is None:
                    failure = self._attempt()
                if failure is not None:
                    self._after(failure)
                    failure = None
        except StoppedBeforeStart:
            self._finish_stopped()
        finally:
            self._release()
        if self.state.is_final and (self.home.root / "config.yaml").exists():
            from longboat.engines.local.status import notify

            notify(self.home, self.record, self.state)

    # attempts

    def _attempt(self) -> Failure | None:
        """One attempt, from the queue to its end. None when the run has ended for good."""
        self._limit.prepare(time.monotonic())
        try:
            if not self.state.attempt and (never := self._wait_for_runs()) is not None:
                return never
            if self._slot is None or not self._slot.ticket.holds:
                self._wait_for_turn()
            self._save(phase="recovering" if self.state.attempt else "starting", reason="")
            launchers = self._start()
        except StoppedBeforeStart:
            raise
        except LongboatError as error:
            return start_failure(error.cause if isinstance(error, InputFailed) else "setup", error.message)
        try:
            self._watch(launchers)
            self._staying = launchers if launchers.are_staying else None
        finally:
            launchers.rest() if self._staying is launchers else launchers.close()
        return self._conclude(launchers.ending())

    def _conclude(self, ending: AttemptEnd) -> Failure | None:
        problem = self._collect()
        self._note_started(ending)
        failure = judge(ending)
        if failure is not None:
            return failure
        is_resize = self.state.target is not None and self.files.stop_request() is None
        if self.state.target is not None and is_resize and not has_succeeded(ending):
            self._resize(self.state.target)
            return None
        self._close_attempt(None)
        if ending.reason == "stop" and not is_resize:
            self._finish("stopped", exit_code=stop_code(ending), reason="stopped on request")
        else:
            self._finish("succeeded", exit_code=0, reason=problem)
        return None

    def _resize(self, size: int) -> None:
        """The attempt was ended for another size: the next one has it, and is no retry."""
        why = self.state.size_reason
        self._close_attempt(None, resized=why)
        self._outputs.discard("scratch")
        number, resizes = self.state.attempt + 1, self.state.resizes + 1
        self._save(
            is_durable=True, phase="recovering", reason=why, attempt=number, resizes=resizes, size=size, target=None
        )
        if self._slot is None:
            return
        gpus = self._size.settle(self._slot, size)
        if gpus is None:
            self._slot.release()
            self._slot = None
        else:
            self._gpus = list(gpus)
            self._save(gpus=self._slot.ticket.gpus, size_reason="")
            self._wake_waiting()

    def _collect(self) -> str:
        """Keep the artifacts; what went wrong is told, and changes nothing about how the run ended."""
        try:
            self._outputs.collect(self.files.attempt_dir(self.state.attempt))
        except LongboatError as error:
            return f"artifacts are incomplete: {error.message}"
        return ""

    def _note_started(self, ending: AttemptEnd) -> None:
        """A run so short that it was never seen running has started all the same."""
        started = [report.started for report in ending.reports if report.started]
        if started:
            attempts = changed_attempt(self.state, running=min(started))
            self._save(started=self.state.started or min(started), attempts=attempts)

    def _after(self, failure: Failure) -> None:
        """Retry or give up."""
        self._close_attempt(failure)
        delay = retry_after(failure, attempt=self.state.attempt, retries=self.job.retries)
        if self.files.stop_request() is not None:
            self._finish("stopped", exit_code=failure.exit_code, reason="stopped on request")
        elif delay is None:
            self._finish("failed", exit_code=failure.exit_code, reason=describe(failure), cause=failure.cause)
        else:
            self._outputs.discard("scratch")
            number = self.state.attempt + 1
            note = retry_note(failure, number=number, retries=self.job.retries)
            again = {"phase": "recovering", "reason": note, "attempt": number, "cause": failure.cause}
            self._save(is_durable=True, target=None, **again)  # no other size is meant any more
            self._sleep(delay)

    def _close_attempt(self, failure: Failure | None, resized: str = "") -> None:
        ended = time.time()
        try:
            self._outputs.sync_logs(self.files.attempt_dir(self.state.attempt))
        except LongboatError as error:  # a log that cannot be synced is no reason to lose how the attempt ended
            log_line(error.message)
        self._save(attempts=changed_attempt(self.state, ended=ended, failure=failure, resized=resized))

    def _pick_up(self, before: LocalState) -> Failure | None:
        """Another supervisor was here and vanished: let its launchers end, then judge by their files."""
        self._save(phase="recovering", reason="its supervisor was killed; cleaning up")
        discard_ticket(self.home, self.record.name)  # its place in the queue; who needs one again takes another
        secrets = list(readable_secrets(self.home, self.job.secrets, os.environ).values())
        ending = ending_of_files(self.files, self.record, before, secrets)
        return None if ending is None else self._conclude(ending)  # None: between two attempts

    # the steps of an attempt

    def _wait_for_runs(self) -> Failure | None:
        """Wait until all predecessors have succeeded; the failure if one cannot any more."""
        while self.record.after:
            self._raise_if_stopped()
            verdict = look_at_chain(self.home, self.record.after, self.state.succeeded)
            if verdict.action != "wait":
                return start_failure("dependency", verdict.reason) if verdict.action == "never" else None
            if (verdict.reason, verdict.succeeded) != (self.state.reason, self.state.succeeded):
                self._save(phase="pending", reason=verdict.reason, succeeded=verdict.succeeded)
            self._pause(CHAIN_S)
        return None

    def _wait_for_turn(self) -> None:
        job, record = self._submitted.job, self._submitted
        if self._slot is not None:  # of an attempt that failed before it had its turn
            self._slot.release()
        self._slot = slot = ElasticSlot(
            self.home, run=record.name, number=record.number, requests=requests_of(job), priority=job.priority,
            held=BudgetHold(self.home, record, is_new=not self.state.attempts).reason,
        )  # fmt: skip
        while True:
            self._raise_if_stopped()
            wanted = self.files.wanted_priority()
            if wanted is not None and wanted != slot.ticket.priority:
                slot.change_priority(wanted)
                self._save(priority=wanted)
                self._wake_waiting()
            choice, gpus = slot.try_start(self._machine())
            if choice.place is not None:
                self._gpus = gpus
                size = self._size.size_at(choice.place) if len(slot.requests) > 1 else None
                self._save(gpus=slot.ticket.gpus, size=size, size_reason=self._size.words(choice.place, choice.reason))
                self._wake_waiting()
                return
            if choice.reason != self.state.reason:
                self._save(phase="pending", reason=choice.reason)
            self._pause(TICK_S)

    def _start(self) -> Launchers:
        attempt = self.state.attempt
        if len(self._node_ports) != self.job.nodes:
            self._ports.release()
            self._node_ports = self._ports.take(self.home, ports_needed(self.job))
        layout = layout_of(self.record, attempt=attempt, ports=self._node_ports, addresses=self._ports.addresses)
        self._outputs.clear(self.files.attempt_dir(attempt))
        preparation = AttemptPreparation(self.home, self.files, self.record, layout, self._raise_if_stopped)
        secrets = read_secrets(self.home, self.job.secrets, os.environ)
        if self._staying is not None and self._staying.still_stay(secrets):
            return self._restart(self._staying, preparation)
        self._staying = None
        self._outputs.discard("work")
        containers = self._outputs.containers(attempt, lambda text: self._save(reason=text), self._raise_if_stopped)
        resume = self._outputs.resume_from(lambda text: self._save(reason=text), attempt)
        links = self._outputs.links(lambda text: self._save(reason=text))
        environment = self._outputs.environment()
        preparation.make(gpus=self._gpus, links=links, environment=environment, resume_from=resume)
        self._raise_if_stopped()
        launchers = Launchers(preparation.nodes, self.record, attempt=attempt)
        if containers is not None:
            inputs = [*links.values(), *([Path(resume)] if resume else [])]
            launchers.containers = containers.starts(preparation.nodes, self._gpus, inputs, secrets)
        self._open_attempt(resume, "new" if attempt else "")
        assert self._slot is not None
        inherited = [*self._slot.descriptors, *self._ports.descriptors]
        try:
            launchers.start({**os.environ, **secrets}, inherited, self.stdin, before_node=self._raise_if_stopped)
        except StoppedBeforeStart:  # no rank has started: each waits until all nodes are there
            self._close_attempt(None)
            raise
        return launchers

    def _open_attempt(self, resume: str | None, restart: str) -> None:
        """Before the first rank: a power loss must not make this attempt look as if it had never begun."""
        size = self.state.size
        fields = {"started": time.time(), "ended": None, "failure": None, "resumed_from": resume, "restart": restart}
        fields |= {} if size is None else {"size": size, "gpus": self.job.gpus}
        self._save(is_durable=True, attempts=changed_attempt(self.state, **fields))

    def _restart(self, before: Launchers, preparation: AttemptPreparation) -> Launchers:
        """Restart in place: launchers, working copies, data and what setup made are kept."""
        resume = self._outputs.resume_from(lambda text: self._save(reason=text), self.state.attempt)
        environment = self._outputs.environment()
        preparation.make(gpus=self._gpus, links={}, environment=environment, resume_from=resume, kept=before.attempt)
        self._raise_if_stopped()
        self._open_attempt(resume, "in-place")
        launchers = Launchers(preparation.nodes, self.record, attempt=self.state.attempt)
        self._staying = None
        launchers.restart(before)
        return launchers

    def _watch(self, launchers: Launchers) -> None:
        is_running, self._ending_since = False, None
        self._size.begin()
        pause, pruned = 0.01, time.monotonic()
        while True:
            launchers.note_exits(reap())
            if launchers.is_over:
                return
            if not is_running and launchers.reason is None:
                is_running = self._note_running(launchers)
            self._end_if_due(launchers)
            if is_running and self.state.size is not None:
                self._resize_if_due(launchers)
            launchers.check()
            self._note_slow_end(launchers)
            if time.monotonic() - pruned > PRUNE_S:
                self._outputs.prune(self.state.attempt)
                pruned = time.monotonic()
            pause = TICK_S if is_running and launchers.reason is None else min(pause * 1.5, 0.25)
            pause = min(pause, POLL_S) if self._size.is_wanted else pause
            self._pause(min(pause, self._limit.left_s(time.monotonic())))

    def _note_running(self, launchers: Launchers) -> bool:
        phase, missing = launchers.phase()
        if phase == "running":
            self._outputs.note_setup_done()
            now = time.time()
            started = self.state.started or now
            self._save(phase="running", reason="", started=started, attempts=changed_attempt(self.state, running=now))
            # monotonic, for the clock may jump; the time of a supervisor before this one counts too
            self._limit.start(time.monotonic(), earlier_s=max(0.0, now - started))
            return True
        reason = f"waits for {', '.join(missing)}" if missing else {"setup": "runs setup"}.get(phase, "")
        if reason and reason != self.state.reason:
            self._save(reason=reason)
        return False

    def _note_slow_end(self, launchers: Launchers) -> None:
        """Ranks that do not react to SIGTERM take the whole grace: said, for it looks like a hang."""
        if launchers.reason != "failure" or self.state.reason:
            return
        self._ending_since = self._ending_since or time.monotonic()
        if time.monotonic() - self._ending_since > SLOW_END_S:
            self._save(reason=f"a rank has failed; the others have {self.job.grace_s:g} s to end (`grace`)")

    def _end_if_due(self, launchers: Launchers) -> None:
        request = self.files.stop_request()
        if request is not None:
            launchers.end("stop", grace_s=self.job.grace_s if request.grace_s is None else request.grace_s)
        elif self._limit.left_s(time.monotonic()) <= 0:
            launchers.end("timeout")

    def _resize_if_due(self, launchers: Launchers) -> None:
        if self._slot is None or launchers.reason is not None:
            return
        why, size = self._size.look(self._slot, self.state, time.monotonic())
        if why != self.state.size_reason:
            self._save(size_reason=why)
        if size is not None:
            self._save(is_durable=True, target=size)
            launchers.end("stop")

    # the end

    def _finish(self, phase: str, *, exit_code: int | None, reason: str, cause: str | None = None) -> None:
        if self._staying is not None:
            self._staying.close()
        self._outputs.prune()
        self._outputs.forget()
        step, metrics = latest_step(rank_statuses(self.files, self.record, self.state))
        ended = {"exit_code": exit_code, "reason": reason, "cause": cause, "ended": time.time()}
        self._save(is_durable=True, phase=phase, gpus=(), step=step, metrics=metrics, **ended)
        deadline = time.monotonic() + SAVE_S
        while not self._is_saved and time.monotonic() < deadline:
            self._pause(TICK_S)

    def _finish_stopped(self) -> None:
        failures = [attempt.failure for attempt in self.state.attempts if attempt.failure is not None]
        reason = "stopped before its next attempt" if failures else "stopped before its ranks started"
        self._finish("stopped", exit_code=failures[-1].exit_code if failures else None, reason=reason)

    def _release(self) -> None:
        self._ports.release()
        if self._slot is not None:
            self._slot.release()
            self._wake_waiting()
        self._wakeups.close()

    def fail_hard(self, message: str) -> None:
        """Something in Longboat itself broke: the run ends with that. A verdict that was given stays."""
        if not self.state.is_final:
            self._finish("failed", exit_code=InternalError.exit_code, reason=message, cause="lost")

    def _wake_waiting(self) -> None:
        """Tell the first runs of the queue to look again; each that starts tells the next."""
        with contextlib.suppress(EngineError):  # a ticket that may not be read: they look by themselves, too
            for name in self._slot.waiting()[:8] if self._slot else ():
                wake(RunFiles(self.home.runs / name))
