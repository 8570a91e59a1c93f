"""Bandwidth between pods and between the GPUs of a pod, with what is to be expected. `longboat doctor --bandwidth`."""

from __future__ import annotations

from longboat.doctor.examine import ClusterTarget, gpu_resource, with_probe_pods
from longboat.doctor.findings import Finding
from longboat.doctor.probes.outcomes import PodOutcome, TrainProbe
from longboat.doctor.probes.probe import bandwidth, train_probe
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts

GIGABIT = 1e9
SLOW_NODES = 8 * GIGABIT
"""Data-parallel training over several nodes waits for gradients: 1 GB of them takes a second at this rate."""
SLOW_GPUS = 160 * GIGABIT
"""Below PCIe 4.0 x16, which is about 200 Gbit/s in practice: GPUs that talk through the CPU's memory."""
USUAL_SHARE = 0.6
"""Of what the interface promises; the rest is headers, virtual switches and the processors' time."""


def measure(target: ClusterTarget, cluster: ClusterFacts | None) -> list[Finding]:
    """Two pods, then one with all GPUs of a node. Pods are removed whatever happens."""
    findings = []
    with with_probe_pods(target, cluster) as pods:
        findings.append(between_pods(*bandwidth(pods)))
    resource, largest = gpu_resource(target, cluster), largest_node(cluster)
    if not resource or largest is None or largest < 2:
        return [*findings, without_gpus(largest)]
    with with_probe_pods(target, cluster) as pods:
        return [*findings, between_gpus(train_probe(pods, resource, largest))]


def largest_node(cluster: ClusterFacts | None) -> int | None:
    """GPUs of the node that has most; None: not known. Pure."""
    if cluster is None or cluster.nodes is None:
        return None
    return max((offer.largest for offer in cluster.offers), default=0)


def without_gpus(largest: int | None) -> Finding:
    if largest is None:
        return _finding("gpu bandwidth", "gpus", "skipped", "no right to list nodes")
    return _finding("gpu bandwidth", "gpus", "ok", "no node with two GPUs: there is nothing to measure")


def between_pods(server: PodOutcome, client: PodOutcome) -> Finding:
    """What the figure means. Pure."""
    report = client.report
    if report is None or not report.bits_per_s:
        why = client.problem or server.problem or (report.peer_error if report else "") or "it said nothing"
        return _finding("pod bandwidth", "pods", "skipped", f"no pod could measure: {why}")
    rate = f"{report.bits_per_s / GIGABIT:.1f} Gbit/s over {report.streams} connections"
    if server.node == client.node:
        detail = f"{rate} on one node ({server.node}): another node took no pod, so this says nothing of the network"
        return _finding("pod bandwidth", "pods", "ok", detail)
    way = f"{rate}, {client.node} to {server.node}"
    speed = max((interface.speed for interface in report.interfaces), default=0) * 1e6
    if speed and report.bits_per_s < speed * USUAL_SHARE:
        hint = "encryption or tunnels of the network plugin, a small MTU (`mtu`), or somebody else uses the line"
        detail = f"{way}; the interface promises {speed / GIGABIT:.0f}, of which {USUAL_SHARE:.0%} are to be expected"
        return _finding("pod bandwidth", "pods", "warning", detail, hint)
    if report.bits_per_s < SLOW_NODES:
        hint = f"trainings over several nodes want {SLOW_NODES / GIGABIT:.0f} Gbit/s or more: a larger MTU, RDMA"
        return _finding("pod bandwidth", "pods", "warning", way, hint)
    return _finding("pod bandwidth", "pods", "ok", way)


def between_gpus(probe: TrainProbe) -> Finding:
    """Pure."""
    if probe.problem or probe.error:
        return _finding("gpu bandwidth", "gpus", "skipped", f"not measured: {probe.problem or probe.error}")
    if not probe.bits_per_s:
        detail = f"not measured: the image has no PyTorch with CUDA (it ran {probe.framework})"
        return _finding(
            "gpu bandwidth", "gpus", "skipped", detail, "longboat config set kubernetes.image pytorch/pytorch"
        )
    detail = f"all-reduce over {probe.gpus} GPUs of {probe.node}: {probe.bits_per_s / GIGABIT:.0f} Gbit/s on the bus"
    if probe.bits_per_s < SLOW_GPUS:
        hint = "NVLink gives thousands, PCIe about 200: nvidia-smi topo -m on the node; is the fabric manager running?"
        return _finding("gpu bandwidth", "gpus", "warning", detail, hint)
    return _finding("gpu bandwidth", "gpus", "ok", detail)


def _finding(name: str, layer: str, status: str, detail: str, hint: str | None = None) -> Finding:
    return Finding(name=name, layer=layer, status=status, detail=detail, hint=hint)
