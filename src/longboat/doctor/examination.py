"""One examination: facts observed side by side, each within its time, then judged by every check.

Threads are daemons: one that hangs in a system call keeps neither the findings nor the end of the command waiting.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from longboat.core.errors import LongboatError
from longboat.doctor.facts import Fact, NotSeen, Seen
from longboat.doctor.findings import Check, Finding, Judgement, broken, skipped
from longboat.kubeapi.errors import Forbidden

T = TypeVar("T")
_RIGHT = re.compile(r'cannot (\w+) resource "([^"]+)"(?: in API group "([^"]*)")?')


class Examination:
    """Observes facts. An observer gets the examination, to wait for facts that it builds on."""

    def __init__(self, observers: Mapping[Fact[Any], Callable[[Examination], Any]]) -> None:
        self._futures: dict[Fact[Any], Future[Any]] = {fact: Future() for fact in observers}
        self._began = time.monotonic()
        for fact, observer in observers.items():
            thread = threading.Thread(
                target=self._observe, args=(fact, observer), name=f"doctor-{fact.name}", daemon=True
            )
            thread.start()

    def _observe(self, fact: Fact[Any], observer: Callable[[Examination], Any]) -> None:
        try:
            self._futures[fact].set_result(observer(self))
        except BaseException as error:
            self._futures[fact].set_exception(error)

    def get(self, fact: Fact[T]) -> T:
        """A fact, as soon as it is there. Raises what its observer raised; TimeoutError."""
        value: T = self._futures[fact].result(timeout=self._left_s(fact))
        return value

    def _left_s(self, fact: Fact[Any]) -> float:
        return max(0.0, self._began + fact.limit_s - time.monotonic())

    def seen(self) -> Seen:
        """All facts, each waited for no longer than its limit. A bug of an observer is raised."""
        values: dict[Fact[Any], Any] = {}
        problems: dict[Fact[Any], Judgement] = {}
        for fact in self._futures:
            try:
                values[fact] = self.get(fact)
            except (LongboatError, FutureTimeout, TimeoutError, NotSeen) as error:
                problems[fact] = _problem(fact, error)
        return Seen(values, problems)


def _problem(fact: Fact[Any], error: Exception) -> Judgement:
    """Why a fact is not known. A right that lacks is no fault; silence is one."""
    if isinstance(error, NotSeen):
        return error.judgement
    if isinstance(error, Forbidden):
        return missing_right(error)
    if isinstance(error, LongboatError):
        return skipped(f"{fact.name}: {error.message}", error.hint)
    hint = "look at the load of the API server and of the nodes; the same command again tries once more"
    return broken(f"{fact.name}: no answer within {fact.limit_s:.0f} s", hint)


def missing_right(error: Forbidden) -> Judgement:
    match = _RIGHT.search(error.message)
    if match is None:  # a quota, or an admission plugin
        return skipped(error.message)
    resource = f"{match[2]}.{match[3]}" if match[3] else match[2]
    return skipped(f"no right to {match[1]} {resource}", "ask an administrator for this right, or for the answer")


def judge(checks: Iterable[Check], seen: Seen) -> list[Finding]:
    """Every check's finding, in their order. Pure."""
    findings = []
    for check in checks:
        try:
            judgement = check.judge(seen)
        except NotSeen as missing:
            judgement = missing.judgement
        is_fine = judgement.status == "ok"
        findings.append(
            Finding(
                name=check.name,
                layer=check.layer,
                status=judgement.status,
                detail=judgement.detail,
                hint=None if is_fine else judgement.hint,
                fix=None if is_fine or judgement.status == "skipped" else check.fix,
            )
        )
    return findings
