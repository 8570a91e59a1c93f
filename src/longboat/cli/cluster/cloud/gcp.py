"""`longboat cluster up|status|down` of a cluster on Google Cloud: GKE makes it, pool by pool, and takes it away."""

from __future__ import annotations

import os
import socket
import sys
import tempfile

import click
import msgspec

from longboat.cli.cluster.cloud.plan import cloud_of, cost_of, machine_table, print_cost
from longboat.cli.cluster.cloud.resource_table import ResourceTable
from longboat.cli.cluster.cloud.up import check_gpus, install
from longboat.cli.output.tables import print_fields, print_table
from longboat.cli.output.terminal import clean, is_terminal, say
from longboat.clouds.gcp.session import GoogleSession
from longboat.clusters.cloud.autoscaler_identity import google_install
from longboat.clusters.cloud.gcp.cluster_view import GkeView
from longboat.clusters.cloud.gcp.credentials import kubeconfig_of
from longboat.clusters.cloud.gcp.decide import GkeStep, drift
from longboat.clusters.cloud.gcp.gke import GkeCluster
from longboat.clusters.cloud.gcp.leftovers import GoogleLeftover
from longboat.clusters.cloud.gcp.up import GcpUp
from longboat.clusters.cloud.same_place import check_same_place
from longboat.clusters.kubeconfig_file import check_name, leave_context, put_context
from longboat.clusters.spec import ClusterSpec
from longboat.clusters.spec_store import forget_spec, save_spec
from longboat.core.errors import EngineError, NotFound, Refused, UsageError
from longboat.core.words import counted, listing
from longboat.engines.shared.home import Home

MOST_SHOWN = 10  # in one line; the cloud's own tools list the rest
REACHED_S = 5.0  # an endpoint that lets us in answers at once; others drop what comes


def open_cluster(spec: ClusterSpec) -> GkeCluster:
    return GkeCluster(GoogleSession(is_patient=True), cloud_of(spec).region, spec.name)


def up_gcp(spec: ClusterSpec, *, dry_run: bool, output: str) -> int:
    cost = cost_of(spec)
    cluster = open_cluster(spec)
    spec = check_same_place(spec, cluster.project, Home())
    work = GcpUp(spec.name, cloud_of(spec), machine_table(spec), cluster)
    steps = work.plan()
    check_name(spec.name, os.environ)  # told now, and not after ten minutes
    if dry_run:
        show_plan(spec, steps, output)
        return 0
    say(f"longboat: {spec.name}: {cost.text}")
    save_spec(spec, Home())
    changed = work.apply(ResourceTable(output).listen)
    put_context(kubeconfig_of(spec.name, work.result()), spec.name, os.environ)
    cloud = cloud_of(spec)
    changed = work.give_rights(lambda: autoscaler_account(spec)) or changed
    identity = google_install(spec.name, cloud.region, work.cluster.project) if cloud.autoscaler else None
    install(spec, output, identity)
    check_gpus(spec, cloud)
    word = "as its file says" if changed else "nothing to do"
    say(f"longboat: {spec.name}: {word}; longboat run --on {spec.name} -- hostname")
    say(f"longboat: {cost.text}; longboat cluster down {spec.name} ends it")
    return 0


def autoscaler_account(spec: ClusterSpec) -> str:
    from longboat.clusters.addons.autoscaler import make_account
    from longboat.kubeapi.client import Client

    with Client.open(context=spec.name) as client:
        return make_account(client, spec.addons)


def show_plan(spec: ClusterSpec, steps: tuple[GkeStep, ...], output: str) -> None:
    if output == "json":
        cost = cost_of(spec)
        record = {"steps": [step.text for step in steps], "usd_per_hour": round(cost.per_hour, 4), "prices": cost.note}
        print(msgspec.json.encode(record).decode())
        return
    for text in [step.text for step in steps] or ["nothing to do"]:
        print(f"{spec.name}: {text}")
    print_cost(cost_of(spec))


def status_gcp(spec: ClusterSpec, output: str) -> int:
    """Exit code 1: something is not ready, or not as the file says."""
    cloud = cloud_of(spec)
    cluster = open_cluster(spec)
    check_same_place(spec, cluster.project, Home())
    view = cluster.look(with_sizes=True)
    if view is None:
        raise NotFound(f"{spec.name} is not in {cloud.region}", hint="longboat cluster up makes it")
    differences = drift(cloud, view)
    is_ready = view.status == "RUNNING" and all(pool.status == "RUNNING" for pool in view.pools)
    code = 0 if is_ready and not differences else 1
    if output == "json":
        print(msgspec.json.encode({"cluster": view, "drift": differences}).decode())
        return code
    print_fields(
        [
            ("cluster", spec.name),
            ("gke", f"{view.status}, Kubernetes {view.version}{f': {clean(view.issue)}' if view.issue else ''}"),
            ("endpoint", view.endpoint or None),
            ("cost", cost_of(spec).text),
        ]
    )
    print()
    rows = [
        (pool.name, pool.type, f"{pool.size} ({pool.min} to {pool.max})" if pool.max else str(pool.size), pool.status)
        for pool in view.pools
    ]
    print_table(("POOL", "TYPE", "MACHINES", "STATE"), rows)
    if differences:
        print("\nnot as the file says:")
    for line in differences:
        print(f"- {clean(line)}")
    return code


