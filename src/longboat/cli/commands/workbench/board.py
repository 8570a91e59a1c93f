"""`longboat board`: TensorBoard over the event files of runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from longboat.cli.commands.runs.ps import selector
from longboat.cli.commands.workbench.exposing import exposure_of, exposure_options, open_up, tell_address
from longboat.cli.commands.workbench.opening import browser, reached, remove_ended, stay, stop_quietly
from longboat.cli.input.arguments import run_names, seconds
from longboat.cli.input.engine_option import engine_options, open_engine, placed
from longboat.cli.output.terminal import clean, note, say
from longboat.core.errors import EngineError, LongboatError, NotFound, Refused, UsageError

if TYPE_CHECKING:
    from longboat.core.jobs import Job
    from longboat.core.runs import RunStatus
    from longboat.engines.engine import Engine
    from longboat.workbench.exposure import Exposure
    from longboat.workbench.jobs import BoardSelection

PORT = 6006  # TensorBoard's own
MOST_SAID = 50  # lines of its log that are looked through: TensorBoard itself says a few when it starts


@click.command("board", short_help="Show curves of runs in TensorBoard.")
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=run_names)
@click.option("--all", "everything", is_flag=True, help="All runs, also those that begin later.")
@click.option("-l", "--label", "labels", multiple=True, metavar="K[=V]", help="All runs with this label, or K!=V.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port of this machine (default: 6006).")
@click.option(
    "--idle", default="1h", callback=seconds, metavar="TIME", help="End when nobody looks for this long (1h)."
)
@click.option("-d", "--detach", is_flag=True, help="Return once it is ready; it goes on.")
@click.option("--no-browser", is_flag=True, help="Open no browser.")
@click.option("--logs", multiple=True, metavar="[NAME=]URL", help="Event files below s3://, gs:// or az:// too.")
@exposure_options
@click.option("--image", metavar="IMAGE", help="In a cluster: an image with TensorBoard.")
@click.option("--setup", metavar="COMMAND", help="In a cluster: run before, such as pip install tensorboard.")
@click.option("--volume", multiple=True, metavar="TARGET=SOURCE", help="In a cluster: as for run. Repeatable.")
@click.option("--env", multiple=True, metavar="K[=V]", help="In a cluster: as for run. Repeatable.")
@engine_options
def command(runs: tuple[str, ...], labels: tuple[str, ...], **options: Any) -> int:
    """Show the TensorBoard curves of runs side by side; without RUN, of the latest. Prints the URL.

    Event files are found wherever a run wrote them: in its working copy, its artifacts or its checkpoints; in a
    cluster, in the storage of the runs and in the object store of their checkpoints. The board is a run of its own: ps
    lists it, stop ends it.
    """
    if sum(map(bool, (runs, options["everything"], labels))) > 1:
        raise UsageError("RUN, --all and -l exclude each other", hint="longboat board RUN RUN shows these two")
    selector(labels)  # one that is none is refused here
    place = open_engine()
    from longboat.workbench.jobs import BoardSelection, ServerOptions, board_job

    exposure = exposure_of(place, options, PORT)
    is_named = runs or labels or options["everything"] or not options["logs"]
    selection = selected(place, runs, labels, everything=options["everything"]) if is_named else BoardSelection()
    selection = with_logs(selection, options["logs"])
    if place.name == "local":
        check_options(options)
        port = options["port"]
        server = ServerOptions(idle_s=options["idle"], port=port or PORT, is_exact=port is not None)
        job = board_job(selection, server, program=find_tensorboard())
    else:
        check_storage(place, selection)
        is_open = exposure is not None
        server = ServerOptions(options["idle"], port=PORT if is_open else 0, is_exact=is_open, is_open=is_open)
        job = board_job(selection, server, base=with_credentials(place, cluster_job(options), selection))
    return open_board(place, job, options, exposure)


def check_options(options: dict[str, Any]) -> None:
    for name in ("image", "setup", "volume", "env"):
        if options[name]:
            raise UsageError(f"--{name} is for boards in a cluster", hint="here the installed TensorBoard is used")


def with_logs(selection: BoardSelection, words: Sequence[str]) -> BoardSelection:
    if not words:
        return selection
    import msgspec

    from longboat.workbench.stores import named_stores

    return msgspec.structs.replace(selection, stores=(*selection.stores, *named_stores(words)))


def with_credentials(place: Engine, job: Job, selection: BoardSelection) -> Job:
    """The caller's own, where the board reads an object store."""
    from longboat.engines.kubernetes.engine import KubernetesEngine

    if not selection.stores or not isinstance(place, KubernetesEngine):
        return job
    import msgspec

    from longboat.workbench.stores import credentials

    return msgspec.structs.replace(job, secrets=credentials(place, selection.stores))


def check_storage(place: Engine, selection: BoardSelection) -> None:
    """A board in a cluster reads what the runs wrote to a storage: without any there is nothing to read."""
    from longboat.engines.kubernetes.engine import KubernetesEngine

    if isinstance(place, KubernetesEngine) and place.settings.storage is None and not selection.stores:
        raise Refused(
            "runs of this cluster have no storage: their curves go with their pods",
            hint="`longboat config set kubernetes.storage.claim NAME`; longboat metrics RUN shows curves without it",
        )


