"""`longboat cluster status` of a cluster on AWS: its stack, its pools, and what is not as the file says."""

from __future__ import annotations

import msgspec

from longboat.cli.cluster.cloud.plan import cost_of, deployable
from longboat.cli.output.tables import print_fields, print_table
from longboat.cli.output.terminal import clean
from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud.aws.decide import drift
from longboat.clusters.cloud.aws.observe import see_cluster
from longboat.clusters.cloud.aws.stack import ClusterStack
from longboat.clusters.cloud.aws.templates.template import template_text
from longboat.clusters.cloud.same_place import check_same_place
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import NotFound
from longboat.engines.shared.home import Home


def status_cloud(spec: ClusterSpec, output: str) -> int:
    """Exit code 1: something is not ready, or not as the file says."""
    cloud = deployable(spec)
    session = AwsSession(cloud.region)
    check_same_place(spec, session.account(), Home())
    stack = ClusterStack(session, spec.name)
    view, cluster = stack.look(), see_cluster(session, spec.name)
    if view is None and cluster is None:
        raise NotFound(f"{spec.name} is not in {cloud.region}", hint="longboat cluster up makes it")
    differences = drift(cloud, cluster, (stack.template(), template_text(spec.name, cloud))) if cluster else []
    groups = cluster.groups if cluster else ()
    is_ready = (
        view is not None
        and not view.is_busy
        and cluster is not None
        and cluster.status == "ACTIVE"
        and all(group.status == "ACTIVE" for group in groups)
    )
    if output == "json":
        record = {"stack": view, "cluster": cluster, "drift": differences}
        print(msgspec.json.encode(record).decode())
        return 0 if is_ready and not differences else 1
    print_fields(
        [
            ("cluster", spec.name),
            ("stack", f"{view.status}{f': {view.reason}' if view.reason else ''}" if view else "none"),
            ("eks", f"{cluster.status}, Kubernetes {cluster.version}" if cluster else "none"),
            ("endpoint", cluster.endpoint if cluster else None),
            ("cost", cost_of(spec).text),
        ]
    )
    print()
    rows = [
        (group.pool, group.name, group.type, f"{group.desired} ({group.min} to {group.max})", group.status)
        for group in groups
    ]
    print_table(("POOL", "NODE GROUP", "TYPE", "MACHINES", "STATE"), rows)
    if differences:
        print("\nnot as the file says:")
    for line in differences:
        print(f"- {clean(line)}")
    return 0 if is_ready and not differences else 1
