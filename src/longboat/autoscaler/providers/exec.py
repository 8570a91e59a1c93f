"""Machines by four commands that a user supplies: list, grow, shrink, describe. JSON on stdin and on stdout.

A command is started without a shell unless it is written as one text, as its own process group, with a time limit, and
gets nothing but the question; the protocol is in docs/autoscaler.md. Whatever goes wrong becomes one ProviderError.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from longboat.autoscaler.providers.configured import ExecSettings, Verb
from longboat.autoscaler.providers.provider import (
    KINDS,
    Description,
    Machine,
    ProviderError,
    Purchase,
    Refusal,
    Seen,
)
from longboat.autoscaler.snapshot import FailureKind, Pool
from longboat.core.jobs import Command, Value
from longboat.fitting.quantities import show_number

MOST_BYTES = 16 << 20
SHOWN = 300
T = TypeVar("T")


class _Machines(Value, frozen=True):
    machines: tuple[Machine, ...] = ()
    refusals: tuple[Refusal, ...] = ()


class _Wrong(Value, frozen=True):
    class Error(Value, frozen=True):
        kind: str = "other"
        message: str = ""

    error: Error | None = None


class ExecProvider:
    def __init__(self, name: str, settings: ExecSettings) -> None:
        self.name, self.settings = name, settings

    def list(self, pools: Sequence[Pool]) -> Seen:
        asked = {"pools": [_pool(pool) for pool in pools]}
        found = self._ask("list", asked, _Machines)
        known = {pool.name for pool in pools}
        for machine in found.machines:
            if not machine.id or machine.pool not in known:
                raise self._bad("list", f"a machine ({machine.id or 'without id'}) of an unknown pool {machine.pool}")
        twice = {one.id for one in found.machines}
        if len(twice) < len(found.machines):
            raise self._bad("list", "two machines have the same id")
        return Seen(machines=found.machines, refusals=found.refusals)

    def grow(self, pool: Pool, purchase: Purchase) -> tuple[Machine, ...]:
        asked = {
            "pool": _pool(pool),
            "token": purchase.token,
            "count": purchase.count,
            "zone": purchase.zone,
            "spot": purchase.spot,
        }
        return self._ask("grow", asked, _Machines).machines

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        asked = {"pool": _pool(pool), "machines": [*machines], "tokens": [*tokens]}
        try:
            self._ask("shrink", asked, _Machines)
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
            kind: FailureKind = next((one for one in KINDS if one == error.kind), "other")
            raise ProviderError(f"{self._what(verb)}: {error.message[:SHOWN] or error.kind}", kind=kind)
        if code != 0:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise ProviderError(f"{self._what(verb)} failed with {how}: {_last_line(err)}")
        if not out.strip() and verb == "shrink":
            out = b"{}"
        try:
            return msgspec.json.decode(out, type=into)
        except (msgspec.DecodeError, UnicodeDecodeError) as bad:
            what = "printed nothing" if not out.strip() else f"printed what is not understood: {bad}"
            raise self._bad(verb, what) from None

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
            out, err = process.communicate(question, timeout=self.settings.timeout_s)
        except subprocess.TimeoutExpired:
            raise ProviderError(f"{self._what(verb)} did not end within {self.settings.timeout_s:g} s") from None
        finally:
            _end(process)
        if len(out) > MOST_BYTES:
            raise self._bad(verb, f"printed more than {MOST_BYTES >> 20} MiB")
        return out, err, process.returncode

    def _what(self, verb: Verb) -> str:
        return f"provider {self.name}: the command for {verb}"

    def _bad(self, verb: Verb, what: str) -> ProviderError:
        return ProviderError(f"{self._what(verb)} {what}", hint="docs/autoscaler.md describes what it must print")


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
        return msgspec.json.decode(out, type=_Wrong).error
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
            "taints": [{"key": one.key, "value": one.value, "effect": one.effect} for one in machine.taints],
        },
    }
