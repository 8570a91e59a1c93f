"""Jobs of the workbench: one role of one node whose command is the server of the launcher. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

from longboat.core.errors import UsageError
from longboat.core.jobs import DEFAULT_ROLE, Command, Job, Retries, Role, Value

KIND_LABEL = "longboat.dev/workbench"
"""Label of a run that is a board, a notebook or a shell."""
START = 'exec python3 -I -S "$LONGBOAT_LAUNCHER" --workbench'
OPEN, EXACT = "--open", "--exact"
STORED_RUNS = "/longboat/storage/longboat"
"""Where pods see the folders of all runs that share their storage."""


class BoardSelection(Value, frozen=True):
    """Which runs a board shows: folders by name, or all in `runs` that match."""

    runs: str = ""  # the folder with a folder for each run
    names: tuple[str, ...] = ()  # NAME, or NAME=FOLDER where they differ
    labels: tuple[str, ...] = ()  # terms of a label selector
    stores: tuple[str, ...] = ()  # NAME=URL: event files in object stores


class ServerOptions(Value, frozen=True):
    idle_s: float
    port: int = 0  # 0: any that is free
    is_exact: bool = False  # this port or none
    keeps_edits: bool = False  # changed files are put aside for `edits`
    is_open: bool = False  # it listens on every address of its pod


def command(kind: str, options: ServerOptions, extra: Sequence[str] = ()) -> str:
    """The line for the shell of the rank, which knows where the launcher is."""
    words = [kind, "--idle", f"{options.idle_s:g}"]
    words += ["--port", str(options.port)] if options.port else []
    words += [EXACT] if options.is_exact else []
    words += ["--edits"] if options.keeps_edits else []
    words += [OPEN] if options.is_open else []
    return f"{START} {shlex.join([*words, *extra])}"


def board_job(
    selection: BoardSelection,
    options: ServerOptions,
    *,
    program: str = "tensorboard",
    base: Job | None = None,
) -> Job:
    """`base`: where it runs, its image and volumes, in a cluster; without code."""
    words = ["--runs", selection.runs] if selection.runs else []
    words += [word for name in selection.names for word in ("--run", name)]
    words += [word for label in selection.labels for word in ("--label", label)]
    words += [word for store in selection.stores for word in ("--store", store)]
    words += ["--program", program] if program != "tensorboard" else []
    if base is not None:
        job = bench_job(base, "board", options)
        role = msgspec.structs.replace(job.roles[0], run=command("board", options, words))
        return msgspec.structs.replace(job, name="board", roles=(role,), workdir=None)
    role = Role(name=DEFAULT_ROLE, run=command("board", options, words))
    return Job(name="board", roles=(role,), ends=(role.name,), workdir=None, labels={KIND_LABEL: "board"})


def bench_job(job: Job, kind: str, options: ServerOptions) -> Job:
    """A job of the user's with the server as its command: its image, GPUs, setup, volumes, data, secrets stay."""
    role = job.roles[0]
    if len(job.roles) > 1:
        raise UsageError(
            f"a {noun_of(kind)} is on one node, and the job has several roles: {', '.join(r.name for r in job.roles)}",
            hint="give it a job file of one role",
        )
    role = msgspec.structs.replace(role, run=command(kind, options), nodes=1, procs=1)
    return msgspec.structs.replace(
        job,
        roles=(role,),
        ends=(role.name,),
        framework="none",
        framework_reason=f"a {noun_of(kind)}",
        retries=Retries(),
        stall_s=None,
        labels={**job.labels, KIND_LABEL: noun_of(kind)},
    )


def noun_of(kind: str) -> str:
    return {"lab": "notebook", "hold": "shell"}.get(kind, kind)


def is_same(open_board: Job, wanted: Job) -> bool:
    """Whether an open board shows what is wanted, in the same image, and on the port that was named, if one was. How
    long it waits for somebody was said when it was opened."""
    first, second = open_board.roles[0], wanted.roles[0]
    is_port_named = EXACT in _words(second.run)
    return first.image == second.image and _shown(first.run, is_port_named) == _shown(second.run, is_port_named)


def has_stores(board: Job) -> bool:
    """Whether it reads object stores."""
    return "--store" in _words(board.roles[0].run)


def _shown(run: Command, with_port: bool) -> list[str]:
    """The words of a board's command that say what it shows."""
    words, shown = iter(_words(run)), []
    for word in words:
        if word == "--idle" or (word == "--port" and not with_port):
            next(words, None)
        elif with_port or word != EXACT:
            shown.append(word)
    return shown


def _words(run: Command) -> list[str]:
    """Of an open board it is what its record says, which others can write."""
    if not isinstance(run, str):
        return list(run)
    try:
        return shlex.split(run.removeprefix(START))
    except ValueError:
        return [run]
