"""Opening a workbench: the job of options, the run that is open already, its page in the browser, its edits."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longboat.cli.input.engine_option import placed
from longboat.cli.input.targets import is_job_file
from longboat.cli.output.terminal import clean, is_terminal, note, say
from longboat.core.errors import LongboatError, UsageError, WaitTimeout
from longboat.core.words import listing
from longboat.engines.engine import Engine, Submission

if TYPE_CHECKING:
    from longboat.core.runs import RunStatus
    from longboat.workbench.edits import EditsOfRun
    from longboat.workbench.exposure import Exposure
    from longboat.workbench.sessions import BenchSession

TURN_S = 5.0
"""Between two looks at an open run: how old an edit is at most before it is here."""

MOST_NAMED = 8  # files in one message; the rest is counted


@contextlib.contextmanager
def browser(url: str, *, is_wanted: bool) -> Iterator[None]:
    """Open the browser where there is a person. Its command line is a file's name: the URL may have a token in it."""
    has_screen = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if not (is_wanted and has_screen and is_terminal(sys.stdout)):
        yield
        return
    import html
    import webbrowser

    with tempfile.TemporaryDirectory(prefix="longboat-") as folder:  # which nobody else may enter
        page = os.path.join(folder, "open.html")
        with open(page, "w") as file:
            file.write(f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={html.escape(url)}">\n')
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(f"file://{page}")
        yield


@contextlib.contextmanager
def reached(place: Engine, run: RunStatus, session: BenchSession, port: int | None, usual: int) -> Iterator[str]:
    """The URL by which this machine reaches the server: itself, or one end of a port-forward."""
    from longboat.engines.kubernetes.engine import KubernetesEngine

    if not isinstance(place, KubernetesEngine):
        yield session.url(session.port)
        return
    from longboat.workbench.forwarding import PortForward

    options: dict[str, Any] = {"port": port, "usual": usual, "pod": session.pod, "report": note}
    with PortForward(place.client, run.name, session.port, **options) as forward:
        forward.check()
        yield session.url(forward.port)


def stay(place: Engine, run: str, edits: EditsOfRun | None = None) -> RunStatus:
    """Block until it has ended; edits are brought back all the while. KeyboardInterrupt passes."""
    while True:
        with contextlib.suppress(WaitTimeout):
            return place.wait(run, timeout_s=TURN_S)
        if edits is not None:
            bring_back(edits, is_last=False)


def bring_back(edits: EditsOfRun, *, is_last: bool = True) -> bool:
    """Whether all of them are here now. What cannot be fetched while a run goes on is fetched later."""
    from longboat.workbench.edits import by_hand

    try:
        left = edits.bring_back(note_clean).left
    except LongboatError as error:
        if is_last:
            note_clean(f"edits could not be brought back: {error.message}")
        return False
    if left and is_last:
        note_clean(f"not brought back: {listing(left, MOST_NAMED)}; `{placed(by_hand(edits.run))}` copies them")
    return not left


def note_clean(text: str) -> None:
    """The names of files are the run's, and must not drive the terminal."""
    note(clean(text))


def bring_back_now(place: Engine, run: str, session: BenchSession | None, edits: EditsOfRun | None) -> None:
    """Also what was changed in the last second."""
    if edits is None:
        return
    if session is not None:
        with contextlib.suppress(LongboatError):  # it has ended meanwhile, and saved at its end
            place.exec(run, [*session.launcher, "--workbench", "save", session.folder])
    bring_back(edits)


def stop_quietly(place: Engine, run: str) -> None:
    place.stop(run)
    place.wait(run)


def bench_submission(
    words: tuple[str, ...], options: dict[str, Any], place: Engine, kind: str, exposure: Exposure | None = None
) -> Submission:
    """The submission of a notebook or shell: the job of files and flags, with the server as its command."""
    import msgspec

    from longboat.cli.input.loading import load, submission_of
    from longboat.engines.shared.home import STEM_LIMIT
    from longboat.workbench.jobs import ServerOptions, bench_job, noun_of

    # Any command will do: the server takes its place. A job file needs none.
    if words and not all(map(is_job_file, words)):
        strange = next(word for word in words if not is_job_file(word))
        hint = f"a {noun_of(kind)} takes job files (.yaml, .yml, .json); longboat run runs scripts and commands"
        raise UsageError(f"{strange} is not a job file", hint=hint)
    given = {**options, "set": (*options["set"], "run=sh")} if words else options
    loaded = load(words, () if words else ("sh",), given, place)
    noun, job = noun_of(kind), loaded.job
    name = options["name"] or (f"{job.name[: STEM_LIMIT - len(noun) - 1]}-{noun}" if words else noun)
    in_place = place.name == "local" and not (job.data or job.volumes)
    server = ServerOptions(
        idle_s=options["idle"],
        port=exposure.port if exposure else (options.get("port") or 0) if place.name == "local" else 0,
        is_exact=exposure is not None or bool(options.get("port")) and place.name == "local",
        is_open=exposure is not None,
        keeps_edits=not in_place,
    )
    # In place no code travels, so that a home folder is one like any other.
    workdir = "." if in_place and job.workdir is None else job.workdir
    job = msgspec.structs.replace(bench_job(job, kind, server), name=name, workdir=workdir)
    for notice in () if in_place else loaded.notices:
        note(notice)
    return submission_of(msgspec.structs.replace(loaded, job=job), None, in_place=in_place)


def open_bench(place: Engine, submission: Submission, noun: str, *, port: int | None = None) -> tuple[RunStatus, bool]:
    """The run of this name that is open, else a new one, and whether it is new; those that ended are tidied up."""
    from longboat.workbench.ports import check_free
    from longboat.workbench.sessions import open_runs

    name = submission.job.name
    run = next((run for run in open_runs(place, noun) if run.job == name), None)
    if run is not None:
        say(f"longboat: {run.name} is open already: that one is used, as it is")
        return run, False
    if port is not None:
        check_free(port)
    remove_ended(place, noun, name)
    return place.submit(submission), True


def remove_ended(place: Engine, noun: str, name: str) -> None:
    """Remove ended runs of this kind and name once their edits are here: the next one has their name again."""
    from longboat.engines.shared.home import current_user
    from longboat.workbench.jobs import KIND_LABEL

    for run in place.list():
        if run.labels.get(KIND_LABEL) != noun or run.job != name or not run.is_final or run.user != current_user():
            continue
        # Somebody else was faster, or it was submitted from another machine, where its edits belong: it stays.
        with contextlib.suppress(LongboatError):
            edits = edits_of(place, run.name) if noun != "board" else None
            if edits is None or bring_back(edits):
                place.delete(run.name, purge=noun == "board")


def edits_of(place: Engine, run: str) -> EditsOfRun | None:
    """None: it works in the user's own folder. Raises NotFound where it was not submitted from here."""
    from longboat.engines.shared.code_snapshot import code_folder
    from longboat.workbench.edits import EditsOfRun

    submission = place.resubmission(run)
    return None if submission.in_place else EditsOfRun(place, run, Path(code_folder(submission)))


def edits_here(place: Engine, run: str) -> EditsOfRun | None:
    """`edits_of`, or a note that they stay where they are."""
    try:
        return edits_of(place, run)
    except LongboatError as error:
        note(f"edits stay in the run: {error.message}")
        return None
