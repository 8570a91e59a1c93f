"""Checks of GPUs: what nodes offer, what plugins say, what a pod with a GPU sees. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from longboat.core.words import counted, listing
from longboat.doctor.checks.nodes import all_nodes
from longboat.doctor.facts import CLUSTER, PLUGINS, TRAIN_PROBE, Seen
from longboat.doctor.findings import Check, Judgement, broken, ok, skipped, warning
from longboat.doctor.probes.outcomes import TrainProbe
from longboat.engines.kubernetes.submit.facts.gpu_inventory import GPU_LABELS, is_gpu_resource
from longboat.fitting.model.quantities import amount

Object = dict[str, Any]
PRESENT = ("nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present", "nvidia.com/gpu.count")
PRESENT_PREFIX = "feature.node.kubernetes.io/pci-0302_10de"
"""Labels by which feature discovery says that there is an NVIDIA device, whether or not its plugin runs."""
_SHOWN = 3  # names: a finding is one line


def offers(seen: Seen) -> Judgement:
    facts = seen[CLUSTER]
    if facts.offers:
        return ok(", ".join(f"{offer} as {offer.resource}" for offer in facts.offers))
    if facts.device_classes:
        return ok("by DRA: " + ", ".join(facts.device_classes))
    if facts.nodes is None:
        return skipped("no right to list nodes")
    return ok("no node offers any") if facts.nodes else skipped("there are no nodes")


def hidden(seen: Seen) -> Judgement:
    """Devices that labels speak of and no plugin hands out."""
    idle = [_name(node) for node in all_nodes(seen) if _is_labelled(node) and not _counts(node, "capacity")]
    if idle:
        hint = "is the device plugin running there? kubectl get pods -A -o wide | grep device-plugin; its log says why"
        return broken(f"nodes with NVIDIA devices that offer no GPU: {listing(idle, _SHOWN)}", hint)
    return ok("every node that is known to have GPUs offers them")


def _is_labelled(node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(label) not in (None, "", "false", "0") for label in PRESENT):
        return True
    return any(label.startswith(PRESENT_PREFIX) and value == "true" for label, value in labels.items())


def _counts(node: Object, field: str) -> dict[str, int]:
    quantities = ((node.get("status") or {}).get(field) or {}).items()
    counts = {name: amount(name, text) for name, text in quantities if is_gpu_resource(name)}
    return {name: count for name, count in counts.items() if count}


def unhealthy(seen: Seen) -> Judgement:
    """Capacity counts devices, allocatable those that the plugin calls healthy."""
    short = []
    for node in all_nodes(seen):
        usable = _counts(node, "allocatable")
        for resource, count in _counts(node, "capacity").items():
            if usable.get(resource, 0) < count:
                short.append(f"{_name(node)}: {usable.get(resource, 0)} of {count} {resource}")
    if short:
        hint = "a GPU had an error: dmesg | grep Xid on the node; reset or replace it, restart the device plugin"
        return broken(f"GPUs that are not handed out: {listing(short, _SHOWN)}", hint)
    return ok("all devices are healthy")


def plugins(seen: Seen) -> Judgement:
    rollouts = seen[PLUGINS]
    late = [
        f"{each.namespace}/{each.name} {each.ready} of {each.wanted}" for each in rollouts if each.ready < each.wanted
    ]
    if late:
        name = late[0].split(" ")[0].split("/")
        hint = f"kubectl -n {name[0]} get pods -o wide; kubectl -n {name[0]} describe daemonset {name[1]}"
        return broken(f"pods that are not ready: {listing(late, _SHOWN)}", hint)
    if not rollouts:
        return ok("no DaemonSet of a device plugin; nodes may have it as a service of their own")
    return ok(", ".join(f"{each.name} {each.ready} of {each.wanted}" for each in rollouts))


def labels(seen: Seen) -> Judgement:
    bare = [
        _name(node)
        for node in all_nodes(seen)
        if _counts(node, "capacity") and not any((node["metadata"].get("labels") or {}).get(key) for key in GPU_LABELS)
    ]
    if bare:
        hint = f"install GPU feature discovery, or kubectl label node {bare[0]} {GPU_LABELS[0]}=TYPE"
        return warning(f"the type of GPUs is not told, so `gpus: A100:2` finds none: {listing(bare, _SHOWN)}", hint)
    return ok("the type of every GPU is told")


def in_pod(seen: Seen) -> Iterator[TrainProbe]:
    probe = seen[TRAIN_PROBE]
    if probe.gpus and not probe.problem:
        yield probe


def devices(seen: Seen) -> Judgement:
    for probe in in_pod(seen):
        if probe.devices != probe.gpus:
            hint = "the device plugin and the container toolkit disagree: is CDI, or the nvidia runtime, set up there?"
            return broken(
                f"a pod that asked for {counted(probe.gpus, 'GPU')} on {probe.node} sees {probe.devices}", hint
            )
        return ok(f"a pod on {probe.node} sees {counted(probe.devices, 'GPU')}, as it asked for")
    return _without(seen)


def toolkit(seen: Seen) -> Judgement:
    for probe in in_pod(seen):
        if not probe.has_driver:
            hint = "install nvidia-container-toolkit on the node; nvidia-ctk runtime configure; restart containerd"
            return broken(f"the pod on {probe.node} has no libcuda: the driver is not mounted into containers", hint)
        return ok("the driver's libraries are mounted into the pod")
    return _without(seen)


def driver(seen: Seen) -> Judgement:
    for probe in in_pod(seen):
        if probe.module and probe.library and probe.module != probe.library:
            hint = "the driver was upgraded and not loaded again: drain the node and restart it"
            detail = f"kernel module {probe.module}, library {probe.library} on {probe.node}"
            return broken(f"driver and library do not match: {detail}", hint)
        if probe.smi_error:
            return broken(f"nvidia-smi on {probe.node}: {probe.smi_error}", "nvidia-smi on the node itself says more")
        if not probe.library and not probe.module:
            return skipped(f"the version of the driver on {probe.node} could not be read")
        return ok(f"driver {probe.library or probe.module}")
    return _without(seen)


def _without(seen: Seen) -> Judgement:
    probe = seen[TRAIN_PROBE]
    if probe.gpus:
        return skipped(f"the pod with a GPU did not run: {probe.problem}")
    return ok("no GPUs in this cluster") if probe.node or probe.problem else skipped("the pod that trains said nothing")


def _name(node: Object) -> str:
    return str(node["metadata"]["name"])


CHECKS = (
    Check("gpus", "gpus", "GPUs that nodes offer, by type", offers),
    Check("hidden gpus", "gpus", "nodes that have NVIDIA devices offer them", hidden),
    Check(
        "gpu health", "gpus", "allocatable GPUs are as many as the node has: none is out because of an Xid", unhealthy
    ),
    Check("device plugins", "gpus", "pods of device plugins are ready", plugins),
    Check("gpu labels", "gpus", "the type of GPUs is told by a label", labels),
    Check("gpu devices", "gpus", "a pod sees as many GPUs as it asked for", devices),
    Check("gpu toolkit", "gpus", "the driver is mounted into containers", toolkit),
    Check("gpu driver", "gpus", "kernel module and library of the driver match", driver),
)