def cluster_job(options: dict[str, Any]) -> Job:
    from longboat.cli.input.flags import fields_of
    from longboat.specs.read import read_job

    given = {name: options[name] for name in ("image", "setup", "volume", "env")}
    fields = fields_of(given, environment=os.environ, cwd=Path.cwd())
    return read_job([], fields={**fields, "run": "sh", "workdir": None}, environment=dict(os.environ)).job


def selected(place: Engine, runs: Sequence[str], labels: Sequence[str], *, everything: bool) -> BoardSelection:
    """Runs by name; on this machine a selection by label, and all, also take in runs that begin later."""
    from longboat.engines.local.engine import LocalEngine
    from longboat.workbench.jobs import KIND_LABEL, STORED_RUNS, BoardSelection

    known = [run for run in place.list() if KIND_LABEL not in run.labels]
    if isinstance(place, LocalEngine) and (everything or labels):
        return BoardSelection(runs=str(place.home.runs), labels=tuple(labels))
    from longboat.sdk.names import LATEST, match

    if everything or labels:
        wanted = selector(labels)
        chosen = [run for run in known if wanted(run.labels)]
        if not chosen:
            raise NotFound("no run matches", hint=placed("longboat ps -a"))
    else:
        names, trainings = [run.name for run in known], [run.name for run in known if not run.is_replica]
        meant = [match(text, trainings if text == LATEST else names) for text in runs or (LATEST,)]
        chosen = [run for run in known if run.name in meant]
    if isinstance(place, LocalEngine):
        return BoardSelection(runs=str(place.home.runs), names=tuple(run.name for run in chosen))
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.engines.kubernetes.manifests.volumes import run_folder
    from longboat.workbench.stores import stores_of

    folders = tuple(f"{run.name}={run_folder(run.name, run.uid)}" for run in chosen)
    stores: tuple[str, ...] = ()
    if isinstance(place, KubernetesEngine):
        stores = stores_of(place, [run.name for run in chosen], note)
    return BoardSelection(runs=STORED_RUNS, names=folders, stores=stores)


def find_tensorboard() -> str:
    """On PATH as trainers see it, else beside Longboat itself. Raises EngineError."""
    if shutil.which("tensorboard"):
        return "tensorboard"
    beside = os.path.join(os.path.dirname(sys.executable), "tensorboard")
    if os.access(beside, os.X_OK):
        return beside
    raise EngineError(
        "TensorBoard is not installed: there is no program `tensorboard` on PATH",
        hint="pip install tensorboard; without it, longboat metrics RUN shows curves in the terminal",
    )


def open_board(place: Engine, job: Job, options: dict[str, Any], exposure: Exposure | None = None) -> int:
    """Reuse the board that shows the same, else start one."""
    from longboat.engines.engine import Submission
    from longboat.workbench.jobs import is_same
    from longboat.workbench.ports import check_free
    from longboat.workbench.sessions import open_runs, spec_of, wait_ready

    known = open_runs(place, "board")
    run = next((run for run in known if is_same(spec_of(place.status(run.name)), job)), None)
    is_ours = run is None
    if run is None:
        if options["port"] is not None:
            check_free(options["port"])
        remove_ended(place, "board", job.name)
        run = place.submit(Submission(job=job, base=os.getcwd(), environment=dict(os.environ)))
    open_up(place, run, exposure, is_new=is_ours)
    try:
        run, session = wait_ready(place, run, say)
        tell_unread(place, run.name, job)
        if options["detach"]:
            print(session.url(session.port) if place.name == "local" else run.name, flush=True)
            tell_address(place, run, session, exposure)
            say(f"longboat: {run.name} is open; {placed(f'longboat stop {run.name}')} ends it")
            return 0
        with reached(place, run, session, options["port"], PORT) as url:
            print(url, flush=True)
            tell_address(place, run, session, exposure)
            with browser(url, is_wanted=not options["no_browser"]):
                say(f"longboat: Ctrl-C {'ends it' if is_ours else f'leaves it: {run.name} was open before'}")
                return finish(stay(place, run.name))
    except KeyboardInterrupt:
        if is_ours:  # else somebody else looks at it, in another terminal perhaps
            stop_quietly(place, run.name)
        return 0


def tell_unread(place: Engine, run: str, job: Job) -> None:
    """Say which object store it could not read: the page would merely be empty."""
    from longboat.core.runs import LogQuery
    from longboat.workbench.jobs import has_stores
    from longboat.workbench.sessions import SAID

    if not has_stores(job):
        return
    with contextlib.suppress(LongboatError):  # it is open all the same
        for line in place.logs(run, LogQuery(tail=MOST_SAID)):
            if line.data.startswith(SAID):
                note(clean(line.data[len(SAID) :].decode(errors="replace").strip()))


def finish(run: RunStatus) -> int:
    say(f"longboat: {run.name} {run.phase}")
    return 0 if run.phase in ("succeeded", "stopped") else run.exit_code or 1
