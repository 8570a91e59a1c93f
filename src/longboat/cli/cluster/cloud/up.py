"""`longboat cluster up` of a cluster on AWS: the plan with its cost, the stack resource by resource, the kubeconfig."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from longboat.cli.cluster.cloud.plan import cloud_of, cost_of, deployable, machine_table, print_cost
from longboat.cli.cluster.cloud.resource_table import ResourceTable
from longboat.cli.output.terminal import clean, say
from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud.autoscaler_identity import AutoscalerInstall, aws_install
from longboat.clusters.cloud.aws.credentials import kubeconfig_of
from longboat.clusters.cloud.aws.up import AwsUp, UpPlan
from longboat.clusters.cloud.same_place import check_same_place
from longboat.clusters.cloud.spec import CloudSpec
from longboat.clusters.kubeconfig_file import check_name, put_context
from longboat.clusters.spec import ClusterSpec
from longboat.clusters.spec_store import save_spec
from longboat.engines.shared.home import Home

WORDS = {
    "create_stack": "the stack is made",
    "update_stack": "the stack is changed to what the file says, if it differs",
    "follow": "a change of the stack is in progress, which is followed",
}


def up_cloud(spec: ClusterSpec, *, dry_run: bool, output: str) -> int:
    session = AwsSession(deployable(spec).region)
    spec = check_same_place(spec, session.account(), Home())
    cloud = cloud_of(spec)
    work = AwsUp(spec.name, cloud, session)
    plan = work.plan(machine_table(spec), lambda text: say(f"warning: {clean(text)}"))
    check_name(spec.name, os.environ)  # told now, and not after a quarter of an hour
    cost = cost_of(spec)
    if dry_run:
        show_plan(spec, plan, output)
        return 0
    say(f"longboat: {spec.name}: {cost.text}")
    save_spec(spec, Home())
    changed = work.apply(plan, ResourceTable(output).listen)
    stack, cluster = work.result()
    put_context(kubeconfig_of(spec.name, cloud.region, cluster), spec.name, os.environ)
    if system := stack.outputs.get("FileSystem"):
        say(f"longboat: files for all nodes: NFS, {system}.efs.{cloud.region}.amazonaws.com:/")
    install(spec, output, aws_install(spec.name, cloud.region) if cloud.autoscaler else None)
    check_gpus(spec, cloud)
    word = "as its file says" if changed else "nothing to do"
    say(f"longboat: {spec.name}: {word}; longboat run --on {spec.name} -- hostname")
    say(f"longboat: {cost.text}; longboat cluster down {spec.name} ends it")
    return 0


def install(spec: ClusterSpec, output: str, identity: AutoscalerInstall | None) -> None:
    """`identity`: of the autoscaler, where it is an add-on."""
    if spec.addons:
        from longboat.cli.cluster.addons import install_into

        install_into(spec, spec.name, output, identity)


def check_gpus(spec: ClusterSpec, cloud: CloudSpec) -> None:
    """nvidia-smi in a pod of every GPU pool, where something offers the GPUs to pods. Raises EngineError."""
    pools = [pool.name for pool in cloud.pools if pool.gpus]
    if not pools or "gpu" not in spec.addons:
        return
    from longboat.clusters.cloud.gpu_check import check_pools, raise_if_bad
    from longboat.kubeapi.client import Client

    with Client.open(context=spec.name) as client:
        verdicts = check_pools(client, pools, say)
    for verdict in verdicts:
        if verdict.is_tried:
            say(f"longboat: pool {verdict.pool}: nvidia-smi: {clean(verdict.text)}")
    raise_if_bad(verdicts)


def show_plan(spec: ClusterSpec, plan: UpPlan, output: str) -> None:
    if output == "json":
        cost = cost_of(spec)
        record: dict[str, Any] = {
            "operation": plan.operation,
            "parameters": plan.parameters,
            "usd_per_hour": round(cost.per_hour, 4),
            "prices": cost.note,
        }
        sys.stdout.write(msgspec.json.encode(record).decode() + "\n")
        return
    print(f"{spec.name}: {WORDS[plan.operation]}")
    for key, value in plan.parameters.items():
        print(f"  {key}: {value}")
    print_cost(cost_of(spec))
