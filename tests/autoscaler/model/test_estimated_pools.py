"""Pools of a cloud, corrected by what their nodes show."""

from __future__ import annotations

from typing import Any

import msgspec

from longboat.autoscaler.model.estimated_pools import corrected
from longboat.autoscaler.model.pools_file import template_of
from longboat.autoscaler.model.snapshot import POOL_LABEL, Pool, SeenNode
from longboat.fitting.model.nodes import NodeShape

GPU = "nvidia.com/gpu"
ESTIMATE = Pool(name="gpu", max=3, is_estimated=True, machine=template_of("gpu", {"cpus": 8, "memory": 100, "gpus": 8}))


def node(name: str, *, ready: bool = True, labels: dict[str, str] | None = None, **has: int) -> SeenNode:
    amounts: dict[str, int] = {"cpu": 7000, "memory": 90, GPU: 8, **has}
    known = {POOL_LABEL: "gpu", "kubernetes.io/hostname": name, **(labels or {})}
    shape = NodeShape(name=name, labels=known, allocatable=tuple(sorted(amounts.items())))
    return SeenNode(shape=shape, is_ready=ready)


def test_the_least_that_nodes_show_counts() -> None:
    pool = corrected(ESTIMATE, [node("a"), node("b", memory=80, efa=4), node("c", efa=4)])
    assert (pool.machine.has("cpu"), pool.machine.has("memory"), pool.machine.has(GPU)) == (7000, 80, 8)


def test_nodes_that_boot_or_lost_a_gpu_say_nothing() -> None:
    others: list[Any] = [node("a", ready=False, cpu=1), node("b", **{GPU: 7}, cpu=2), node("c", **{GPU: 0}, cpu=3)]
    assert corrected(ESTIMATE, others) == ESTIMATE
    assert corrected(ESTIMATE, [*others, node("d")]).machine.has("cpu") == 7000


def test_labels_that_all_nodes_carry_are_learnt() -> None:
    zone = "topology.kubernetes.io/zone"
    both = {"nvidia.com/gpu.product": "H100", zone: "a"}
    pool = corrected(ESTIMATE, [node("a", labels={**both, "mine": "1"}), node("b", labels=both)])
    assert pool.machine.labels["nvidia.com/gpu.product"] == "H100"
    assert not {"mine", zone, "kubernetes.io/hostname"} & pool.machine.labels.keys()


def test_pools_of_the_file_are_as_they_were_written() -> None:
    written = msgspec.structs.replace(ESTIMATE, is_estimated=False)
    assert corrected(written, [node("a")]) is written
