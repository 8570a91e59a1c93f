"""`longboat serve RUN -- COMMAND`: start a service, or roll out a new version of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from longboat.cli.commands.serve.following import attend_following, tell_following
from longboat.cli.commands.serve.place import open_services
from longboat.cli.input.arguments import duration_option
from longboat.cli.input.engine_option import engine_options, open_engine, placed
from longboat.cli.input.targets import is_job_file
from longboat.cli.output.terminal import note, say
from longboat.core.errors import NotFound, UsageError

if TYPE_CHECKING:
    from longboat.core.jobs import Serve
    from longboat.engines.engine import Engine
    from longboat.serving.requests import ServiceRequest, Services


class StartCommand(click.Command):
    """Leaves what follows `--` to the server."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        if "--" in args:
            position = args.index("--")
            args, words = args[:position], args[position + 1 :]
        rest = super().parse_args(ctx, list(args))
        ctx.params["words"] = tuple(words)
        return rest


@click.command("start", cls=StartCommand, short_help="Start a service, or give it a new version.")
@click.argument("target", metavar="RUN[:STEP]|JOB.YAML")
@click.option("-n", "--name", metavar="NAME", help="Name of the service; the run's name if not given.")
@click.option("-d", "--detach", is_flag=True, help="Return at once and print the service's name.")
@click.option("--wait", is_flag=True, help="With -d: return when all replicas are ready.")
@click.option("--replicas", type=click.IntRange(1, 1000), metavar="N", help="Number of replicas, at least.")
@click.option("--max-replicas", type=click.IntRange(1, 1000), metavar="N", help="Scale up to so many.")
@click.option("--in-flight", type=click.IntRange(1), metavar="N", help="Requests in flight per replica to scale for.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port of the service; a free one otherwise.")
@click.option("--host", metavar="ADDRESS", help="Address to listen on; 127.0.0.1 if not given.")
@click.option("--ingress", metavar="HOST", help="In a cluster: make an Ingress of this host name; '' removes it.")
@click.option("--ready", metavar="PATH", help="Path that answers 2xx or 3xx once a replica may take requests.")
@click.option("--live", metavar="PATH", help="Path that is asked while it runs; the same as --ready otherwise.")
@click.option("--golden/--no-golden", default=None, help="Require the golden answers of the checkpoint (default).")
@click.option("--tolerance", type=click.FloatRange(0), metavar="X", help="How far golden numbers may differ.")
@click.option("--gpus", metavar="GPUS", help="GPUs per replica: 1, H100:2.")
@click.option("--cpus", metavar="N", help="CPUs per replica.")
@click.option("--memory", metavar="SIZE", help="Memory per replica: 16Gi.")
@duration_option("--start", "Restart a replica that is not ready after this; 10m if not given.")
@duration_option("--drain", "Time for requests in flight when a replica goes; 30s if not given.")
@click.option("--canary", type=click.IntRange(1, 99), metavar="PERCENT", help="Beside what is served, for so many.")
@click.option(
    "--follow",
    type=click.Choice(["newest", "best", "promoted", "off"]),
    is_flag=False,
    flag_value="newest",
    help="Go on to other checkpoints of the run as they come: newest (without a word), best, promoted.",
)
@click.option("--fresh-code", is_flag=True, help="Take the code from its folder again, not that of the run.")
@click.option("--no-checkpoint", is_flag=True, help="Serve without a checkpoint.")
@click.option("-q", "--quiet", is_flag=True, help="No messages but errors.")
@engine_options
def start_command(target: str, words: tuple[str, ...], detach: bool, wait: bool, **options: Any) -> int:
    """Serve a checkpoint of a run: its newest, that of a step, or the one that was promoted (RUN:promoted).

    The server has the code, the setup, the image, the variables and the secrets of the run, and finds its checkpoint as
    a resuming run does (LONGBOAT_RESUME_FROM). It listens on $PORT of $HOST. A service of that name that exists gets a
    new version: each replica is replaced when the new one is ready and its golden answers are right. The log of a new
    service of this machine is shown until Ctrl-C stops it; in a cluster it goes on.
    """
    if wait and not detach:
        raise UsageError("--wait goes with -d", hint="without -d the command stays with the service")
    place = open_engine(quiet=options["quiet"])
    services = open_services(place)
    request = make_request(place, services, target, words, options)
    is_new = not services.exists(request.service_name)
    name = services.serve(request)
    if is_new and not options["quiet"]:
        check_ready(services, name)
    if detach:
        if wait:
            services.wait(name)
        print(name)
        tell_following(services, name, quiet=options["quiet"])
        return 0
    from longboat.cli.commands.serve.attach import attach_service, show_rollout

    if not is_new or place.name != "local":  # in a cluster it goes on without us
        show_rollout(services, name, quiet=options["quiet"])
        return attend_following(services, name, quiet=options["quiet"])
    if not options["quiet"]:
        say(f"longboat: service {name}: {services.status(name).url} (Ctrl-C stops it)")
    return attach_service(services, name, quiet=options["quiet"])