def down_gcp(spec: ClusterSpec, *, yes: bool, purges: bool, output: str) -> int:
    if not yes and not is_terminal(sys.stdin):
        raise UsageError("taking a cluster down is asked for twice", hint="--yes says so without a question")
    cluster = open_cluster(spec)
    check_same_place(spec, cluster.project, Home())
    view = cluster.look()
    if view is not None and view.owner != spec.name:
        raise Refused(f"the cluster {spec.name} in GKE was not made by Longboat", hint="it is left alone")
    leftovers = cluster.leftovers()
    data = tuple(each for each in leftovers.look() if each.is_data)
    if not yes:
        confirm(spec, data, purges=purges)
    if view is not None and view.status == "RUNNING":
        free_load_balancers(spec.name, view)
    has_rights = cloud_of(spec).autoscaler or (view is not None and view.workload_pool)
    # A namesake's role is the same one; our account goes with the cluster.
    if has_rights and not leftovers.namesakes(surely=True):
        cluster.rights().take_back()
    remove(cluster, output)
    for each in data if purges else ():
        leftovers.delete(each)
    leave_context(spec.name, os.environ, lambda text: say(clean(text)))
    there = leftovers.settle(lambda each: each.is_data and not purges)
    kept = () if purges else tuple(each for each in there if each.is_data)
    tell_leftovers(spec, cluster.project, there, kept)
    if not kept:  # else the name is still needed, for --purge-data
        forget_spec(spec.name, Home())
    word = "is gone" if view is not None or data else f"is not there, in the project {cluster.project}"
    say(f"longboat: {spec.name} {word}; nothing else that is known to be its own is left")
    return 0


def tell_leftovers(
    spec: ClusterSpec, project: str, there: tuple[GoogleLeftover, ...], kept: tuple[GoogleLeftover, ...]
) -> None:
    """Raises EngineError for those that should be gone."""
    if kept:
        names = listing([each.text for each in kept], MOST_SHOWN)
        say(f"longboat: kept, with what users stored, and paid for: {clean(names)}")
        say("hint: the same command with --purge-data deletes it")
    left = [each for each in there if each not in kept]
    for each in left:
        say(f"longboat: left: {each.kind} {clean(each.name)} ({clean(each.place)})")
    if left:
        raise EngineError(
            f"{spec.name}: {counted(len(left), 'thing')} of it {'is' if len(left) == 1 else 'are'} left in {project}",
            hint="the same command again looks once more: Google lists some for a while; what stays is for gcloud",
        )


def free_load_balancers(name: str, view: GkeView) -> None:
    """Those of Services, which Google keeps when the cluster goes. A cluster that does not answer goes all the same.

    By a kubeconfig of its own: a context of this name may be of another cluster.
    """
    from longboat.clusters.cloud.load_balancers import give_back
    from longboat.kubeapi.client import Client
    from longboat.kubeapi.errors import ApiError, KubeconfigError

    try:
        with socket.create_connection((view.endpoint, 443), REACHED_S):
            pass
        with tempfile.NamedTemporaryFile("w", prefix="longboat-") as file:
            file.write(kubeconfig_of(name, view))
            file.flush()
            with Client.open(environment={**os.environ, "KUBECONFIG": file.name}) as client:
                give_back(client, lambda text: say(clean(text)))
    except (OSError, ApiError, KubeconfigError) as error:
        text = clean(str(error))
        say(f"warning: load balancers of Services are not looked for, as the cluster does not answer: {text}")
        say("hint: what is left of them is named in the end")


def remove(cluster: GkeCluster, output: str) -> None:
    """Delete it and follow that, also where it had begun; an operation that goes on is waited for first."""
    listen = ResourceTable(output).listen
    for _ in range(2):
        operation = cluster.running()
        if operation is not None:
            cluster.follow(operation, listen)
        if cluster.look() is None:
            return
        operation = cluster.delete()
        if operation is not None:
            cluster.follow(operation, listen)
    if cluster.look() is not None:
        words = f": {clean(cluster.conflict)}" if cluster.conflict else ""
        raise EngineError(f"{cluster.name} is still there{words}", hint="the same command again")


def confirm(spec: ClusterSpec, data: tuple[GoogleLeftover, ...], *, purges: bool) -> None:
    question = f"take down {spec.name} on Google Cloud, and all that runs there"
    if data:
        names = listing([each.text for each in data], MOST_SHOWN)
        question += f", and DELETE {names} with what users stored" if purges else f"; {names} stay"
    click.confirm(f"{question}?", abort=True, err=True)
