"""Add-ons of a cluster for `up` and `down`: the context is opened, lines are shown, failures end with an exit code."""

from __future__ import annotations

import sys

import msgspec

from longboat.cli.input.pools import checked_pools
from longboat.cli.output.terminal import clean, say
from longboat.clusters.addons.addon import AddonInputs, PoolsText
from longboat.clusters.addons.install import AddonFailure, dry_run_line, in_order, install_addons, plan_addons
from longboat.clusters.spec import ClusterSpec
from longboat.kubeapi.client import Client


def install_into(spec: ClusterSpec, context: str) -> None:
    """Raises EngineError if an add-on failed; the others are installed all the same."""
    names = in_order(spec.addons)
    if not names:
        return
    pools = pools_of(spec)
    with Client.open(context=context) as client:
        install_addons(client, AddonInputs(spec, client, pools), lambda text: say(clean(text))).check(len(names))


def print_addons(spec: ClusterSpec, output: str) -> int:
    """What `up` would do for each add-on of a cluster that is there. Exit code 1: one of them cannot be had."""
    with Client.open(context=spec.context or spec.name) as client:
        plans = list(plan_addons(client, AddonInputs(spec, client, pools_of(spec))))
    if output == "json":
        records = [
            {"addon": plan.name, "state": "failed", "text": plan.message}
            if isinstance(plan, AddonFailure)
            else {"addon": plan.manifest.name, "state": plan.state, "text": plan.line}
            for plan in plans
        ]
        sys.stdout.write(msgspec.json.encode(records).decode() + "\n")
    else:
        print(spec.context or spec.name)
        for plan in plans:
            print(clean(dry_run_line(plan)))
    return 1 if any(isinstance(plan, AddonFailure) for plan in plans) else 0


def pools_of(spec: ClusterSpec) -> PoolsText | None:
    if spec.pools is None or "autoscaler" not in spec.addons:
        return None
    text, simulates = checked_pools(spec.pools)
    return PoolsText(text=text, simulates=simulates)
