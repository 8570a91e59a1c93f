"""The add-on controller: what `longboat install` makes, for all namespaces."""

from __future__ import annotations

from longboat import __version__
from longboat.clusters.addons.addon import AddonInputs, AddonManifest
from longboat.engines.kubernetes.install.controller_manifests import objects


def make(inputs: AddonInputs) -> AddonManifest:
    image = inputs.spec.image
    if image is None:
        reason = "not installed: the cluster file names no image that has Longboat; runs work without it"
        return AddonManifest("controller", omitted=reason)
    return AddonManifest("controller", objects(image=image, only=None, version=__version__), __version__)
