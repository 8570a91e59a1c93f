"""`--node-port` and `--ingress`: a notebook or a board that others reach without this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from longboat.cli.output.terminal import note
from longboat.core.errors import LongboatError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from longboat.core.runs import RunStatus
    from longboat.engines.engine import Engine
    from longboat.workbench.exposure import Exposure
    from longboat.workbench.sessions import BenchSession


def exposure_options(command: Callable[..., Any]) -> Callable[..., Any]:
    ingress = click.option("--ingress", metavar="HOST", help="In a cluster: also reached under this host name.")
    node_port = click.option("--node-port", is_flag=True, help="In a cluster: also reached on a port of its nodes.")
    return node_port(ingress(command))


def exposure_of(place: Engine, options: dict[str, Any], port: int) -> Exposure | None:
    """How the server is to be reached beside the port-forward. Raises UsageError."""
    if not options["node_port"] and options["ingress"] is None:
        return None
    from longboat.specs.fields.serve_fields import is_host
    from longboat.workbench.exposure import Exposure

    if place.name == "local":
        raise UsageError("--node-port and --ingress are for a cluster", hint="--on CONTEXT names one")
    if options["ingress"] is not None and not is_host(options["ingress"]):
        raise UsageError(f"--ingress {options['ingress']}: expected a host name", hint="for example lab.example.org")
    return Exposure(port=port, node_port=options["node_port"], ingress=options["ingress"])


def open_up(place: Engine, run: RunStatus, exposure: Exposure | None, *, is_new: bool) -> None:
    """Make what leads to it before it is waited for: who lacks the rights is told at once, and nothing is left."""
    if exposure is None:
        return
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.workbench.exposure import check_open, expose
    from longboat.workbench.sessions import spec_of

    assert isinstance(place, KubernetesEngine)
    try:
        check_open(spec_of(place.status(run.name)), run.name)
        expose(place, run.name, exposure)
    except LongboatError:
        if is_new:
            place.stop(run.name)
            place.wait(run.name)
            place.delete(run.name)
        raise


def tell_address(place: Engine, run: RunStatus, session: BenchSession, exposure: Exposure | None) -> None:
    """Say where others reach it, and what keeps them out."""
    if exposure is None:
        return
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.workbench.exposure import address_of

    assert isinstance(place, KubernetesEngine)
    url = session.url_at(address_of(place.client, run.name, exposure))
    note(f"{run.name} is reached from outside too: {url}")
    if session.token:
        note("that way is not encrypted unless your Ingress controller does it: who listens there can read the token")
    else:
        note("TensorBoard asks for no password: whoever reaches that address sees the curves")
