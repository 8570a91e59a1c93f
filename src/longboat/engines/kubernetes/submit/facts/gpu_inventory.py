"""The GPUs that nodes really offer: resource names, types, memory, counts. Pure, from the nodes' own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from longboat.core.jobs import Gpus, Value
from longboat.core.resources import parse_quantity
from longboat.core.words import counted
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.quantities import is_gpu

DEFAULT_GPU = "nvidia.com/gpu"
LEGACY_GPU = "alpha.kubernetes.io/nvidia-gpu"
"""The name of GPUs up to Kubernetes 1.8."""
PLAIN = (DEFAULT_GPU, "amd.com/gpu", LEGACY_GPU, "gpu.intel.com/i915", "gpu.intel.com/xe")
MIG = "nvidia.com/mig-"

GPU_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "gpu",
)
"""Labels that tell the type of a node's GPUs."""
MEMORY_LABELS = ("nvidia.com/gpu.memory", "gpu.nvidia.com/vram")
"""MiB per GPU (the second: GiB)."""

_FROM_NAME = re.compile(r"(\d+)\s*gb", re.IGNORECASE)


class GpuOffer(Value, frozen=True):
    """GPUs of one resource and type, over all nodes that have them."""

    resource: str
    type: str | None = None
    label: str = ""  # where the type stands
    value: str = ""
    memory: int | None = None  # bytes per GPU, as far as it is told
    nodes: tuple[tuple[str, int], ...] = ()  # (node, GPUs)

    @property
    def total(self) -> int:
        return sum(count for _, count in self.nodes)

    @property
    def largest(self) -> int:
        """On one node."""
        return max((count for _, count in self.nodes), default=0)

    def matches(self, wanted: Gpus) -> bool:
        if wanted.type is not None:
            name = _plain(wanted.type)
            here = _plain(self.type or "") + " " + _plain(self.resource.rpartition("/")[2])
            if name not in here:
                return False
        return wanted.memory is None or (self.memory is not None and self.memory >= wanted.memory)

    def __str__(self) -> str:
        kind = self.type or ("MIG " + self.resource.removeprefix(MIG) if self.resource.startswith(MIG) else "")
        return f"{kind or self.resource} ({self.total} on {counted(len(self.nodes), 'node')})"


def _plain(text: str) -> str:
    return "".join(char for char in text.lower() if char.isalnum())


def is_gpu_resource(resource: str) -> bool:
    """Whether it is a known GPU resource, or named like one: vendor.example/gpu."""
    return resource in PLAIN or resource.startswith(MIG) or is_gpu(resource)


def offers_of(nodes: Iterable[NodeShape]) -> tuple[GpuOffer, ...]:
    """All offers, the largest first. A node whose device plugin is not ready yet offers nothing."""
    by_offer: dict[tuple[str, str, str, int | None], list[tuple[str, int]]] = {}
    for node in nodes:
        for resource, count in node.allocatable:
            if is_gpu_resource(resource) and count > 0:
                label, value = _type_of(node, resource)
                key = (resource, label, value, _memory_of(node, resource))
                by_offer.setdefault(key, []).append((node.name, count))
    offers = [
        GpuOffer(resource=resource, type=value or None, label=label, value=value, memory=memory, nodes=tuple(counts))
        for (resource, label, value, memory), counts in by_offer.items()
    ]
    return tuple(sorted(offers, key=lambda offer: (-offer.total, offer.resource, offer.value)))


def _type_of(node: NodeShape, resource: str) -> tuple[str, str]:
    for label in GPU_LABELS:
        if node.labels.get(label):
            return label, node.labels[label]
    return "", ""


def _memory_of(node: NodeShape, resource: str) -> int | None:
    if resource.startswith(MIG):
        size = _FROM_NAME.search(resource)
        return parse_quantity(f"{size[1]}GB") if size else None
    text = node.labels.get(MEMORY_LABELS[0], "")
    if text.isdecimal():
        return int(text) << 20
    text = node.labels.get(MEMORY_LABELS[1], "")
    if text.isdecimal():
        return int(text) << 30
    size = _FROM_NAME.search(_type_of(node, resource)[1])
    return parse_quantity(f"{size[1]}GB") if size else None


def offer_for(wanted: Gpus, offers: Sequence[GpuOffer]) -> GpuOffer | None:
    """The offer to ask for: whole GPUs before parts of one, the old name only where there is no other, then the
    resource with most GPUs that match."""
    fitting = [offer for offer in offers if offer.matches(wanted)]
    if not fitting:
        return None
    totals: dict[str, int] = {}
    for offer in fitting:
        totals[offer.resource] = totals.get(offer.resource, 0) + offer.total

    def preference(resource: str) -> tuple[bool, bool, int, str]:
        return (not resource.startswith(MIG), resource != LEGACY_GPU, totals[resource], resource)

    best = max(totals, key=preference)
    return next(offer for offer in fitting if offer.resource == best)


def selector_for(wanted: Gpus, offers: Sequence[GpuOffer]) -> dict[str, tuple[str, ...]]:
    """Labels and values of which a node must carry one to have the GPUs asked for. Empty: any node will do."""
    if not wanted.count or (wanted.type is None and wanted.memory is None):
        return {}
    by_label: dict[str, set[str]] = {}
    for offer in offers:
        if offer.matches(wanted) and offer.label:
            by_label.setdefault(offer.label, set()).add(offer.value)
    return {label: tuple(sorted(values)) for label, values in sorted(by_label.items())}
