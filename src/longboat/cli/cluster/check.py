"""`longboat cluster check`: a cluster file as it is understood. No host is asked."""

from __future__ import annotations

import click

from longboat.cli.cluster.target import spec_of, target_options
from longboat.cli.input.arguments import output_option
from longboat.cli.output.formats import plain, write
from longboat.cli.output.tables import print_fields, print_table
from longboat.clusters.addons.storage import place_of
from longboat.clusters.spec import ClusterSpec


@click.command("check", short_help="Check a cluster file and show what it asks for.")
@target_options
@output_option("table", "json", "yaml")
def command(output: str) -> None:
    """Validate a cluster file (./cluster.yaml) and show what it asks for. No host is contacted."""
    spec = spec_of()
    if spec.pools is not None:
        from longboat.cli.cluster.addons import pools_of

        pools_of(spec)  # its mistakes are told here, too
    if output == "table" and spec.cloud is not None:
        from longboat.cli.cluster.cloud.plan import show_cloud

        show_cloud(spec)
    elif output == "table":
        show(spec)
    else:
        write(plain(spec), output)


def show(spec: ClusterSpec) -> None:
    versions, network = spec.versions, spec.network
    is_made = spec.kind != "existing"
    print_fields(
        [
            ("cluster", spec.name),
            ("kind", spec.kind),
            ("context", spec.context),
            (
                "endpoint",
                spec.endpoint or (f"{spec.vip}, brought by kube-vip {versions.kube_vip}" if spec.vip else None),
            ),
            ("kubernetes", f"{versions.kubernetes}, containerd {versions.containerd}" if is_made else None),
            ("source", (spec.source.location or spec.source.kind) if is_made else None),
            ("network", f"{network.kind}, pods {network.pods}, services {network.services}" if is_made else None),
            ("firewall", spec.firewall if is_made else None),
            ("add-ons", ", ".join(spec.addons)),
            ("storage", place_of(spec).text if "storage" in spec.addons else None),
        ]
    )
    if spec.hosts:
        print()
        rows = [
            (
                host.name,
                host.role,
                f"{host.user}@{host.address}" if host.user else host.address or "this machine",
                host.gpu,
                ",".join(f"{key}={value}" for key, value in host.labels),
                ",".join(map(str, host.taints)),
            )
            for host in spec.hosts
        ]
        print_table(("NODE", "ROLE", "HOST", "GPU", "LABELS", "TAINTS"), rows)
