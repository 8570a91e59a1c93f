"""Error output of the command line: one shape on stderr, one exit code each. Imported only once something has gone
wrong."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from longboat.cli.output.terminal import paint
from longboat.core.errors import (
    INTERRUPTED_EXIT,
    EngineError,
    InternalError,
    JobError,
    LongboatError,
    NotFound,
    UsageError,
)
from longboat.core.words import nearest

BROKEN_PIPE_EXIT = 141
_SHOWN = 200  # characters of a path that is too long to be one
MOST_LISTED = 12  # commands of a group on one line
UNREACHABLE = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EROFS, errno.EIO, errno.ESTALE)
"""What a file system says of a path that it does not give away: the user's to mend, wherever it is met."""
_NO_NUMBER = re.compile(r"(.*) is not (?:a valid|in the range)")
_NO_COMMAND = re.compile(r"No such command '(.*?)'")


def report(error: BaseException) -> int:
    """Print the error to stderr and return its exit code."""
    if isinstance(error, BrokenPipeError):
        silence_stdout()
        return BROKEN_PIPE_EXIT
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        # A question that was not answered with yes, whether by no or by Ctrl-C.
        show_error("interrupted" if isinstance(error, KeyboardInterrupt) else "cancelled, nothing was changed", None)
        return INTERRUPTED_EXIT
    if isinstance(error, click.ClickException):
        error = from_click(error)
    if isinstance(error, OSError):
        error = from_system(error) or error
    if isinstance(error, OSError) and error.filename is None and (reason := stdout_problem()):
        error = lost_output(reason)
    if not isinstance(error, LongboatError):
        error = internal(error)
    elif wants_traceback():
        traceback.print_exception(type(error), error, error.__traceback__)
    if isinstance(error, JobError):
        for problem in error.problems:
            show_error(str(problem), problem.hint)
        show_hint(error.hint)
    else:
        show_error(error.message, error.hint)
    return error.exit_code


def stdout_problem() -> str | None:
    """Why stdout cannot be written to, found by writing a newline; None: it can."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as error:
        return error.strerror
    return None


def lost_output(reason: str, hint: str | None = None) -> EngineError:
    return EngineError(f"cannot write to stdout: {reason}", hint=hint)


def from_system(error: OSError) -> LongboatError | None:
    """What no command can help: the current folder is gone, a path is not for this user. None: it is a bug."""
    from longboat.engines.shared.files import disk_error
    from longboat.engines.shared.home import Home

    if error.filename is None and isinstance(error, FileNotFoundError) and not is_folder_there():
        return NotFound("the current folder is not there any more", hint="cd to a folder that is, then try again")
    named = error.filename if isinstance(error.filename, str) else ""
    is_home = named and is_folder_there() and Path(named).is_relative_to(Home().root)
    if is_home and not isinstance(error, (FileNotFoundError, FileExistsError)):  # these are ours: we made the names
        return disk_error(error, f"use {named}").with_traceback(error.__traceback__)
    if named and error.errno in UNREACHABLE:
        shown = named if len(named) <= _SHOWN else f"{named[:_SHOWN]}..."
        return EngineError(f"cannot use {shown}: {os.strerror(error.errno)}").with_traceback(error.__traceback__)
    return None


def is_folder_there() -> bool:
    """Whether the current folder still is; a shell stays in one that was removed."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def show_error(message: str, hint: str | None) -> None:
    with contextlib.suppress(OSError):  # nobody is left to be told: the exit code says it
        print(f"{paint('error:', 'red', sys.stderr)} {message}", file=sys.stderr)
        show_hint(hint)


def show_hint(hint: str | None) -> None:
    for line in (hint or "").splitlines():
        print(f"{paint('hint:', 'cyan', sys.stderr)} {line}", file=sys.stderr)


def from_click(error: click.ClickException) -> UsageError:
    """Convert an error of click to a UsageError, with our wording, hint and exit code."""
    message = " ".join(line.strip() for line in error.format_message().splitlines())
    hint = None
    ctx = getattr(error, "ctx", None)
    if ctx is not None and isinstance(ctx.command, click.Group) and type(error).__name__ == "NoArgsIsHelpError":
        message = f"{ctx.command_path} needs a command: {', '.join(ctx.command.list_commands(ctx))}"
    if isinstance(error, click.NoSuchOption):
        message = f"no such option: {error.option_name}"
        names = [name for param in ctx.command.params for name in param.opts] if ctx else []
        if near := nearest(error.option_name, [name for name in names if name.startswith("--")]):
            hint = f"did you mean {near[0]}?"
    if isinstance(error, click.BadParameter):
        message = number_problem(error) or message
    if ctx is not None and isinstance(ctx.command, click.Group) and (name := _NO_COMMAND.match(message)):
        return unknown_command(name.group(1), ctx.command.list_commands(ctx), ctx.command_path)
    if hint is None and ctx is not None:
        hint = f"{ctx.command_path} --help shows how it is used"
    return UsageError(message[:1].lower() + message[1:], hint=hint)


def number_problem(error: click.BadParameter) -> str:
    """`--tail: found -1, expected a whole number of at least 0`; empty: something else is wrong."""
    kind = error.param.type if error.param is not None else None
    match = _NO_NUMBER.match(error.message)
    if match is None or error.param is None or not isinstance(kind, (type(click.INT), type(click.FLOAT))):
        return ""
    number = "a whole number" if isinstance(kind, type(click.INT)) else "a number"
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    if low is not None:
        number += f" from {low} to {high}" if high is not None else f" of at least {low}"
    elif high is not None:
        number += f" of at most {high}"
    name = error.param.opts[-1] if isinstance(error.param, click.Option) else error.param.human_readable_name
    return f"{name}: found {match.group(1)}, expected {number}"


def unknown_command(name: str, known: Sequence[str], group: str) -> UsageError:
    if near := nearest(name, known):
        return UsageError(f"no such command: {name}", hint=f"did you mean {group} {near[0]}?")
    if "run" in known and os.path.isfile(name):
        return UsageError(f"no such command: {name}", hint=f"to run it: {group} run {name}")
    listed = f"{group} --help lists the commands" if len(known) > MOST_LISTED else f"{group} has {', '.join(known)}"
    return UsageError(f"no such command: {name}", hint=listed)


def wants_traceback() -> bool:
    return os.environ.get("LONGBOAT_DEBUG", "") not in ("", "0")


def internal(error: BaseException) -> InternalError:
    """Wrap an unexpected exception: its traceback goes to a file, or to stderr with LONGBOAT_DEBUG=1."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    message = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
    if wants_traceback():
        print(text, file=sys.stderr, end="")
        return InternalError(message)
    try:
        return InternalError(message, hint=f"the traceback is in {save_crash(text)}")
    except OSError:
        return InternalError(message, hint="run it again with LONGBOAT_DEBUG=1 to see the traceback")


def save_crash(text: str) -> Path:
    home = Path(os.environ.get("LONGBOAT_HOME") or Path.home() / ".longboat")
    folder = home / "crashes"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    path.chmod(0o600)
    return path


def silence_stdout() -> None:
    """Redirect broken streams to /dev/null, so that the interpreter's flush at exit does not fail."""
    void = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(void, stream.fileno())
    os.close(void)
