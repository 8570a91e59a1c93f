"""Add-ons of a cluster for `up` and `down`: the context is opened, lines are shown, failures end with an exit code."""

from __future__ import annotations

import os
import sys
import tempfile

import msgspec

from longboat.cli.cluster.session import ClusterSession
from longboat.cli.input.pools import checked_pools
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import clean, say
from longboat.clusters.addons.addon import AddonInputs, PoolsText
from longboat.clusters.addons.install import AddonFailure, dry_run_line, in_order, install_addons, plan_addons
from longboat.clusters.addons.observe import addon_statuses
from longboat.clusters.addons.remove import remove_addons
from longboat.clusters.admin_kubeconfig import admin_kubeconfig_of
from longboat.clusters.cloud.autoscaler_identity import AutoscalerInstall
from longboat.clusters.plan.kubeadm import ADMIN
from longboat.clusters.spec import ClusterSpec
from longboat.clusters.spec_store import forget_spec
from longboat.core.errors import EngineError
from longboat.core.words import counted
from longboat.engines.shared.home import Home
from longboat.kubeapi.client import Client


def install_into(spec: ClusterSpec, context: str, output: str, identity: AutoscalerInstall | None = None) -> None:
    """Install the add-ons, all of them before EngineError for one that failed. `output` json: a line for each.

    `identity`: of the autoscaler in a cloud.
    """
    names = in_order(spec.addons)
    if not names:
        return
    pools = pools_of(spec) if identity is None else cloud_pools(spec.kind, identity)
    with Client.open(context=context) as client:
        result = install_addons(client, AddonInputs(spec, client, pools), _tell)
    if output == "json":
        records: list[dict[str, str]] = [{"addon": name, "state": state} for name, state in result.states]
        records += [{"addon": each.name, "state": "failed", "text": each.message} for each in result.failures]
        for record in records:
            print(msgspec.json.encode(record).decode(), flush=True)
    result.check(len(names))


def print_addons(spec: ClusterSpec, output: str) -> int:
    """Print what `up` would do for each add-on of an existing cluster. Exit code 1: one of them cannot be installed."""
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


def show_addons(spec: ClusterSpec, output: str) -> int:
    """Print the installed add-ons and their state. Exit code 1: one of them is not ready."""
    with Client.open(context=spec.context or spec.name) as client:
        statuses = addon_statuses(client)
    if output == "json":
        sys.stdout.write(msgspec.json.encode(statuses).decode() + "\n")
    else:
        print_table(("ADDON", "VERSION", "STATE"), [(each.addon, each.version, clean(each.state)) for each in statuses])
    return 0 if all(each.state == "ready" for each in statuses) else 1


def remove_from_existing(spec: ClusterSpec, *, purge: bool) -> int:
    """Remove what `up` installed into an existing cluster; the cluster and everything else in it stay."""
    with Client.open(context=spec.context or spec.name) as client:
        count = remove_addons(client, _tell, purge=purge).count
    forget_spec(spec.name, Home())
    say(f"longboat: {counted(count, 'object')} removed from {spec.context}" if count else "longboat: nothing to remove")
    return 0


def remove_from(session: ClusterSession, *, purge: bool) -> tuple[str, ...]:
    """Remove the add-ons before `down`, with the control plane's own kubeconfig: a local context of this name may be of
    another cluster. Returns the names of the volumes that are purged.

    One that does not answer goes all the same: the hosts are what matters. But not with `purge`: only the cluster knows
    which volumes are its own. Then EngineError, before a host is changed.
    """
    control = session.spec.control_planes[0].name
    facts = session.facts.get(control)
    if facts is None and purge:
        raise _not_purged(f"{control} does not answer")
    if facts is None or facts.journal_cluster != session.spec.name or not facts.file(ADMIN):
        return ()
    try:
        with tempfile.NamedTemporaryFile("w", prefix="longboat-") as file:  # readable by its owner alone
            file.write(admin_kubeconfig_of(session.hosts[control]))
            file.flush()
            with Client.open(environment={**os.environ, "KUBECONFIG": file.name}) as client:
                return remove_addons(client, _tell, purge=purge, ends_cluster=True).purged
    except EngineError as error:
        if purge:
            raise _not_purged(error.message) from None
        say(f"warning: add-ons are not removed before the cluster: {clean(error.message)}")
    return ()


def _not_purged(reason: str) -> EngineError:
    return EngineError(
        f"data of users is not purged, and no host was changed: {reason}",
        hint="the same command again, when that is mended; without --purge-data the cluster goes and volumes stay",
    )


def _tell(text: str) -> None:
    say(clean(text))


def cloud_pools(cloud: str, identity: AutoscalerInstall) -> PoolsText:
    """The pools file of a cluster in a cloud, which knows its pools itself."""
    import yaml

    text = yaml.safe_dump({"providers": {cloud: identity.provider}}, sort_keys=False)
    return PoolsText(text=text, annotations=identity.annotations, labels=identity.labels)


def pools_of(spec: ClusterSpec) -> PoolsText | None:
    if "autoscaler" not in spec.addons:
        return None
    if spec.pools is None:
        return None
    text, simulates = checked_pools(spec.pools)
    return PoolsText(text=text, simulates=simulates)
