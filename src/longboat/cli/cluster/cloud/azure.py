"""`longboat cluster up|status|down` of a cluster on Azure: one resource group with one deployment."""

from __future__ import annotations

import os
import sys

import click
import msgspec

from longboat.cli.cluster.cloud.plan import cloud_of, cost_of, machine_table, print_cost
from longboat.cli.cluster.cloud.resource_table import ResourceTable
from longboat.cli.cluster.cloud.up import check_gpus, install
from longboat.cli.output.tables import print_fields, print_table
from longboat.cli.output.terminal import clean, is_terminal, say
from longboat.clusters.cloud.autoscaler_identity import AutoscalerInstall, azure_install
from longboat.clusters.cloud.azure.autoscaler_template import CLIENT_OUTPUT
from longboat.clusters.cloud.azure.credentials import kubeconfig_of, open_group
from longboat.clusters.cloud.azure.decide import drift
from longboat.clusters.cloud.azure.resource_group import ClusterGroup
from longboat.clusters.cloud.azure.template import CLUSTER_TAG
from longboat.clusters.cloud.azure.up import AzureUp
from longboat.clusters.cloud.same_place import check_same_place
from longboat.clusters.cloud.spec import CloudSpec
from longboat.clusters.kubeconfig_file import check_name, leave_context, put_context
from longboat.clusters.spec import ClusterSpec
from longboat.clusters.spec_store import forget_spec, save_spec
from longboat.core.errors import EngineError, NotFound, Refused, UsageError
from longboat.core.words import listing
from longboat.engines.shared.home import Home

MOST_SHOWN = 10  # in one line; the cloud's own tools list the rest
WORDS = {
    "deploy": "the resource group is made, or deployed into",
    "follow": "a deployment is in progress, which is followed",
    "nothing": "nothing to do",
}


def up_azure(spec: ClusterSpec, *, dry_run: bool, output: str) -> int:
    group = open_group(spec.name)
    spec = check_same_place(spec, group.subscription, Home())
    cloud, cost = cloud_of(spec), cost_of(spec)
    work = AzureUp(spec.name, cloud, machine_table(spec), group)
    decision = work.plan()
    check_name(spec.name, os.environ)  # told now, and not after ten minutes
    if dry_run and output == "json":
        record = {"decision": decision, "usd_per_hour": round(cost.per_hour, 4), "prices": cost.note}
        print(msgspec.json.encode(record).decode())
        return 0
    if dry_run:
        print(f"{spec.name}: {WORDS[decision]}")
        print_cost(cost)
        return 0
    say(f"longboat: {spec.name}: {cost.text}")
    save_spec(spec, Home())
    word = "as its file says" if work.apply(ResourceTable(output).listen) else "nothing to do"
    put_context(kubeconfig_of(spec.name, group), spec.name, os.environ)
    install(spec, output, autoscaler_identity(cloud, group))
    check_gpus(spec, cloud)
    say(f"longboat: {spec.name}: {word}; longboat run --on {spec.name} -- hostname")
    say(f"longboat: {cost.text}; longboat cluster down {spec.name} ends it")
    return 0


def autoscaler_identity(cloud: CloudSpec, group: ClusterGroup) -> AutoscalerInstall | None:
    client = group.output(CLIENT_OUTPUT) if cloud.autoscaler else None
    return azure_install(group.cluster, group.subscription, client) if client else None


def status_azure(spec: ClusterSpec, output: str) -> int:
    """Exit code 1: something is not ready, or not as the file says."""
    group = open_group(spec.name)
    check_same_place(spec, group.subscription, Home())
    deployment, view = group.deployment(), group.see_cluster()
    if deployment is None and view is None:
        raise NotFound(f"{spec.name} is not in the subscription", hint="longboat cluster up makes it")
    differences = drift(cloud_of(spec), view) if view else ["AKS has no such cluster"]
    pools = view.pools if view else ()
    states = [view.state if view else "", *(pool.state for pool in pools)]
    code = 0 if all(state == "Succeeded" for state in states) and not differences else 1
    if output == "json":
        print(msgspec.json.encode({"deployment": deployment, "cluster": view, "drift": differences}).decode())
        return code
    print_fields(
        [
            ("cluster", spec.name),
            ("deployment", clean(f"{deployment.state} {deployment.error}".strip()) if deployment else "none"),
            ("aks", f"{view.state}, Kubernetes {view.version}" if view else "none"),
            ("endpoint", view.endpoint if view else None),
            ("cost", cost_of(spec).text),
        ]
    )
    print()
    print_table(
        ("POOL", "TYPE", "MACHINES", "STATE"),
        [(p.name, p.type, f"{p.count} ({p.min} to {p.max})" if p.max else str(p.count), p.state) for p in pools],
    )
    for line in ["", "not as the file says:", *(f"- {clean(line)}" for line in differences)] if differences else ():
        print(line)
    return code


def down_azure(spec: ClusterSpec, *, yes: bool, purges: bool, output: str) -> int:
    if not yes and not is_terminal(sys.stdin):
        raise UsageError("taking a cluster down is asked for twice", hint="--yes says so without a question")
    group = open_group(spec.name)
    check_same_place(spec, group.subscription, Home())
    there, view = group.look(), group.see_cluster()
    if there is not None and there.tags.get(CLUSTER_TAG) != spec.name:
        raise Refused(
            f"the resource group {group.name} was not made for the cluster {spec.name}", hint="it is left alone"
        )
    node_group = view.node_group if view else ""
    data = group.claim_data(node_group) if node_group else []
    others = group.of_others() if there is not None else []
    if not purges:
        refuse_losses(group, data, others)
    data += others
    if not yes:
        lost = f", and DELETE {clean(listing(data, MOST_SHOWN))} with what users stored" if data else ""
        click.confirm(f"take down {spec.name} on Azure, and all that runs there{lost}?", abort=True, err=True)
    group.rights().remove()
    if there is not None:
        group.delete(ResourceTable(output).listen)
    leave_context(spec.name, os.environ, lambda text: say(clean(text)))
    left = group.leftovers(node_group)
    if left:
        raise EngineError(
            f"{spec.name}: something is left: {clean(listing(left, MOST_SHOWN))}",
            hint="the same command again looks once more: Azure lists some things for minutes after they are gone",
        )
    forget_spec(spec.name, Home())
    word = "is gone" if there is not None else f"is not there, in the subscription {group.subscription}"
    say(f"longboat: {spec.name} {word}; nothing with its tag is left")
    return 0


def refuse_losses(group: ClusterGroup, data: list[str], others: list[str]) -> None:
    """What goes with the group, whoever made it."""
    if data:
        raise Refused(
            f"AKS deletes what claims store with the cluster: {clean(listing(data, MOST_SHOWN))}",
            hint="copy what is needed elsewhere, then --purge-data",
        )
    if others:
        names = clean(listing(others, MOST_SHOWN))
        raise Refused(
            f"the resource group {group.name} goes with what others have put into it: {names}",
            hint="az resource move brings it elsewhere; --purge-data deletes it too",
        )
