"""`longboat notebook`: JupyterLab with GPUs, in the folder or in a copy of it in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from longboat.cli.commands.workbench.exposing import exposure_of, exposure_options, open_up, tell_address
from longboat.cli.commands.workbench.opening import (
    bench_submission,
    bring_back,
    bring_back_now,
    browser,
    edits_here,
    open_bench,
    reached,
    stay,
)
from longboat.cli.input.arguments import PATH, seconds
from longboat.cli.input.engine_option import open_engine, placed
from longboat.cli.input.options import job_options
from longboat.cli.output.terminal import say

if TYPE_CHECKING:
    from longboat.core.runs import RunStatus
    from longboat.engines.engine import Engine
    from longboat.workbench.exposure import Exposure

PORT = 8888  # Jupyter's own


@click.command("notebook", short_help="Open JupyterLab with GPUs.")
@click.argument("words", nargs=-1, type=PATH, metavar="[FILE.yaml]...")
@job_options
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port of this machine (default: 8888).")
@click.option("--idle", default="1h", callback=seconds, metavar="TIME", help="End when unused for this long (1h).")
@exposure_options
@click.option("-d", "--detach", is_flag=True, help="Return once it is ready and print the run's name; it goes on.")
@click.option("--no-browser", is_flag=True, help="Open no browser.")
def command(words: tuple[str, ...], **options: Any) -> int:
    """Open JupyterLab in this folder, with the GPUs, image, volumes and secrets of the options or of a job file.

    Called again it opens the same one. It is a run: it waits for its GPUs as others do, ps lists it, stop ends it.
    On this machine it works in the folder itself; in a cluster, files that you change come back to the folder.
    """
    place = open_engine()
    exposure = exposure_of(place, options, PORT)
    submission = bench_submission(words, options, place, "lab", exposure)
    run, is_new = open_bench(place, submission, "notebook", port=options["port"])
    open_up(place, run, exposure, is_new=is_new)
    if options["detach"]:
        from longboat.workbench.sessions import wait_ready

        run, session = wait_ready(place, run, say)
        print(run.name)
        tell_address(place, run, session, exposure)
        say(f"longboat: {placed('longboat notebook')} opens it")
        return 0
    return attend(place, run, exposure, options)


def attend(place: Engine, run: RunStatus, exposure: Exposure | None, options: dict[str, Any]) -> int:
    """Print its URL and stay with it. Ctrl-C leaves it running: kernels are somebody's work."""
    from longboat.workbench.sessions import wait_ready

    edits, session = edits_here(place, run.name), None
    try:
        run, session = wait_ready(place, run, say)
        with reached(place, run, session, options["port"], PORT) as url:
            print(url, flush=True)
            tell_address(place, run, session, exposure)
            with browser(url, is_wanted=not options["no_browser"]):
                ended = stay(place, run.name, edits)
    except KeyboardInterrupt:
        bring_back_now(place, run.name, session, edits)
        again, end = placed("longboat notebook"), placed(f"longboat stop {run.name}")
        say(f"longboat: {run.name} goes on: {again} opens it again, {end} ends it")
        return 0
    if edits is not None:
        bring_back(edits)
    say(f"longboat: {ended.name} {ended.phase}")
    return 0 if ended.phase in ("succeeded", "stopped") else ended.exit_code or 1
