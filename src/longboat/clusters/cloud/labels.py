"""Labels that nodes of a cloud's pools carry: which pool they are of, and whether they have GPUs. Pure."""

from __future__ import annotations

from longboat.clusters.cloud.spec import CloudPool

GPU_LABEL = "nvidia.com/gpu.present"
"""The device plugin runs on nodes with it, as in every cluster that Longboat makes."""
POOL_LABEL = "longboat.dev/pool"
"""As on the nodes of the autoscaler's pools; here also by which a node group is known as a pool's."""


def labels_of(pool: CloudPool) -> dict[str, str]:
    return {POOL_LABEL: pool.name, **({GPU_LABEL: "true"} if pool.gpus else {}), **dict(pool.labels)}
