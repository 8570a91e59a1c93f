"""All add-ons, in the order in which they are installed, and how each is made."""

from __future__ import annotations

from longboat.clusters.addons import autoscaler, controller, released
from longboat.clusters.addons.addon import AddonInputs, AddonMaker, AddonManifest, labelled
from longboat.clusters.spec import Addon

MAKERS: dict[Addon, AddonMaker] = {
    "controller": controller.make,
    "autoscaler": autoscaler.make,
    "jobset": released.make_jobset,
    "kueue": released.make_kueue,
}
"""Kueue is the last: until it answers, its webhooks refuse Deployments of others, and it looks after JobSets."""


def make_addon(name: Addon, inputs: AddonInputs) -> AddonManifest:
    """The add-on with our label on every object. Raises EngineError: its manifest cannot be had."""
    from dataclasses import replace

    manifest = MAKERS[name](inputs)
    return replace(manifest, objects=labelled(manifest.objects, name))
