"""Resource requests of a pod: the sum over its containers, and the host ports they take. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longboat.fitting.model.quantities import CPU, MEMORY, Amounts, amounts, largest, total

Body = Mapping[str, Any]
Port = tuple[str, str, int]
"""Protocol, address of the host (0.0.0.0: all), port."""

_MAX_KNOWN = 50_000  # containers remembered in a process that lives for months
_known: dict[Any, Amounts] = {}


def requests_of(spec: Body, status: Body | None = None) -> Amounts:
    """The effective request: what runs at once, or the largest moment of the start, and the overhead.

    With a status, a container whose resources are being changed counts with the larger of the old and the new.
    """
    containers = spec.get("containers") or ()
    inits = spec.get("initContainers")
    if status and status.get("containerStatuses"):
        allocated = _allocated(status)
        running = [
            largest(container_requests(container), allocated.get(container.get("name"), ())) for container in containers
        ]
    else:
        running = [container_requests(container) for container in containers]
    requests = running[0] if len(running) == 1 else total(running)
    if inits:
        requests = _with_inits(requests, inits)
    stated = (spec.get("resources") or {}).get("requests")
    if stated or (spec.get("resources") or {}).get("limits"):
        requests = _stated_for_pod(requests, spec["resources"])
    if spec.get("overhead"):
        requests = total([requests, amounts(spec["overhead"])])
    return requests


def container_requests(container: Body) -> Amounts:
    """Its requests; a limit without a request stands for one, as the API server fills in."""
    resources = container.get("resources")
    if not resources:
        return ()
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    key = (tuple(requests.items()), tuple(limits.items()))
    requests_known = _known.get(key)
    if requests_known is None:
        if len(_known) > _MAX_KNOWN:
            _known.clear()
        requests_known = _known[key] = amounts({**limits, **requests})
    return requests_known


def _allocated(status: Body) -> dict[str, Amounts]:
    allocated = {}
    for container in status["containerStatuses"]:
        held = container.get("allocatedResources")
        if held:
            allocated[container.get("name")] = container_requests({"resources": {"requests": held}})
    return allocated


def _with_inits(running: Amounts, inits: list[Body]) -> Amounts:
    """Sidecars (restartable) stay and add up; another one needs itself and the sidecars started before it."""
    sidecars: Amounts = ()
    peak: Amounts = ()
    for init in inits:
        if init.get("restartPolicy") == "Always":
            sidecars = total([sidecars, container_requests(init)])
            peak = largest(peak, sidecars)
        else:
            peak = largest(peak, total([sidecars, container_requests(init)]))
    return largest(total([running, sidecars]), peak)


def _stated_for_pod(amounts_stated: Amounts, resources: Body) -> Amounts:
    """Requests of the whole pod take the place of the sum, for the resources that can be stated there."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    able = {name for name in {**limits, **requests} if name in (CPU, MEMORY) or name.startswith("hugepages-")}
    asked = dict(amounts_stated)
    # A limit alone stands for a request only where no container asks.
    stated = {name: requests.get(name, limits.get(name)) for name in able if name in requests or name not in asked}
    asked.update(dict(amounts({name: value for name, value in stated.items() if value is not None})))
    return tuple(sorted(asked.items()))


def ports_of(spec: Body) -> tuple[Port, ...]:
    on_host = spec.get("hostNetwork")
    ports: set[Port] = set()
    for container in spec.get("containers") or ():
        if container.get("ports"):
            ports |= _container_ports(container, on_host)
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always" and container.get("ports"):
            ports |= _container_ports(container, on_host)
    return tuple(sorted(ports))


def _container_ports(container: Body, on_host: bool | None) -> set[Port]:
    ports = set()
    for port_body in container["ports"]:
        port = port_body.get("hostPort") or (port_body.get("containerPort") if on_host else None)
        if port:
            ports.add((port_body.get("protocol") or "TCP", port_body.get("hostIP") or "0.0.0.0", int(port)))
    return ports


def clashes(wanted: tuple[Port, ...], taken: Mapping[Port, int]) -> Port | None:
    """The first wanted port that somebody has, on the same address or on all."""
    for protocol, address, port in wanted:
        for other_protocol, other_address, other_port in taken:
            if (other_protocol, other_port) == (protocol, port) and (
                address == other_address or "0.0.0.0" in (address, other_address)
            ):
                return (protocol, address, port)
    return None
