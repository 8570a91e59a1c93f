"""The exec provider: machines by four commands of the user (list, grow, shrink, describe), JSON in and out.

A command is started without a shell unless it is written as one text, as its own process group, with a time limit, and
gets nothing but the question; the protocol is in docs/autoscaler.md. Whatever goes wrong becomes one ProviderError.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from longboat.autoscaler.model.provider_settings import ExecSettings, Verb
from longboat.autoscaler.model.snapshot import FailureKind, Pool
from longboat.autoscaler.providers.bounded_process import OutputTooLarge, communicate
from longboat.autoscaler.providers.provider import (
    KINDS,
    Description,
    Instance,
    MachineRequest,
    ProviderAnswer,
    ProviderError,
    Refusal,
)
from longboat.core.guards.decoding import decode
from longboat.core.jobs import Command, Value
from longboat.core.words import counted
from longboat.fitting.model.quantities import show_number

MOST_BYTES = 16 << 20  # of an answer: 300 bytes for each of `MOST_MACHINES`
MOST_MACHINES = 50_000
"""Ten times the nodes that Kubernetes is made for: more is a mistake of the command."""
LONGEST = 1024
"""Characters of an id, name or token."""
SHOWN = 300  # enough of a program's stderr to see its error
T = TypeVar("T")


class _Machines(Value, frozen=True):
    """What list and grow print. `machines` must be there: an answer that lost it must not look like an empty cloud."""

    machines: tuple[Instance, ...]
    refusals: tuple[Refusal, ...] = ()


class _Nothing(Value, frozen=True):
    """What shrink prints."""


class _Wrong(Value, frozen=True):
    class Error(Value, frozen=True):
        kind: str = "other"
        message: str = ""

    error: Error | None = None


class ExecProvider:
    def __init__(self, name: str, settings: ExecSettings) -> None:
        self.name, self.settings = name, settings

    def list(self, pools: Sequence[Pool]) -> ProviderAnswer:
        asked = {"pools": [_pool(pool) for pool in pools]}
        answer = self._ask("list", asked, _Machines)
        self._check("list", answer, {pool.name for pool in pools})
        return ProviderAnswer(machines=answer.machines, refusals=answer.refusals)

    def grow(self, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        asked = {
            "pool": _pool(pool),
            "token": request.token,
            "count": request.count,
            "zone": request.zone,
            "spot": request.spot,
        }
        answer = self._ask("grow", asked, _Machines)
        self._check("grow", answer, {pool.name})
        others = [machine for machine in answer.machines if machine.token not in (None, request.token)]
        if others or len(answer.machines) > request.count:
            problem = (
                f"the machine {others[0].id} of another order" if others else counted(len(answer.machines), "machine")
            )
            raise self._bad("grow", f"printed {problem} for an order of {request.count}")
        return answer.machines

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        asked = {"pool": _pool(pool), "machines": [*machines], "tokens": [*tokens]}
        try:
            self._ask("shrink", asked, _Nothing)
        except ProviderError as error:
            if error.kind != "not-found":
                raise

    def describe(self, pool: Pool) -> Description:
        if self.settings.describe is None:
            return Description()
        return self._ask("describe", {"pool": _pool(pool)}, Description)

    def _ask(self, verb: Verb, question: Mapping[str, Any], into: type[T]) -> T:
        command: Command | None = getattr(self.settings, verb)
        assert command is not None
        out, err, code = self._run(verb, command, msgspec.json.encode({"verb": verb, "version": 1, **question}))
        error = _error_in(out)
        if error is not None:
            kind: FailureKind = next((kind for kind in KINDS if kind == error.kind), "other")
            raise ProviderError(f"{self._what(verb)}: {error.message[:SHOWN] or error.kind}", kind=kind)
        if code != 0:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise ProviderError(f"{self._what(verb)} failed with {how}: {_last_line(err)}")
        if not out.strip() and verb == "shrink":
            out = b"{}"
        try:
            return decode(out, into)
        except (msgspec.DecodeError, UnicodeDecodeError) as bad:
            problem = "printed nothing" if not out.strip() else f"printed what is not understood: {bad}"
            raise self._bad(verb, problem) from None

    def _run(self, verb: Verb, command: Command, question: bytes) -> tuple[bytes, bytes, int]:
        shell = isinstance(command, str)
        try:
            process = subprocess.Popen(
                command,
                shell=shell,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                cwd=self.settings.folder,
                env={**os.environ, **self.settings.env, "LONGBOAT_VERB": verb},
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ProviderError(f"{self._what(verb)} cannot be started: {why}") from None
        try:
            limit_s = self.settings.timeout_s
            out, err = communicate(process, question, timeout_s=limit_s, most_bytes=MOST_BYTES)
        except subprocess.TimeoutExpired:
            raise ProviderError(f"{self._what(verb)} did not end within {self.settings.timeout_s:g} s") from None
        except OutputTooLarge:
            raise self._bad(verb, f"printed more than {MOST_BYTES >> 20} MiB") from None
        finally:
            _end(process)
        return out, err, process.returncode

    def _check(self, verb: Verb, answer: _Machines, pools: set[str]) -> None:
        trouble = mistake_in(answer.machines, answer.refusals, pools)
        if trouble:
            raise self._bad(verb, trouble)

    def _what(self, verb: Verb) -> str:
        return f"provider {self.name}: the command for {verb}"

    def _bad(self, verb: Verb, problem: str) -> ProviderError:
        return ProviderError(f"{self._what(verb)} {problem}", hint="docs/autoscaler.md describes what it must print")


def mistake_in(machines: Sequence[Instance], refusals: Sequence[Refusal], pools: set[str]) -> str:
    """What is wrong with what a command printed, beyond its form; empty: nothing. Pure."""
    if len(machines) > MOST_MACHINES or len(refusals) > MOST_MACHINES:
        return f"printed more than {MOST_MACHINES} machines"
    for machine in machines:
        if not machine.id or machine.pool not in pools:
            return f"a machine ({machine.id[:SHOWN] or 'without id'}) of an unknown pool {machine.pool[:SHOWN]}"
        texts = (machine.id, machine.zone or "", machine.token or "", machine.node or "")
        if any(len(text) > LONGEST or not text.isprintable() for text in texts):
            return f"a machine ({machine.id[:40]!r}) whose id, zone, token or node is too long or is no plain text"
    for refusal in refusals:
        if refusal.pool not in pools:
            return f"a refusal of an unknown pool {refusal.pool[:SHOWN]}"
    ids = Counter(instance.id for instance in machines)
    nodes = Counter(machine.node for machine in machines if machine.node)
    for field, counts in (("id", ids), ("node", nodes)):
        twice = next((name for name, count in counts.items() if count > 1), None)
        if twice is not None:
            return f"two machines have the same {field}, {twice[:SHOWN]}"
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """What it started goes with it: children that are left would hold the machine's locks, or our pipes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                pass


def _error_in(out: bytes) -> _Wrong.Error | None:
    try:
        return decode(out, _Wrong).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _last_line(err: bytes) -> str:
    lines = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:SHOWN] if lines else "it said nothing on stderr"


def _pool(pool: Pool) -> dict[str, Any]:
    """The pool as the commands see it: in Kubernetes' own words."""
    machine = pool.machine
    return {
        "name": pool.name,
        "min": pool.min,
        "max": pool.max,
        "spot": pool.spot,
        "zones": list(pool.zones),
        "machine": {
            "allocatable": {name: show_number(name, count) for name, count in machine.allocatable if count < 1 << 59},
            "labels": dict(machine.labels),
            "taints": [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in machine.taints],
        },
    }