def check_ready(services: Services, name: str) -> None:
    """Say what is missing where requests could come before the model is loaded."""
    settings = services.settings(name)
    if settings is not None and settings.ready is None:
        note(f"{name} has no ready check: its replicas are asked as soon as they accept connections (--ready PATH)")


def make_request(
    place: Engine, services: Services, target: str, words: tuple[str, ...], options: dict[str, Any]
) -> ServiceRequest:
    import msgspec

    from longboat.sdk.names import find_training
    from longboat.serving.replica_job import checked_command
    from longboat.serving.requests import ServiceRequest, parse_target

    serve: Serve | None = None
    if is_job_file(target):
        run, step, serve = newest_of_job(place, target)
    else:
        run, wanted = parse_target(target)
        run = find_training(place, run).name
        step = step_of(place, run, wanted)
    if step is not None and options["follow"] not in (None, "off"):
        raise UsageError(f"{target} with --follow: a step that is named stays", hint=f"{run} --follow goes on from it")
    command = None
    if words:
        command, notice = checked_command(words)
        if notice and not options["quiet"]:
            note(notice)
    request = ServiceRequest(
        run=run,
        step=step,
        name=options["name"],
        command=command,
        host=options["host"],
        port=options["port"],
        with_checkpoint=not options["no_checkpoint"],
        weight=options["canary"],
        fresh_code=options["fresh_code"],
    )
    if serve or any_given(options):
        # What no option says stays as it is where the service is there already.
        base = serve or services.settings(request.service_name) or place.resubmission(run).job.serve
        request = msgspec.structs.replace(request, serve=serve_of(base, options))
    return request


def step_of(place: Engine, run: str, wanted: str) -> int | None:
    """The step that a word names: a number, or the newest that was promoted; None: the newest. Raises NotFound."""
    if wanted in ("", "newest"):
        return None
    if wanted.isdecimal():
        return int(wanted)
    from longboat.storage.inventory.entries import choose

    with place.checkpoints(run) as inventory:
        return choose(inventory.entries(), wanted, run).step


def newest_of_job(place: Engine, target: str) -> tuple[str, int | None, Serve | None]:
    """The newest run of a job file that succeeded, and how the file says it is served."""
    from longboat.specs.read import read_job

    job = read_job([Path(target)], environment=os.environ, cwd=Path.cwd()).job
    if job.serve is None:
        raise UsageError(f"{target} has no `serve`", hint="serve: {run: python app.py --port $PORT, ready: /}")
    for run in place.list():
        if run.job == job.name and run.phase == "succeeded":
            return run.name, None, job.serve
    raise NotFound(f"no run of {job.name} has succeeded yet", hint=placed(f"longboat run {target}"))


_PLAIN = ("max_replicas", "in_flight", "ingress", "ready", "live", "golden", "tolerance")
_ALL = (*_PLAIN, "follow", "replicas", "start", "drain", "gpus", "cpus", "memory")


def any_given(options: dict[str, Any]) -> bool:
    return any(options[name] is not None for name in _ALL)


def serve_of(base: Serve | None, options: dict[str, Any]) -> Serve:
    """The settings of the job or of the service as it is, with what the options say."""
    import msgspec

    from longboat.core.jobs import Serve
    from longboat.specs.fields.serve_fields import is_host, is_path

    for option in ("ready", "live"):
        if options[option] is not None and not is_path(options[option]):
            raise UsageError(f"--{option} {options[option]}: expected the path of a URL", hint="for example /healthz")
    if options["ingress"] and not is_host(options["ingress"]):
        raise UsageError(f"--ingress {options['ingress']}: expected a host name", hint="for example model.example.org")
    serve = base or Serve()
    changes = {name: options[name] for name in _PLAIN if options[name] is not None}
    if options["ingress"] == "":
        changes["ingress"] = None
    if options["follow"] is not None:
        changes["follow"] = None if options["follow"] == "off" else options["follow"]
    if options["replicas"] is not None:
        changes["replicas"] = options["replicas"]
        changes.setdefault("max_replicas", None)
    if options["start"] is not None:
        changes["start_s"] = options["start"]
    if options["drain"] is not None:
        changes["drain_s"] = options["drain"]
    changed: Serve = msgspec.structs.replace(serve, **changes, resources=resources_of(serve, options))
    if changed.max_replicas is not None and changed.max_replicas < changed.replicas:
        raise UsageError(f"--max-replicas {changed.max_replicas} is less than {changed.replicas} replicas")
    return changed


def resources_of(serve: Serve, options: dict[str, Any]) -> Any:
    import msgspec

    from longboat.core import resources

    parsers = {"gpus": resources.parse_gpus, "cpus": resources.parse_cpus, "memory": resources.parse_quantity}
    changes = {}
    for name, parse in parsers.items():
        if options[name] is not None:
            try:
                changes[name] = parse(options[name])
            except ValueError as error:
                raise UsageError(f"--{name} {options[name]}: expected {error}") from None
    return msgspec.structs.replace(serve.resources, **changes)
