"""`longboat controller`: takes turns for the runs of a cluster until it is told to end."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from longboat.cli.input.arguments import namespaces_of, shown_namespaces
from longboat.cli.input.engine_option import complete_contexts
from longboat.cli.output.terminal import clean, say

if TYPE_CHECKING:
    from longboat.engines.kubernetes.reconcile.controller import Controller
    from longboat.kubeapi.client import Client
    from longboat.kubeapi.leases import Leader

LOOK_S = 0.2
REPORT_S = 10.0


@click.command("controller", short_help="Let waiting runs in and restart failed ones, for everybody.")
@click.option(
    "--on",
    "context",
    metavar="CONTEXT",
    shell_complete=complete_contexts,
    help="The cluster of this context; in a cluster's pod, by default that cluster.",
)
@click.option(
    "--only", "only", multiple=True, metavar="NAMESPACE", help="Serve these namespaces (a,b or repeated); default: all."
)
@click.option("--lease", "home", metavar="NAMESPACE", help="Where the leader's Lease is kept.")
@click.option("--health-port", type=click.IntRange(1, 65535), help="Answer GET /healthz and /readyz on this port.")
def command(context: str | None, only: Sequence[str], home: str | None, health_port: int | None) -> int:
    """Take the turns that runs need while nobody is attached: the gate, retries, ends written down.

    `longboat install` runs it in the cluster. It may also be run anywhere a kubeconfig reaches; only one works at a
    time, the others stand by.
    """
    from longboat.kubeapi.client import Client
    from longboat.kubeapi.leases import Leader

    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    served = namespaces_of(only)
    client = Client.open(context=context, namespace=served[0] if served else None)
    identity = os.environ.get("LONGBOAT_POD") or f"{socket.gethostname()}-{os.getpid()}"
    leader = Leader(client, home or (served[0] if served else lease_home(client)), identity)
    station = ControllerService(client, served, leader, ending)
    if health_port is not None:
        from longboat.engines.kubernetes.reconcile.health import serve

        serve(health_port, {"/healthz": station.why_unhealthy, "/readyz": station.why_not_ready})
    leader.start()
    try:
        station.work()
    finally:
        leader.stop()
        client.close()
    return 0


def lease_home(client: Client) -> str:
    """Where `install` keeps the Lease; where nothing is installed, the namespace at hand."""
    from longboat.engines.kubernetes.install.controller_manifests import HOME
    from longboat.kubeapi.errors import ApiError
    from longboat.kubeapi.kinds import NAMESPACE

    try:
        return HOME if client.find(NAMESPACE, HOME) is not None else client.namespace
    except ApiError:
        return HOME


class ControllerService:
    """Stands by until it leads, works while it leads."""

    def __init__(self, client: Client, served: Sequence[str], leader: Leader, ending: threading.Event) -> None:
        self.client = client
        self.served = served
        self.leader = leader
        self.ending = ending
        self.controller: Controller | None = None
        self.said: set[str] = set()

    def why_unhealthy(self) -> str:
        """What a restart may mend: threads that ended, watches that have been blind for long. Empty: nothing."""
        if not self.leader.is_alive:
            return "a thread that keeps the Lease has ended"
        controller = self.controller
        return controller.why_unhealthy() if controller is not None and self.leader.is_leader else ""

    def why_not_ready(self) -> str:
        """Empty: it leads and sees what there is, or stands by. An update waits for this before it ends the old one."""
        controller = self.controller
        if self.leader.trouble:
            return self.leader.trouble
        if not self.leader.is_leader:
            return ""
        if controller is None:
            return "it has only begun to lead"
        return "" if controller.is_ready else "; ".join(controller.blind_spots()) or "not everything was seen yet"

    def work(self) -> None:
        while not self.ending.is_set():
            if self.leader.wait(1.0):
                self.lead()
            else:
                self.report([self.leader.trouble] if self.leader.trouble else [])

    def lead(self) -> None:
        """Take turns until told to end, or until another leads."""
        from longboat.engines.kubernetes.reconcile.controller import Controller

        left_s = self.leader.mandate()

        def goes_on() -> bool:
            return left_s() > 0 and not self.ending.is_set()

        where = f", in {shown_namespaces(self.served)}" if self.served else ""
        say(f"longboat: {self.leader.identity} leads{where}")
        controller = Controller(
            self.client.within(left_s),
            namespaces=self.served or None,
            say=lambda text: say(f"longboat: {clean(text)}"),
            may_work=goes_on,
        )
        self.controller = controller
        controller.start()
        try:
            since = 0.0
            while goes_on():
                self.ending.wait(LOOK_S)
                since += LOOK_S
                if since >= REPORT_S:
                    since = 0.0
                    self.report(controller.blind_spots())
        finally:
            controller.close()
        if not self.ending.is_set():
            say("longboat: another leads now")

    def report(self, troubles: list[str]) -> None:
        """Each once, and again only after it was over."""
        for text in troubles:
            if text not in self.said:
                say(f"longboat: {clean(text)}")
        self.said = set(troubles)
