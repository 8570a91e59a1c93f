"""Add-ons that `up` installs into a cluster once its nodes are ready, through the context that it has made."""

from __future__ import annotations

from collections.abc import Callable

from longboat import __version__
from longboat.clusters.spec import ClusterSpec
from longboat.engines.kubernetes.install.controller_manifests import objects
from longboat.engines.kubernetes.install.install import install
from longboat.kubeapi.client import Client

READY_S = 300.0  # the image is pulled for the first time


def install_addons(spec: ClusterSpec, context: str, say: Callable[[str], None]) -> None:
    if "controller" not in spec.addons:
        return
    if spec.image is None:
        say("longboat: no controller: the cluster file names no image that has Longboat; runs work without it")
        return
    with Client.open(context=context) as client:
        wanted = objects(image=spec.image, only=None, version=__version__)
        for _name in install(client, wanted, timeout_s=READY_S):
            pass
    say("longboat: the controller works")
