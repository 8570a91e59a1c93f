"""Carries out the steps of a plan: hosts side by side, the steps of one host in order, each after its needs.

A step that fails ends its host's turn and skips what needs it; the other hosts go on. All of it is told as events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from longboat.clusters.apply.restart import restart
from longboat.clusters.apply.step_log import Listener, StepFailure, StepLog
from longboat.clusters.hosts.connection import CommandFailed, Content, HostConnection
from longboat.clusters.plan.journal_shell import HAS_JOURNAL, PRELUDE
from longboat.clusters.plan.steps import RESTART_HELPS, ClusterPlan, HostPlan, Step

Stdin = Callable[[Step], Content]
"""What a step's script reads: kubeadm's configuration, an archive of images, or nothing."""


T = TypeVar("T")


def all_at_once(work: Callable[[T], None], items: Sequence[T]) -> None:
    """Run the work for all items in parallel, one thread each, since they wait for each other. An unexpected error is
    raised when all have ended.
    """
    errors: list[BaseException] = []

    def guarded(item: T) -> None:
        try:
            work(item)
        except BaseException as error:
            errors.append(error)

    turns = [threading.Thread(target=guarded, args=(item,), daemon=True) for item in items]
    for turn in turns:
        turn.start()
    for turn in turns:
        turn.join()
    if errors:
        raise errors[0]


class Execution:
    """One pass over one plan."""

    def __init__(self, hosts: Mapping[str, HostConnection], stdin: Stdin, listen: Listener) -> None:
        self._hosts = hosts
        self._stdin = stdin
        self._log = StepLog(listen)
        self._ended: dict[str, threading.Event] = {}
        self._done: set[str] = set()

    def run(self, plan: ClusterPlan) -> list[StepFailure]:
        self._ended = {step.id: threading.Event() for step in plan.steps}
        all_at_once(self._run_host, [host for host in plan.hosts if host.steps])
        return self._log.failures

    def _run_host(self, host: HostPlan) -> None:
        try:
            is_stopped = False
            for step in host.steps:
                blocker = "" if is_stopped else self._wait_for(step)
                if is_stopped or blocker:
                    self._log.tell(step.host, step.name, "skipped", f"{blocker} failed" if blocker else "")
                    is_stopped = True
                else:
                    is_stopped = not self._try(step)
                if not is_stopped:
                    self._done.add(step.id)
                self._ended[step.id].set()
        finally:  # whatever happened, nobody waits for a step that never comes
            for step in host.steps:
                self._ended[step.id].set()

    def _wait_for(self, step: Step) -> str:
        """Wait for the steps that this one needs; returns one that failed. Steps outside the plan are done already."""
        for needed in step.needs:
            if needed in self._ended:
                self._ended[needed].wait()
                if needed not in self._done:
                    return needed
        return ""

    def _try(self, step: Step) -> bool:
        return self._log.attempt(step.host, step.name, lambda: self._perform(step), title=step.title)

    def _perform(self, step: Step) -> None:
        host, stdin = self._hosts[step.host], self._stdin(step)
        try:
            perform(host, step, stdin, self._log)
        except CommandFailed as error:
            # A busy lock or Secure Boot is the same after a restart: only the script knows whether one helps.
            if step.kind != "restart" or error.result.code != RESTART_HELPS:
                raise
            self._log.tell(step.host, step.name, "line", f"restart: {error.message}")
            restart(host)
            perform(host, step, stdin, self._log)


def perform(host: HostConnection, step: Step, stdin: Content, log: StepLog) -> None:
    """Run a step's script, and record it in the journal."""
    begin = PRELUDE if step.name == "journal" else PRELUDE + HAS_JOURNAL
    script = f"{begin}\n{step.script}\ndone_with {step.name} {step.key}\n"
    on_line = lambda line: log.tell(step.host, step.name, "line", line)  # noqa: E731
    result = host.run(script, stdin=stdin, timeout_s=step.timeout_s, on_line=on_line)
    if result.code != 0:
        raise CommandFailed(step.host, result)
