"""Ports that a node needs open for the other nodes, as firewalls write them. Pure."""

from __future__ import annotations

from longboat.clusters.spec import ClusterSpec, HostSpec

NODE_PORTS = ("10250/tcp", "30000:32767/tcp")
CONTROL_PORTS = ("6443/tcp", "2379:2380/tcp")
VXLAN_PORT = 8472
"""Linux' own, which flannel takes too; not the standard's 4789."""
ALONE_PORTS = ("6443/tcp",)
"""Of this machine alone: its pods come to the API server from their own addresses. Nobody else has to."""


def ports(spec: ClusterSpec, host: HostSpec) -> tuple[str, ...]:
    if spec.kind == "local":
        return ALONE_PORTS
    wanted = NODE_PORTS + ((f"{VXLAN_PORT}/udp",) if spec.network.kind == "flannel" else ())
    return wanted + (CONTROL_PORTS if host.role == "control-plane" else ())
