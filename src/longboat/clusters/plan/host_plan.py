"""The plan of a cluster: which steps each host still needs, from the cluster file and what hosts are like. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.plan import flannel, gpu, kubeadm, network, packages, runtime, system
from longboat.clusters.plan.network import NodeView
from longboat.clusters.plan.steps import ClusterPlan, HostPlan, Kept, Step
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.core.errors import Refused


def plan_hosts(
    spec: ClusterSpec, facts: Mapping[str, HostFacts], keys: Mapping[str, bytes], references: Sequence[str] = ()
) -> ClusterPlan:
    """Plan the steps from bare hosts to cluster members. Hosts without facts (unreachable) have none.

    `keys`: contents of those that sign repositories; `references`: images that an archive or a bundle is to bring.
    """
    _refuse_upgrades(spec, facts)
    _refuse_second_cluster(spec, facts)
    _refuse_other_network(spec, facts)
    _refuse_other_address(spec, facts)
    return ClusterPlan(
        hosts=tuple(
            _plan_host(spec, host, facts[host.name], keys, references) for host in spec.hosts if host.name in facts
        )
    )


def _refuse_upgrades(spec: ClusterSpec, facts: Mapping[str, HostFacts]) -> None:
    """Refuse another version on a node of the cluster: upgrades go node by node, with a drain."""
    wanted = spec.versions.kubernetes
    for host in facts.values():
        has = host.package("kubelet")
        if "kubernetes" in dict(host.done) and has and not packages.is_version(has, wanted):
            raise Refused(
                f"{host.name} has Kubernetes {has}, the file asks for {wanted}",
                hint="longboat cluster upgrade --dry-run shows the way there; "
                f"versions: {{kubernetes: {has.partition('-')[0]}}} keeps what is there",
            )


def _refuse_second_cluster(spec: ClusterSpec, facts: Mapping[str, HostFacts]) -> None:
    """Refuse to init a first control plane while other hosts are members of a cluster already."""
    first = spec.control_planes[0].name
    members = [name for name, host in facts.items() if "kubernetes" in dict(host.done)]
    if members and first in facts and first not in members:
        raise Refused(
            f"{', '.join(members)} of {spec.name} have a control plane already, and {first} is not part of it",
            hint="the first control plane of the file must stay the same; longboat cluster down begins anew",
        )
    for host in facts.values():
        if host.program("containerd") and not runtime.is_good(host):
            raise Refused(
                f"{host.name} has containerd {host.program('containerd')}, which is too old; it is not ours to replace",
                hint="upgrade it to version 2, or remove it",
            )


def _refuse_other_network(spec: ClusterSpec, facts: Mapping[str, HostFacts]) -> None:
    """Refuse to change the network of a cluster that runs."""
    for host in (facts[host.name] for host in spec.hosts if host.name in facts):
        has = [kind for kind in ("routes", "flannel") if host.unit(f"longboat-{kind}")]
        if has and spec.network.kind not in has:
            raise Refused(
                f"{host.name} has the network {has[0]}, the file asks for {spec.network.kind}: pods would be cut off",
                hint=f"network: {has[0]} keeps it; longboat cluster down, then up, changes it",
            )


def _refuse_other_address(spec: ClusterSpec, facts: Mapping[str, HostFacts]) -> None:
    """Refuse to change the virtual IP of a cluster that runs: all its certificates and kubeconfigs name it."""
    for host in (facts[host.name] for host in spec.control_planes if host.name in facts):
        done = dict(host.done)
        has = done.get("vip", "")
        if "kubernetes" in done and has != (spec.vip or ""):
            was, now = (f"vip: {text}" if text else "no vip" for text in (has, spec.vip))
            raise Refused(
                f"{host.name} was made with {was}, the file has {now}: nobody would find the API server any more",
                hint=f"{was} keeps it; longboat cluster down, then up, changes it",
            )


def _plan_host(
    spec: ClusterSpec, host: HostSpec, facts: HostFacts, keys: Mapping[str, bytes], references: Sequence[str]
) -> HostPlan:
    install = packages.packages(spec, host, facts)
    gpus = gpu.steps(spec, host, facts)
    has_packages = spec.source.kind == "packages" and any(isinstance(item, Step) for item in (install, *gpus))
    nvidia = gpu.repositories(spec, host, facts)
    steps: list[Step | Kept | None] = [
        system.journal(spec, host, facts),
        runtime.data(host),
        packages.repository(spec, host, facts, keys, nvidia) if has_packages else None,
        *gpus,
        system.kernel_modules(spec, host, facts),
        system.sysctls(spec, host, facts),
        system.swap(spec, host, facts),
        system.firewall(spec, host, facts),
        install,
        runtime.containerd(spec, host, facts),
        runtime.images(spec, host, facts, references),
        flannel.program(spec, host, facts),
        kubeadm.member(spec, host, facts),
    ]
    return assemble(host.name, steps, facts)


def plan_network(
    spec: ClusterSpec, facts: Mapping[str, HostFacts], nodes: Sequence[NodeView], manifest: bytes = b""
) -> ClusterPlan:
    """Plan the pod network once hosts have joined and have pod ranges. `manifest`: the network's file."""
    if spec.network.kind == "manifest":
        first = spec.control_planes[0].name
        digest = hashlib.sha256(manifest).hexdigest()
        step = network.manifest(first, spec.network.manifest or "", digest)
        return ClusterPlan(hosts=(assemble(first, [step], facts[first]),))
    # Of our own hosts we know the address; a node could say that it has another one's, or a range that is not its own.
    known = {host.name: kubeadm.address_of(host, facts[host.name]) for host in spec.hosts if host.name in facts}
    nodes = [
        msgspec.structs.replace(node, address=known[node.name])
        for node in nodes
        if node.name in known and network.is_inside(node.pods, spec.network.pods)
    ]
    network.check_apart(nodes)
    plans = []
    for host in spec.hosts:
        if host.name in facts:
            plans.append(assemble(host.name, [_connection(spec, host.name, nodes)], facts[host.name]))
    return ClusterPlan(hosts=tuple(plans))


def _connection(spec: ClusterSpec, host: str, nodes: Sequence[NodeView]) -> Step | None:
    if spec.network.kind == "flannel":
        return flannel.network(spec, host, nodes)
    return network.routes(host, nodes, spec.name, spec.network.pods)


def assemble(host: str, items: Iterable[Step | Kept | None], facts: HostFacts) -> HostPlan:
    """The plan of a host; recorded steps with the same content are skipped."""
    done = dict(facts.done)
    if any(facts.unit(f"longboat-{kind}") in ("inactive", "failed") for kind in ("routes", "flannel")):
        done.pop("network", None)  # somebody stopped it
    steps, kept = [], []
    for item in items:
        if isinstance(item, Kept):
            kept.append(item)
        elif item is not None and item.name in REMEMBERED and done.get(item.name) == item.key:
            kept.append(Kept(host=host, name=item.name, reason="done before"))
        elif item is not None:
            steps.append(item)
    return HostPlan(host=host, steps=tuple(steps), kept=tuple(kept))


REMEMBERED = ("data", "repository", "network", "images")
"""Steps that no fact speaks for or against: the journal's word counts."""
