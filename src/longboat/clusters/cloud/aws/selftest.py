"""The steps by which a new account shows that clusters on AWS work: from `up` to `down`, as commands. Pure.

Each step is one that docs/clouds.md asks the first person to take who tries it. `down` comes last, whatever failed.
"""

from __future__ import annotations

from longboat.core.jobs import Value

CLEANING = "down"
SMALL, GPU = "t3.large", "g4dn.xlarge"


class SelftestStep(Value, frozen=True):
    name: str
    title: str
    command: tuple[str, ...]  # of longboat


def cluster_text(name: str, region: str, *, with_gpu: bool, image: str | None) -> str:
    """The cluster file of the test: as little as shows something."""
    import yaml

    pools: list[dict[str, object]] = [{"name": "cpu", "type": SMALL, "count": 1, "max": 3}]
    if with_gpu:
        pools.append({"name": "gpu", "type": GPU, "count": 1, "min": 0, "max": 2})
    body = {
        "name": name,
        "kind": "aws",
        "region": region,
        "network": {"nodes": "public", "zones": [f"{region}a", f"{region}b"]},
        "pools": pools,
        "addons": [*(["gpu"] if with_gpu else []), *(["controller", "autoscaler"] if image else [])],
        **({"image": image} if image else {}),
    }
    return yaml.safe_dump(body, sort_keys=False)


def steps(name: str, file: str, *, with_gpu: bool) -> list[SelftestStep]:
    """In their order; `file`: the cluster file."""
    on = ("--on", name)
    gang = ("run", *on, "--name", "gang", "--nodes", "2", "--cpus", "1", "--timeout", "20m", "--", "hostname")
    mount = ("--volume", "/data=claim:selftest")
    shared = ("run", *on, "--name", "files", "--nodes", "2", *mount, "--", "touch", "/data/x")
    listed = [
        SelftestStep("plan", "the region offers what the file asks for", ("cluster", "up", file, "--dry-run")),
        SelftestStep("up", "the stack is made; GPU pools show their GPUs", ("cluster", "up", file)),
        SelftestStep("status", "the cluster is as its file says", ("cluster", "status", file)),
        SelftestStep("run", "a run ends with 0", ("run", *on, "--name", "hello", "--timeout", "15m", "--", "hostname")),
        SelftestStep("gang", "a gang of two nodes gets both at once", gang),
        SelftestStep("volume", "a file system of EFS is bound", ("volume", "create", "selftest", "--efs", *on)),
        SelftestStep("files", "two pods write into it", shared),
    ]
    if with_gpu:
        run = ("run", *on, "--name", "gpu", "--gpus", "1", "--timeout", "20m", "--", "nvidia-smi")
        listed.append(SelftestStep("gpu", "a run sees its GPU", run))
    end = ("cluster", "down", file, "--yes", "--purge-data")
    return [*listed, SelftestStep(CLEANING, "everything is gone again", end)]
