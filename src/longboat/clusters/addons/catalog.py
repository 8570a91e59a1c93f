"""All add-ons, in the order in which they are installed, and how each is made."""

from __future__ import annotations

from dataclasses import replace

from longboat.clusters.addons import autoscaler, controller, gpu, metrics, released, storage
from longboat.clusters.addons.addon import AddonInputs, AddonMaker, AddonManifest, labelled
from longboat.clusters.spec import Addon

MAKERS: dict[Addon, AddonMaker] = {
    "gpu": gpu.make,
    "storage": storage.make,
    "metrics": metrics.make,
    "controller": controller.make,
    "autoscaler": autoscaler.make,
    "jobset": released.make_jobset,
    "kueue": released.make_kueue,
}
"""Kueue is the last: until it answers, its webhooks refuse Deployments of others, and it looks after JobSets."""


def make_addon(name: Addon, inputs: AddonInputs) -> AddonManifest:
    """The add-on with our label on every object. Raises EngineError: its manifest cannot be had."""
    manifest = MAKERS[name](inputs)
    return replace(manifest, objects=labelled(manifest.objects, name))
