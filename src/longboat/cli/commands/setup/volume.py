"""`longboat volume`: the claims of a cluster's namespace, for data and checkpoints that outlive runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from longboat.cli.input.arguments import duration_option, output_option
from longboat.cli.input.engine_option import stored_in
from longboat.cli.output.formats import plain, show, write
from longboat.cli.output.tables import print_fields, print_table
from longboat.cli.output.terminal import note, say
from longboat.core.errors import UsageError

if TYPE_CHECKING:
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.engines.kubernetes.exec.claims import VolumeView
    from longboat.engines.kubernetes.exec.disk_benchmark import BenchmarkSize, DiskFigures
    from longboat.engines.kubernetes.records import Storage

F = TypeVar("F", bound=Callable[..., Any])


_CHOSEN = "longboat.volume"


def cluster_options(function: F) -> F:
    """`--on` and `-n`: which cluster, which namespace."""
    options = (
        click.option(
            "--on",
            "context",
            metavar="CONTEXT",
            expose_value=False,
            callback=stored_in(_CHOSEN),
            help="The cluster of this kubeconfig context.",
        ),
        click.option(
            "-n",
            "--namespace",
            metavar="NAME",
            expose_value=False,
            callback=stored_in(_CHOSEN),
            help="The namespace in the cluster.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def open_cluster() -> KubernetesEngine:
    from longboat.engines.kubernetes.engine import KubernetesEngine

    chosen = click.get_current_context().meta.get(_CHOSEN, {})
    return KubernetesEngine(context=chosen.get("context"), namespace=chosen.get("namespace"))


@click.group("volume", short_help="List, make, remove and measure volumes of a cluster.")
def command() -> None:
    """List, make, remove and measure PersistentVolumeClaims. A job names one: `volumes: {/data: {claim: NAME}}`."""


@command.command("ls")
@output_option()
@cluster_options
def list_command(output: str) -> None:
    """List the volumes of the namespace, and the pods that use them."""
    from longboat.engines.kubernetes.exec.claims import list_volumes

    client = open_cluster().client
    views = list_volumes(client)
    if not views and output in ("table", "wide"):
        say(f"no volumes in namespace {client.namespace}: make one with longboat volume create NAME --size 100Gi")
        return
    show(views, output, record=plain, tables=lambda wide: print_volumes(views, wide=wide))


def print_volumes(volumes: Sequence[VolumeView], *, wide: bool) -> None:
    head = ["NAME", "STATE", "SIZE", "ACCESS", "CLASS", "USED BY"]
    rows: list[list[object]] = []
    for volume in volumes:
        users = ", ".join(volume.runs or volume.pods)
        cells: list[object] = [volume.name, volume.phase, volume.size, ",".join(volume.access), volume.storage_class]
        rows.append([*cells, users, *([", ".join(volume.pods)] if wide else [])])
    print_table([*head, "PODS"] if wide else head, rows)


@command.command("create")
@click.argument("name")
@click.option("--size", metavar="SIZE", help="Size: 100Gi. For --efs, --nfs and --host-path only a label (1Ti).")
@click.option("--class", "storage_class", metavar="CLASS", help="Storage class; the cluster's default if not given.")
@click.option("--access", help="RWO: one machine at a time (default of a class); RWX: any (of the others); ROX; RWOP.")
@click.option(
    "--efs",
    is_flag=False,
    flag_value="new",
    metavar="[FS-ID]",
    help="On AWS: a file system of EFS that all nodes mount; made if no id is given.",
)
@click.option("--nfs", metavar="SERVER:/PATH", help="An export of your NFS server.")
@click.option("--host-path", metavar="FOLDER", help="A folder of the nodes: of each its own, unless mounted.")
@click.option("--region", metavar="REGION", help="With --efs: AWS's region, if no node tells it.")
@click.option("--eks", metavar="CLUSTER", help="With --efs: the cluster of EKS, if no node tells it.")
@duration_option("--timeout", "How long to wait until it is bound (default 60s; 5m for EFS).")
@cluster_options
def create_command(
    name: str,
    size: str | None,
    storage_class: str | None,
    access: str | None,
    timeout: float | None,
    **places: str | None,
) -> None:
    """Make a volume. Prints its name. The same command finishes one that was half made.

    With --efs, --nfs or --host-path the data outlives the volume: `rm` takes away only what the cluster knows of it.
    """
    from longboat.cli.commands.setup.external_volume import ExternalChoice, check_choice, create_external
    from longboat.engines.kubernetes.exec.claims import create_volume, wanted

    choice = ExternalChoice(**places)
    check_choice(choice, storage_class)
    if size is None and not choice.is_given:
        raise UsageError("a volume needs a size", hint="--size 100Gi")
    mode = access or ("RWX" if choice.is_given else "RWO")
    claim = wanted(name, size or "1Ti", access=mode, storage_class=storage_class)
    client = open_cluster().client
    if choice.is_given:
        print(create_external(client, claim, choice, timeout_s=timeout).name)
        return
    made = create_volume(client, claim, timeout_s=60.0 if timeout is None else timeout)
    print(made.name)
    if made.note:
        note(f"{made.name}: {made.note}")
    if not {"RWX", "ROX"} & set(made.access):
        note(f"{made.name} can be mounted on one machine at a time; runs of several machines need --access RWX")


@command.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@cluster_options
def remove_command(names: Sequence[str], yes: bool) -> None:
    """Remove volumes that no pod uses, with their data. Prints their names."""
    from longboat.cli.output.terminal import is_terminal
    from longboat.engines.kubernetes.exec.claims import remove_volume
    from longboat.engines.kubernetes.exec.static_volumes import forget_static

    client = open_cluster().client
    if not yes and is_terminal(sys.stdin):
        click.confirm(f"Remove {', '.join(names)} with all that is in them?", abort=True, err=True)
    for name in dict.fromkeys(names):
        remove_volume(client, name)
        print(name)
        if left := forget_static(client, name):
            note(f"{name}: {left}")


@command.command("probe")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--compare", is_flag=True, help="Show several volumes side by side; several names alone do that too.")
@click.option("--size", default="256Mi", show_default=True, metavar="SIZE", help="Amount of data to write.")
@click.option(
    "--files",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Number of small files.",
)
@click.option("--image", metavar="IMAGE", help="Any image with Python 3.8 or newer.")
@output_option("table", "json", "yaml")
@cluster_options
def probe_command(names: Sequence[str], compare: bool, size: str, files: int, image: str | None, output: str) -> None:
    """Measure how fast volumes are, from inside a pod.

    Several are measured one after the other. What the figures mean for a training is said.

    Without NAME: the storage that runs keep their checkpoints in (longboat config set kubernetes.storage ...).
    """
    from longboat.engines.kubernetes.exec.disk_benchmark import BenchmarkSize, meanings

    if compare and len(set(names)) < 2:
        raise UsageError("--compare takes two volumes or more", hint="longboat volume probe --compare fast nas")
    extent = BenchmarkSize(size=parse_size(size), files=files)
    place = open_cluster()
    storages = {name: storage_of(place, name) for name in names} or {"": storage_of(place, None)}
    measured = {name: measure(place, storage, image, extent) for name, storage in storages.items()}
    if len(measured) > 1:
        show_comparison(measured, output)
        return
    (figures,) = measured.values()
    if output == "table":
        print_figures(figures, meanings(figures))
    else:
        write({**plain(figures), "meaning": list(meanings(figures))}, output)


def measure(place: KubernetesEngine, storage: Storage, image: str | None, extent: BenchmarkSize) -> DiskFigures:
    from longboat.engines.kubernetes.exec.disk_benchmark import probe
    from longboat.engines.kubernetes.exec.helper_pod import HelperPodOptions
    from longboat.engines.kubernetes.settings import DEFAULT_IMAGE

    settings = place.settings
    options = HelperPodOptions(pull_secrets=settings.pull_secrets, service_account=settings.service_account)
    chosen = image or settings.image or DEFAULT_IMAGE
    return probe(place.client, storage, image=chosen, extent=extent, options=options)


def show_comparison(measured: Mapping[str, DiskFigures], output: str) -> None:
    from longboat.engines.kubernetes.exec.disk_benchmark import compare_figures, meanings

    said = compare_figures(measured)
    if output != "table":
        volumes = {name: {**plain(figures), "meaning": list(meanings(figures))} for name, figures in measured.items()}
        write({"volumes": volumes, "meaning": list(said)}, output)
        return
    rows: list[tuple[str, Callable[[DiskFigures], float]]] = [
        ("write, MB/s", lambda figures: figures.write_bytes_per_s / 1e6),
        ("read, MB/s", lambda figures: figures.read_bytes_per_s / 1e6),
        ("small files made per second", lambda figures: figures.creates_per_s),
        ("small files read per second", lambda figures: figures.reads_per_s),
        ("free, GB", lambda figures: figures.free / 1e9),
    ]
    print_table(
        ("", *measured), [(title, *(f"{rate(figures):,.0f}" for figures in measured.values())) for title, rate in rows]
    )
    print()
    for line in said:
        print(line)


def storage_of(place: KubernetesEngine, name: str | None) -> Storage:
    from longboat.engines.kubernetes.exec.claims import find_volume
    from longboat.engines.kubernetes.records import Storage

    if name is not None:
        return Storage(claim=find_volume(place.client, name).name)
    if place.settings.storage is None:
        raise UsageError(
            "which volume?", hint="longboat volume ls lists them; kubernetes.storage names the one that runs use"
        )
    return place.settings.storage


def parse_size(text: str) -> int:
    from longboat.core.resources import parse_quantity

    try:
        return max(1 << 20, parse_quantity(text))
    except ValueError as error:
        raise UsageError(f"--size {text}: expected {error}") from None


def print_figures(figures: DiskFigures, said: Sequence[str]) -> None:
    from longboat.core.resources import show_quantity

    print_fields(
        [
            ("write", f"{figures.write_bytes_per_s / 1e6:,.0f} MB/s (one file of {show_quantity(figures.size)})"),
            ("read", f"{figures.read_bytes_per_s / 1e6:,.0f} MB/s"),
            (
                "small files",
                f"{figures.creates_per_s:,.0f} made per second ({figures.files:,} of {figures.file_size:,} B)",
            ),
            ("small reads", f"{figures.reads_per_s:,.0f} read per second"),
            ("free", f"{show_quantity(figures.free)} of {show_quantity(figures.total)}"),
        ]
    )
    print()
    for line in said:
        print(line)
