"""The add-on autoscaler: what `longboat install --autoscaler` makes, beside the controller or without it."""

from __future__ import annotations

from collections.abc import Collection

from longboat import __version__
from longboat.clusters.addons.addon import AddonInputs, AddonManifest, Object, PoolsText, labelled
from longboat.clusters.spec import Addon
from longboat.core.errors import EngineError
from longboat.engines.kubernetes.install.autoscaler_manifests import autoscaler_objects, service_account
from longboat.engines.kubernetes.install.controller_manifests import home_namespace
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import NAMESPACE, SERVICE_ACCOUNT


def make(inputs: AddonInputs) -> AddonManifest:
    spec, pools = inputs.spec, inputs.pools
    if spec.image is None or pools is None:
        raise EngineError("autoscaler needs the fields image and pools of the cluster file")
    objects = with_identity(
        autoscaler_objects(image=spec.image, pools=pools.text, version=__version__, simulates=pools.simulates), pools
    )
    if "controller" not in spec.addons:  # else the namespace comes with it
        objects = [home_namespace(), *objects]
    return AddonManifest("autoscaler", objects, __version__)


def make_account(client: Client, addons: Collection[Addon]) -> str:
    """The service account before all else, for a cloud that gives rights to its uid, which is this cluster's alone.

    As the add-ons make it, so that they go on from there; one that somebody else made stays as it is.
    """
    account = service_account(__version__)
    meta = account["metadata"]
    stored = client.find(SERVICE_ACCOUNT, meta["name"], namespace=meta["namespace"])
    if stored is None:
        if client.find(NAMESPACE, meta["namespace"]) is None:
            client.apply(*labelled([home_namespace()], "controller" if "controller" in addons else "autoscaler"))
        stored = client.apply(*labelled([account], "autoscaler"))
    return str(stored["metadata"]["uid"])


def with_identity(objects: list[Object], pools: PoolsText) -> list[Object]:
    """With what makes the autoscaler somebody for its cloud: annotations of its service account, labels of its pod."""
    for body in objects:
        if body["kind"] == "ServiceAccount" and pools.annotations:
            body["metadata"] = {**body["metadata"], "annotations": pools.annotations}
        if body["kind"] == "Deployment" and pools.labels:
            meta = body["spec"]["template"]["metadata"]
            meta["labels"] = {**meta["labels"], **pools.labels}
    return objects
