"""A run as the next turn would show it, and whether there is a turn to take; nothing is changed. Taking turns is in
`reconciler`."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from longboat.engines.kubernetes.observe.observe import observe
from longboat.engines.kubernetes.observe.run_copies import Name, RunCopies
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.reconcile.actions import Admit, Decision
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.records import State
from longboat.kubeapi.client import Client

MOST_TURNS = 12
"""Turns that follow from one another without anything having changed; more than any run needs."""
AGAIN_S = 2.0
"""When to do again what had no effect: ask a closed gate, tell somebody who does not listen."""

WORDS_S = 2.0
"""So long a record may lack words about the start of a run: most are out of date before that."""


class Reconciled(msgspec.Struct, frozen=True):
    """A run after a turn, and when to look again although nothing changes."""

    snapshot: RunSnapshot
    again_at: float | None = None


def look(client: Client, run: str) -> Reconciled:
    """The run as a turn would show it; nothing is changed. Raises NotFound."""
    return predicted(observe(client, run, client.now()), client.now())


def predicted(snapshot: RunSnapshot, now: float) -> Reconciled:
    """The run with the state that turns would write before the next action. Pure."""
    decided = Decision()
    for _ in range(MOST_TURNS):
        decided = decide(snapshot, now)
        if decided.state is None:
            break
        snapshot = msgspec.structs.replace(snapshot, state=decided.state)
        if decided.actions:
            break
    again_at = decided.again_at
    # What others have to do, or what is due already, is looked at again and not waited for.
    return Reconciled(
        snapshot, None if again_at is None and not decided.actions else max(again_at or now, now + AGAIN_S)
    )


class CopiedRuns:
    """Says of a run whether it has to be read, by the copy that watches keep of it; told by several threads.

    A copy may lag behind, and then the change that it lacks comes and is judged. All its objects are those of some
    moment, though not of the same one: so nothing is done by it that cannot be taken back, records are written only at
    the version that was seen, and every run is read once in `look_s` whatever its copy shows.
    """

    def __init__(self, look_s: float) -> None:
        self.copies = RunCopies()
        self._look_s = look_s
        self._read_at: dict[Name, float] = {}  # of `time.monotonic`, as are all times here
        self._words_at: dict[Name, float] = {}  # since when a record lacks words and nothing else

    def note_open(self, run: Name) -> None:
        self._read_at.setdefault(run, time.monotonic())

    def note_read(self, run: Name) -> None:
        self._read_at[run] = time.monotonic()
        self._words_at.pop(run, None)

    def forget(self, run: Name) -> None:
        self._read_at.pop(run, None)
        self._words_at.pop(run, None)

    def judge(self, run: Name, now: float) -> CopyVerdict:
        """`now`: by the server's clock."""
        moment = time.monotonic()
        left_s = self._read_at.get(run, moment - self._look_s) + self._look_s - moment
        seen = self.copies.snapshot(*run, now) if left_s > 0 else None
        if seen is None or seen.state.is_final or seen.is_deleting:
            return CopyVerdict()
        decided = decide(seen, now)
        if decided.state is None and not decided.actions:
            self._words_at.pop(run, None)
            return CopyVerdict(pause_s=left_s if decided.again_at is None else min(left_s, decided.again_at - now))
        if says_only_words(seen.state, decided):
            wait_s = self._words_at.setdefault(run, moment) + WORDS_S - moment
            return CopyVerdict(pause_s=wait_s) if wait_s > 0 else CopyVerdict()
        return CopyVerdict(snapshot=seen) if may_act_on_copy(seen, decided) else CopyVerdict()


class CopyVerdict(NamedTuple):
    """A pause: nothing is to be done for so long. A snapshot: a turn may begin with it. Neither: the run is read."""

    pause_s: float | None = None
    snapshot: RunSnapshot | None = None


def says_only_words(state: State, decided: Decision) -> bool:
    """Whether a turn would only say in the record how far the start has come; commands see that for themselves."""
    new = decided.state
    if new is None or decided.actions or new.phase not in ("pending", "starting"):
        return False
    return msgspec.structs.replace(state, reason=new.reason, phase=new.phase) == new


def may_act_on_copy(seen: RunSnapshot, decided: Decision) -> bool:
    """Whether a turn can do no harm by a copy: it asks the gate, which reads everything anew, or notes that all run."""
    if seen.stop is not None:
        return False
    if decided.actions:
        return decided.state is None and [type(action) for action in decided.actions] == [Admit]
    was, new = seen.state, decided.state
    return new is not None and new.phase == "running" and was.phase != "running" and was.attempts == new.attempts
