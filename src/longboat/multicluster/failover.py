"""Failover of a waiting run: submits it, and moves it to the next place where it would not wait (`failover_steps`).

One command at a time looks after a run. Each turn looks, does at most one thing and writes down where it is; a place
that does not answer is asked again in the next turn. The code is that of the first submission, whatever is edited
meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from longboat.core.errors import LongboatError, NotFound, Refused, UsageError
from longboat.core.jobs import Job
from longboat.core.runs import RunStatus
from longboat.engines.engine import Submission
from longboat.engines.shared.files import is_current, open_lock, read_value, try_lock, write_value
from longboat.engines.shared.home import Home, check_run_id
from longboat.multicluster.ask import NamedEngine, ask_each, ask_outlooks
from longboat.multicluster.decide import choose
from longboat.multicluster.failover_steps import FailoverState, is_same_run, judge_leaving, judge_waiting

FOLDER = "failovers"
LOOK_S = 2.0
"""How often a waiting run is looked at: a look takes a turn of it, which is what starts it without a controller."""
ASK_AGAIN_S = 60.0
"""How often the others are asked once the time is over: each question costs a dozen requests in each cluster."""
TOLD_S = 7 * 24 * 3600.0
"""For how long it is told that a run was refused: whoever left it over a weekend is to learn of it."""
SOONER = ("now", "buys")
"""Outlooks for which a run gives up its place in a queue: where it would wait again it has nothing to gain."""


class Failover:
    """Looks after one run. `submission.run_id` names it, the same everywhere; what it acts on is known by its uid."""

    def __init__(
        self,
        home: Home,
        places: Mapping[str, NamedEngine],
        submission: Submission,
        failover_s: float | None,
        *,
        tell: Callable[[str], None],
    ) -> None:
        assert submission.run_id is not None
        check_run_id(submission.run_id)  # it becomes the name of a file
        self._path = home.folder(FOLDER) / f"{submission.run_id}.json"
        self._places, self._submission, self._failover_s = places, submission, failover_s
        self._tell = tell
        self._asked: float | None = None
        self._told = ""
        self._known = self._read()
        self._lock: int | None = None

    @contextlib.contextmanager
    def alone(self, lock: int | None = None) -> Iterator[None]:
        """Raises UsageError where another command looks after the run. `lock`: of who gave it over, and holds it."""
        self._lock = self._acquire() if lock is None else lock
        try:
            self._known = self._read()
            if self._known is not None and self._known.step == "refused":  # it is tried again
                self._finish()
                self._known = None
            yield
        finally:
            if self._lock is not None:
                self._lock_path.unlink(missing_ok=True)  # while it is held: who has opened it sees that it is gone
                self.release()

    def release(self) -> None:
        """Close the lock; a process that was given it holds it on."""
        assert self._lock is not None
        os.close(self._lock)
        self._lock = None

    def _acquire(self) -> int:
        while True:
            lock = open_lock(self._lock_path)
            is_locked = try_lock(lock)
            if is_locked and is_current(lock, self._lock_path):
                return lock
            os.close(lock)
            if not is_locked:
                raise UsageError(
                    f"another command looks after {self._run} already",
                    hint=f"longboat ps --on {','.join(self._places)} shows where it is",
                )

    @property
    def _lock_path(self) -> Path:
        return self._path.with_suffix(".lock")

    @property
    def log_path(self) -> Path:
        """What the process of a detached run writes."""
        return self._path.with_suffix(".log")

    @property
    def lock(self) -> int:
        assert self._lock is not None
        return self._lock

    @property
    def submission(self) -> Submission:
        """With the code of the first submission, once there was one."""
        return self._submission

    @property
    def transfer(self) -> FailoverState | None:
        return self._known

    def begin(self, place: str, status: RunStatus | None = None) -> None:
        """The first place of the run, with its status if it is there already."""
        state = FailoverState(run=self._run, places=(place,), since=time.time(), job=digest(self._submission.job))
        if status is not None:
            state = msgspec.structs.replace(state, step="wait", since=status.created, uid=status.uid)
            self._pin_code(self._places[place])
        self._write(state)

    def check_goes_on(self) -> None:
        """Raises UsageError where a command with another job or without its places takes over the run."""
        assert self._known is not None
        if self._known.job != digest(self._submission.job):
            raise UsageError(
                f"{self._run} is on its way to {self._known.at} already, of another job",
                hint="choose another id, or go on with the job as it was",
            )
        if set(self._known.places) - set(self._places):
            raise UsageError(
                f"{self._run} was given to {', '.join(self._known.places)}",
                hint="name the same places as before with --on",
            )

    @property
    def _run(self) -> str:
        return self._submission.run_id or ""

    def turn(self) -> RunStatus | None:
        """One step. The run once it has started or ended where it is; then nothing is left to do.

        Raises Refused where no place takes it; a place that does not answer raises nothing.
        """
        transfer = self._known
        assert transfer is not None
        steps = {"submit": self._submit, "wait": self._wait, "leave": self._leave}
        try:
            return steps[transfer.step](transfer, self._places[transfer.at])
        except (Refused, NotFound):  # no place takes it, or somebody removed it: it is nowhere, and not on its way
            self._finish()
            raise
        except UsageError:
            if transfer.step == "submit" and not transfer.is_moved:  # nothing was begun
                self._finish()
            raise
        except LongboatError as error:
            self._say(f"{transfer.at} does not answer: {error.message}; {self._run} is not moved before it does")
            return None

    def _submit(self, transfer: FailoverState, place: NamedEngine) -> RunStatus | None:
        try:
            status = place.engine.submit(self._submission)
        except Refused as error:
            self._write(msgspec.structs.replace(transfer, step="leave", refused=error.message))
            return None
        self._pin_code(place)
        if transfer.is_moved:
            self._tell(f"{self._run} is on {place.name} now")
            self._forget(transfer.places[-2], transfer.left_uid)
        self._write(msgspec.structs.replace(transfer, step="wait", since=time.time(), uid=status.uid))
        return self._settled(status) if status.phase != "pending" else None

    def _wait(self, transfer: FailoverState, place: NamedEngine) -> RunStatus | None:
        status = place.engine.status(self._run)
        if not is_same_run(transfer, status):
            raise self._removed(place)
        verdict = judge_waiting(status, time.time() - transfer.since, self._failover_s)
        if verdict == "settled":
            return self._settled(status)
        self._say(f"{self._run} on {place.name}: {status.reason or 'waits'}")
        is_due = verdict == "ask" and (self._asked is None or time.monotonic() - self._asked >= ASK_AGAIN_S)
        if is_due and (better := self._better(transfer)):
            self._write(msgspec.structs.replace(transfer, step="leave", next=better))
        return None

    def _leave(self, transfer: FailoverState, place: NamedEngine) -> RunStatus | None:
        try:
            status: RunStatus | None = place.engine.status(self._run)
        except NotFound:
            status = None
        verdict = judge_leaving(transfer, status)
        if verdict == "removed":
            raise self._removed(place)
        if verdict == "settled":
            if transfer.is_stopping:
                self._tell(f"{self._run} has started on {place.name} meanwhile: it does not move")
            self._write(msgspec.structs.replace(transfer, step="wait", refused=""))
        elif verdict == "stop":
            assert status is not None
            self._pin_code(place)  # should the answer have been lost when it was submitted
            self._write(msgspec.structs.replace(transfer, is_stopping=True, uid=status.uid))
            place.engine.stop(self._run)
        elif (better := transfer.next or self._better(transfer)) is not None:
            self._tell(f"{self._run} leaves {place.name}: {transfer.refused or 'it waited too long'}")
            self._write(self._moved(transfer, better))
        else:
            raise Refused(transfer.refused, hint=f"no other of {', '.join(self._places)} could run it")
        return None

    def _moved(self, transfer: FailoverState, place: str) -> FailoverState:
        return FailoverState(
            run=self._run,
            places=(*transfer.places, place),
            since=time.time(),
            job=transfer.job,
            left_uid=transfer.uid,
        )

    def _removed(self, place: NamedEngine) -> NotFound:
        return NotFound(f"{self._run} was removed from {place.name}", hint="it is not moved: run it again")

    def _better(self, transfer: FailoverState) -> str | None:
        """The best of the places that have not had it: sooner than a queue, or at all where the present one refused."""
        self._asked = time.monotonic()
        left = [place for name, place in self._places.items() if name not in transfer.places]
        # A run of this name there is another's: only who answers that there is none may get ours.
        names = ask_each(left, lambda place: place.engine.status(self._run))
        left = [place for place, answer in zip(left, names) if isinstance(answer, NotFound)]
        asked = ask_outlooks(left, self._submission)
        is_refused = bool(transfer.refused)
        able = choose([place for place in asked if is_refused or place.outlook.answer in SOONER])
        if not able.order and left:
            self._say(f"{self._run} stays on {transfer.at}: it would start no sooner elsewhere")
        return able.order[0] if able.order else None

    def stop(self) -> None:
        """Ask the run to stop where it is, if it is there; it moves no more."""
        assert self._known is not None
        engine = self._places[self._known.at].engine
        with contextlib.suppress(LongboatError):  # who does not answer keeps it: the same command goes on
            with contextlib.suppress(NotFound):
                if is_same_run(self._known, engine.status(self._run)):
                    engine.stop(self._run)
            self._finish()

    def refuse(self, reason: str) -> None:
        """Write down that it runs nowhere, for whoever asks (`lost_runs`)."""
        assert self._known is not None
        self._write(msgspec.structs.replace(self._known, step="refused", refused=reason, since=time.time()))

    def _settled(self, status: RunStatus) -> RunStatus:
        self._finish()
        return status

    def _finish(self) -> None:
        self._path.unlink(missing_ok=True)
        self.log_path.unlink(missing_ok=True)

    def _pin_code(self, place: NamedEngine) -> None:
        if self._submission.code is not None:
            return
        with contextlib.suppress(LongboatError):  # submitted from elsewhere: then the folder is all there is
            self._take_code(place.engine.resubmission(self._run))

    def _take_code(self, first: Submission | FailoverState) -> None:
        if first.code is not None:
            self._submission = msgspec.structs.replace(
                self._submission, code=first.code, outside=first.outside, root=first.root
            )

    def _forget(self, name: str, uid: str) -> None:
        """Remove what never started from the place that it left; a stopped run there does no harm."""
        with contextlib.suppress(LongboatError):
            engine = self._places[name].engine
            status = engine.status(self._run)
            if status.uid == uid and status.started is None:
                engine.delete(self._run)

    def _read(self) -> FailoverState | None:
        """Where the run is on its way. The folder may have been edited since: the code is that which was submitted."""
        known = read_value(self._path, FailoverState)
        if known is not None and known.step != "refused":
            self._take_code(known)
        return known

    def _write(self, transfer: FailoverState) -> None:
        first = self._submission
        transfer = msgspec.structs.replace(transfer, code=first.code, outside=first.outside, root=first.root)
        write_value(self._path, transfer, is_durable=True)
        self._known = transfer

    def _say(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._tell(text)


def digest(job: Job) -> str:
    return hashlib.sha256(msgspec.json.encode(job)).hexdigest()


def lost_runs(home: Home) -> dict[str, str]:
    """Runs of detached commands that run nowhere or that nobody looks after any more, each with what to know."""
    lost = {}
    for path in sorted((home.root / FOLDER).glob("*.json")):
        state = read_value(path, FailoverState)
        if state is None:
            continue
        log = path.with_suffix(".log")
        if state.step == "refused":
            if time.time() - state.since > TOLD_S:
                for file in (path, log):
                    file.unlink(missing_ok=True)
                continue
            lost[state.run] = f"{state.run} runs nowhere, no place takes it: {state.refused} (see {log})"
        elif _is_free(path.with_suffix(".lock")):
            lost[state.run] = (
                f"nobody looks after {state.run} any more, which was given to {state.at}: "
                f"the same command with --id {state.run} goes on"
            )
    return lost


def _is_free(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        return try_lock(lock)
    finally:
        os.close(lock)
