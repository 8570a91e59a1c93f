"""Checks of one host's network: ports, firewall, proxies, the way out, overlapping ranges; of all: one link. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping

from longboat.clusters.observe.facts import HostFacts, HostProblem
from longboat.clusters.observe.firewall_rules import is_forwarded
from longboat.clusters.observe.host_checks import is_ours
from longboat.clusters.ports import ports as needed_ports
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.core.words import listing

Problems = Iterator[HostProblem]
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
OWN_PORTS = {"worker": (10250,), "control-plane": (6443, 10250, 2379, 2380, 10257, 10259)}
SERVICES = {
    "kube-apiserver": ("6443/tcp",),
    "kubelet": ("10250/tcp",),
    "etcd-server": ("2379:2380/tcp",),
    "kube-nodeport-services": ("30000:32767/tcp",),
    "kube-control-plane": ("6443/tcp", "10250/tcp", "2379:2380/tcp"),
    "kube-worker": ("10250/tcp", "30000:32767/tcp"),
}
"""firewalld's names for them."""
SPARE = {"pods": "172.29.0.0/16", "services": "172.30.0.0/16"}


def ports(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Problems:
    if is_ours(spec, facts) or facts.cluster not in ("", "leftovers"):  # the other cluster has been named already
        return
    for listener in facts.listeners:
        if listener.port in OWN_PORTS[host.role]:
            owner = listener.program or "another program"
            yield HostProblem(
                host=facts.name,
                check="port",
                message=f"port {listener.port} is taken by {owner}",
                remedy="stop it; a cluster needs this port",
            )


def firewall(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Problems:
    if not facts.firewall or spec.firewall == "ignore":
        return
    closed = [port for port in needed_ports(spec, host) if not is_open(port, facts.open_ports)]
    faults = [f"lets nothing through to {', '.join(closed)}"] if closed else []
    if not is_forwarded(spec.network.pods, facts.forwarded):
        faults.append(f"forwards nothing for pods, {spec.network.pods}")
    if not faults:
        return
    repairs = spec.firewall == "open"
    others = f"pods, {spec.network.pods}" if spec.kind == "local" else "the other hosts"
    yield HostProblem(
        host=facts.name,
        check="firewall",
        severity="repair" if repairs else "error",
        message=f"{facts.firewall} {' and '.join(faults)}",
        remedy=f"up opens them in {facts.firewall}; down closes them"
        if repairs
        else f"`firewall: open` lets up do it, or open them for {others}",
    )


def is_open(port: str, opened: tuple[str, ...]) -> bool:
    """Whether one firewall entry covers the whole port range. `Anywhere` is ufw's word for every port."""
    first, last, protocol = _range(port)
    entries = [entry for name in opened for entry in SERVICES.get(name, (name,))]
    if "Anywhere" in entries:
        return True
    for entry in entries:
        low, high, kind = _range(entry)
        if low <= first and last <= high and kind in ("", protocol):
            return True
    return False


def _range(entry: str) -> tuple[int, int, str]:
    numbers, _, protocol = entry.partition("/")
    low, _, high = numbers.partition(":")
    if not low.isdecimal() or len(low) > 5 or (high and (not high.isdecimal() or len(high) > 5)):
        return 1, 0, protocol  # a service that we do not know: no port at all
    return int(low), int(high or low), protocol


def proxies(spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    variables = dict(facts.proxies)
    if not any(variables.get(name) for name in ("http_proxy", "https_proxy", "all_proxy")):
        return
    direct = variables.get("no_proxy", "")
    own = [text for text in (facts.source_address, spec.vip) if text]
    missing = [wanted for wanted in (spec.network.pods, spec.network.services, *own) if not _is_direct(wanted, direct)]
    if missing:
        yield HostProblem(
            host=facts.name,
            check="proxy",
            severity="warning",
            message=f"a proxy is set, and no_proxy leaves out {', '.join(missing)}: nodes would talk through it",
            remedy=f"add {','.join(missing)} to no_proxy in /etc/environment",
        )


def _is_direct(wanted: str, direct: str) -> bool:
    network = _network(wanted)
    for entry in direct.replace(" ", ",").split(","):
        if entry == "*":
            return True
        covering = _network(entry)
        if network and covering and network.version == covering.version:
            if int(covering.network_address) <= int(network.network_address) and int(network.broadcast_address) <= int(
                covering.broadcast_address
            ):
                return True
    return False


def way_out(spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    """Check for a default route, which only a mirror of all packages and images replaces."""
    has_own_sources = bool(spec.source.repositories and spec.source.images)
    if facts.has_route_out or facts.proxies or spec.source.kind == "files" or has_own_sources:
        return
    yield HostProblem(
        host=facts.name,
        check="route",
        message="there is no route out, and programs and images come from the internet",
        remedy="add a route; or `source:` with a bundle (longboat cluster bundle), which needs none",
    )


def overlaps(spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    ours = is_ours(spec, facts)
    for field, text in (("pods", spec.network.pods), ("services", spec.network.services)):
        wanted = _network(text)
        if wanted is None:
            continue
        for name in dict.fromkeys((*facts.addresses, *facts.routes)):
            other = _network(name)
            if other is None or other.version != wanted.version or not other.overlaps(wanted):
                continue
            if ours and wanted.prefixlen <= other.prefixlen:  # the way to another node's pods
                continue
            yield HostProblem(
                host=facts.name,
                check="range",
                message=f"the host is connected to {other}, which overlaps network.{field} {text}",
                remedy=f"choose another range for network.{field}, such as {SPARE[field]}",
            )
            break


def one_link(spec: ClusterSpec, facts: Mapping[str, HostFacts]) -> Problems:
    """Check that all nodes are in one subnet, which `routes` needs: it sends pod packets directly to the node."""
    if spec.network.kind != "routes" or len(spec.hosts) < 2:
        return
    links: dict[str, list[str]] = {}
    for host in spec.hosts:
        if host.name in facts and (link := _link(host, facts[host.name])):
            links.setdefault(link, []).append(host.name)
    if len(links) > 1:
        usual = max(links.values(), key=len)
        for link, names in links.items():
            if names is usual:
                continue
            for name in names:
                yield HostProblem(
                    host=name,
                    check="link",
                    message=f"it is on {link}, and {listing(usual, 3)} elsewhere; network: routes needs one subnet",
                    remedy="`network: {kind: flannel}` works across subnets; or give `node_address`",
                )


def virtual_ip(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Problems:
    """kube-vip announces its address on the link of the node's own one, and nobody else may have it."""
    if not spec.vip:
        return
    link = _network(_link(host, facts)) if host.role == "control-plane" else None
    address, message = ipaddress.ip_address(spec.vip), ""
    if link is not None and address not in link:
        message = f"it is on {link}, and {spec.vip} is not: kube-vip moves an address within one subnet"
    elif link is not None and link.prefixlen < 31 and address in (link.network_address, link.broadcast_address):
        message = f"{spec.vip} is no address of a host in {link}"
    if message:
        remedy = "vip: an address of the control planes' subnet that nobody has; or `endpoint`, a load balancer's"
        yield HostProblem(host=facts.name, check="vip", message=message, remedy=remedy)
    if not is_ours(spec, facts) and spec.vip in [entry.partition("/")[0] for entry in facts.addresses]:
        yield HostProblem(
            host=facts.name,
            check="vip",
            message=f"it has the address {spec.vip} itself, which is to move between control planes",
            remedy="vip: an address that nobody has",
        )


def _link(host: HostSpec, facts: HostFacts) -> str:
    """The subnet of the node's address."""
    address = host.node_address or facts.source_address
    for entry in facts.addresses:
        if entry.partition("/")[0] == address:
            return str(ipaddress.ip_interface(entry).network)
    return ""


def _network(text: str) -> IpNetwork | None:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None


def vxlan(spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    """What flannel needs of a host's kernel and programs."""
    if spec.network.kind != "flannel":
        return
    if "vxlan" not in (*facts.modules, *facts.loadable):
        yield HostProblem(
            host=facts.name,
            check="vxlan",
            message="the kernel has no vxlan, in which flannel carries packets between nodes",
            remedy="install the rest of its modules (linux-modules-extra, kernel-modules-extra), or `network: routes`",
        )
    if not facts.package("nftables"):
        yield HostProblem(
            host=facts.name,
            check="vxlan",
            message="nft is missing, which flannel calls",
            remedy="install the package nftables",
        )


CHECKS = (vxlan, virtual_ip, ports, firewall, proxies, way_out, overlaps)
