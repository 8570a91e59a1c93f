"""A port of this machine that leads to the replicas of a cluster's service, to any that is ready when it is dialed."""

from __future__ import annotations

import random

from longboat.cli.output.terminal import note
from longboat.serving.kubernetes.manifests import PORT
from longboat.serving.kubernetes.services import ClusterServices
from longboat.workbench.forwarding import PortForward


class ServiceForward(PortForward):
    keeps_pod = False  # each connection its own: replicas come and go

    def __init__(self, services: ClusterServices, name: str, port: int | None) -> None:
        super().__init__(services.client, name, PORT, port=port, report=note)
        self._services = services

    def _find(self) -> tuple[str | None, str]:
        return self._services.client.namespace, random.choice(self._services.ready_pods(self._run))
