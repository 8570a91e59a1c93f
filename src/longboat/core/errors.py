"""Exceptions that users meet, as one tree with an exit code each. Every error a user can meet is one of these; foreign
errors end at the edges.

Each class fixes the exit code of the command line. The codes start at 200, where trainers hardly ever exit, so that
Longboat's own failures are not taken for the trainer's.
"""

from __future__ import annotations


class LongboatError(Exception):
    """An error with a message for the user, and what to do next. Shown as `error: ...` and `hint: ...`."""

    exit_code = 200

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InternalError(LongboatError):
    """A bug in Longboat."""

    exit_code = 200


class UsageError(LongboatError):
    """The command line was not understood."""

    exit_code = 201


class Problem:
    """One mistake in a job file: where, what was found, what is allowed."""

    __slots__ = ("file", "line", "column", "path", "message", "hint")

    def __init__(
        self, message: str, *, file: str = "", line: int = 0, column: int = 0, path: str = "", hint: str | None = None
    ) -> None:
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        self.path = path
        self.hint = hint

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place = f"{place}:{self.line}:{self.column}"
        head = ": ".join(part for part in (place, self.path) if part)
        return f"{head}: {self.message}" if head else self.message


class JobError(LongboatError):
    """A job file (or flags that stand for one) has mistakes: all of them, not only the first."""

    exit_code = 201

    def __init__(self, problems: list[Problem], *, hint: str | None = None) -> None:
        super().__init__("\n".join(str(problem) for problem in problems), hint=hint)
        self.problems = problems


class NotFound(LongboatError):
    """No such run, file or field."""

    exit_code = 202


class Refused(LongboatError):
    """A request that can never be met here; the message holds the binding limit, the hint the nearest that fits."""

    exit_code = 203


class BundleError(LongboatError):
    """The user's code, or a cluster's programs, could not be packed or unpacked: too large, damaged, hostile."""

    exit_code = 204


class EngineError(LongboatError):
    """The engine could not do its work: a full disk, a read-only home, a dead API server."""

    exit_code = 205


class SecretMissing(Refused, EngineError):
    """A secret that a job names is not known here; its exit code is that of other things that are not there."""

    exit_code = 202


class StoreUnavailable(EngineError):
    """An object store does not answer, or says that it cannot now: it may be back later, nothing else is wrong."""


class WaitTimeout(LongboatError):
    """`wait --timeout` ended before the run did. The run goes on."""

    exit_code = 206


class DrillFailed(LongboatError):
    """A recovery drill was carried out, and something that it checks did not hold."""

    exit_code = 211


class ServiceDamaged(EngineError):
    """What was wanted of a service cannot be read any more; it may go on all the same."""


class CheckpointDamaged(EngineError):
    """`checkpoint verify` has found that a checkpoint is not what was written."""


OUTPUT_WAITS = "output waits until"
"""In what is said of a full disk: the run goes on once there is room."""

RUN_TIMEOUT_EXIT = 207
"""Exit code of a run ended by its own `timeout`."""

RUN_LOST_EXIT = 208
"""Exit code of a run whose processes vanished (launcher, supervisor or machine) with no rank to blame."""

RUN_SETUP_EXIT = 209
"""Exit code of a run that never started its ranks: peers missing, data not importable."""

RUN_STOPPED_EXIT = 143
"""Exit code for a run that was stopped before its ranks started: that of ranks which a stop ends, 128 + SIGTERM."""

RUN_HANG_EXIT = 210
"""Exit code of a run ended because a rank made no progress for longer than `stall`."""

LAUNCHER_KILLED_CODE = 137
"""What the kernel leaves of a launcher that is killed in a pod. None ends so itself where its Job makes another pod."""

RUN_REPLACED_EXIT = 213
"""Only of a launcher's process in a pod: its Job makes another pod in its place."""

INTERRUPTED_EXIT = 130
"""Ctrl-C ended the command, as a shell has it."""
