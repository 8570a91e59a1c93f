"""`longboat controller`: takes turns for the runs of a cluster until it is told to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from longboat.cli.input.arguments import namespaces_of, shown_namespaces
from longboat.cli.input.engine_option import complete_contexts, named_context
from longboat.cli.output.terminal import clean, say

if TYPE_CHECKING:
    from longboat.kubeapi.client import Client


@click.command("controller", short_help="Admit waiting runs and restart failed ones, for everybody.")
@click.option(
    "--on",
    "context",
    metavar="CONTEXT",
    callback=named_context,
    shell_complete=complete_contexts,
    help="The cluster of this kubeconfig context; in a pod, by default its own.",
)
@click.option(
    "--only", "only", multiple=True, metavar="NAMESPACE", help="Serve these namespaces (a,b or repeated); default: all."
)
@click.option("--lease", "home", metavar="NAMESPACE", help="Namespace of the leader's Lease.")
@click.option(
    "--health-port", type=click.IntRange(1, 65535), metavar="PORT", help="Serve /healthz and /readyz on this port."
)
def command(context: str | None, only: Sequence[str], home: str | None, health_port: int | None) -> int:
    """Reconcile runs while nobody is attached: admit those that wait, retry, write down how they ended, go on with
    sweeps, and have services follow their runs.

    `longboat install` runs it in the cluster. It may also be run anywhere a kubeconfig reaches; only one works at a
    time, the others stand by.
    """
    from longboat.engines.kubernetes.install.install import lease_namespace
    from longboat.engines.kubernetes.reconcile.service import ControllerService
    from longboat.kubeapi.client import Client
    from longboat.serving.kubernetes.controller import FollowController
    from longboat.sweeps.kubernetes.controller import SweepController

    ending = end_of_process()
    served = namespaces_of(only)
    where = shown_namespaces(served) if served else ""
    with Client.open(context=context, namespace=served[0] if served else None) as client:
        home = home or (served[0] if served else lease_namespace(client))
        check_namespaces(client, served, home)
        companions = (SweepController, FollowController)
        service = ControllerService(client, home, served, where=where, say=tell, companions=companions)
        service.run(ending, health_port)
    return 0


def check_namespaces(client: Client, served: Sequence[str], home: str) -> None:
    """Refuse namespaces that do not exist; where only some of several are missing, warn and serve the others."""
    from longboat.core.errors import NotFound
    from longboat.kubeapi.errors import ApiError
    from longboat.kubeapi.kinds import NAMESPACE

    try:
        missing = [name for name in dict.fromkeys((*served, home)) if client.find(NAMESPACE, name) is None]
    except ApiError:  # who may not look at namespaces may serve them all the same
        return
    if home in missing or (served and set(served) <= set(missing)):
        raise NotFound(f"there is no namespace {missing[0]}", hint="`kubectl get namespaces` lists them")
    for name in missing:
        tell(f"there is no namespace {name}: it is served once it is made")


def end_of_process() -> threading.Event:
    """An event that SIGTERM (sent by the kubelet) and Ctrl-C set: the controller finishes its turn, then ends."""
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    return ending


def tell(text: str) -> None:
    say(f"longboat: {clean(text)}")
