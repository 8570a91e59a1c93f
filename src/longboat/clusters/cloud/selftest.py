"""The steps by which a new account shows that clusters in its cloud work: from `up` to `down`, as commands. Pure.

Each step is one that docs/clouds.md asks the first person to take who tries it. `down` comes last, whatever failed.
"""

from __future__ import annotations

from typing import Any

from longboat.core.jobs import Value

CLEANING = "down"
Volume = tuple[str, ...]


class SelftestCloud(Value, frozen=True):
    """What a cloud is tried with: the least that shows something."""

    region: str
    small: str
    gpu: str
    volume: Volume
    """Options of `longboat volume create`."""
    volume_title: str
    writers: int = 2
    """Pods that write into the volume at once."""


CLOUDS = {
    "aws": SelftestCloud(
        region="us-east-1",
        small="t3.large",
        gpu="g4dn.xlarge",
        volume=("--efs",),
        volume_title="a file system of EFS is bound",
    ),
    "azure": SelftestCloud(
        region="eastus",
        small="Standard_D2s_v5",
        gpu="Standard_NC4as_T4_v3",
        volume=("--class", "azurefile-csi", "--access", "RWX", "--size", "1Gi"),
        volume_title="a share of Azure Files is bound",
    ),
    "gcp": SelftestCloud(
        region="us-central1",
        small="e2-standard-2",
        gpu="g2-standard-4",
        # Filestore begins at 1 TiB, and costs that much.
        volume=("--class", "standard-rwo", "--size", "10Gi"),
        volume_title="a disk is made, or will be for its first pod",
        writers=1,
    ),
}


class SelftestStep(Value, frozen=True):
    name: str
    title: str
    command: tuple[str, ...]  # of longboat


def cluster_text(cloud: str, name: str, region: str, *, with_gpu: bool, image: str | None) -> str:
    """The cluster file of the test: as little as shows something."""
    import yaml

    known = CLOUDS[cloud]
    pools: list[dict[str, object]] = [{"name": "cpu", "type": known.small, "count": 1, "max": 3}]
    if with_gpu:
        pools.append({"name": "gpu", "type": known.gpu, "count": 1, "min": 0, "max": 2})
    if cloud == "azure":  # else a scale set lies in several zones, and Azure chooses among them
        pools = [{**pool, "zones": ["1"]} for pool in pools]
    network: dict[str, Any] = {"nodes": "public", "zones": [f"{region}a", f"{region}b"]}
    body = {
        "name": name,
        "kind": cloud,
        "region": region,
        **({"network": network} if cloud == "aws" else {}),
        "pools": pools,
        "addons": [*(["gpu"] if with_gpu else []), *(["controller", "autoscaler"] if image else [])],
        **({"image": image} if image else {}),
    }
    return yaml.safe_dump(body, sort_keys=False)


def steps(cloud: str, name: str, file: str, *, with_gpu: bool) -> list[SelftestStep]:
    """In their order; `file`: the cluster file."""
    on, known = ("--on", name), CLOUDS[cloud]
    gang = ("run", *on, "--name", "gang", "--nodes", "2", "--cpus", "1", "--timeout", "20m", "--", "hostname")
    nodes = ("--nodes", str(known.writers))
    shared = ("run", *on, "--name", "files", *nodes, "--volume", "/data=claim:selftest", "--", "touch", "/data/x")
    volume = ("volume", "create", "selftest", *known.volume, *on)
    listed = [
        SelftestStep("plan", "the region offers what the file asks for", ("cluster", "up", file, "--dry-run")),
        SelftestStep("up", "the cluster is made; GPU pools show their GPUs", ("cluster", "up", file)),
        SelftestStep("status", "the cluster is as its file says", ("cluster", "status", file)),
        SelftestStep("run", "a run ends with 0", ("run", *on, "--name", "hello", "--timeout", "15m", "--", "hostname")),
        SelftestStep("gang", "a gang of two nodes gets both at once", gang),
        SelftestStep("volume", known.volume_title, volume),
        SelftestStep("files", "two pods write into it" if known.writers > 1 else "a pod writes into it", shared),
    ]
    if with_gpu:
        run = ("run", *on, "--name", "gpu", "--gpus", "1", "--timeout", "20m", "--", "nvidia-smi")
        listed.append(SelftestStep("gpu", "a run sees its GPU", run))
    end = ("cluster", "down", file, "--yes", "--purge-data")
    return [*listed, SelftestStep(CLEANING, "everything is gone again", end)]
