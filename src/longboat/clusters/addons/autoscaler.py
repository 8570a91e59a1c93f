"""The add-on autoscaler: what `longboat install --autoscaler` makes, beside the controller or without it."""

from __future__ import annotations

from longboat import __version__
from longboat.clusters.addons.addon import AddonInputs, AddonManifest
from longboat.core.errors import EngineError
from longboat.engines.kubernetes.install.autoscaler_manifests import autoscaler_objects
from longboat.engines.kubernetes.install.controller_manifests import home_namespace


def make(inputs: AddonInputs) -> AddonManifest:
    spec, pools = inputs.spec, inputs.pools
    if spec.image is None or pools is None:
        raise EngineError("autoscaler needs the fields image and pools of the cluster file")
    objects = autoscaler_objects(image=spec.image, pools=pools.text, version=__version__, simulates=pools.simulates)
    if "controller" not in spec.addons:  # else the namespace comes with it
        objects = [home_namespace(), *objects]
    return AddonManifest("autoscaler", objects, __version__)
