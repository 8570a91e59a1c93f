"""What a pod's containers ask for together."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.fitting.model.requests import clashes, ports_of, requests_of

Body = dict[str, Any]


def container(cpu: str | None = None, *, always: bool = False, limits: Body | None = None, name: str = "c") -> Body:
    resources: Body = {"requests": {"cpu": cpu}} if cpu else {}
    if limits:
        resources["limits"] = limits
    return {"name": name, "resources": resources, **({"restartPolicy": "Always"} if always else {})}


def cpu_of(spec: Body, status: Body | None = None) -> int:
    return dict(requests_of(spec, status)).get("cpu", 0)


def test_containers_add_up() -> None:
    assert cpu_of({"containers": [container("1"), container("500m"), container()]}) == 1500


def test_the_largest_init_container_counts_if_it_is_larger() -> None:
    containers = [container("1")]
    assert cpu_of({"containers": containers, "initContainers": [container("3"), container("2")]}) == 3000
    assert cpu_of({"containers": containers, "initContainers": [container("500m")]}) == 1000


@pytest.mark.parametrize(
    ("inits", "expected"),
    [
        ([container("1", always=True)], 3000),  # a sidecar stays
        ([container("1", always=True), container("4")], 5000),  # started before: there while the other runs
        ([container("4"), container("1", always=True)], 4000),  # started after: not yet
        ([container("2", always=True), container("3"), container("2", always=True)], 6000),
    ],
)
def test_sidecars(inits: list[Body], expected: int) -> None:
    assert cpu_of({"containers": [container("2")], "initContainers": inits}) == expected


def test_overhead_comes_on_top() -> None:
    spec = {"containers": [container("1")], "initContainers": [container("2")], "overhead": {"cpu": "250m"}}
    assert cpu_of(spec) == 2250


def test_a_limit_without_a_request_stands_for_one() -> None:
    spec = {"containers": [container(limits={"cpu": "2", "nvidia.com/gpu": "4"})]}
    assert requests_of(spec) == (("cpu", 2000), ("nvidia.com/gpu", 4))
    assert cpu_of({"containers": [container("1", limits={"cpu": "2"})]}) == 1000


def test_what_is_stated_for_the_whole_pod() -> None:
    spec = {"containers": [container("1"), container("1")], "resources": {"requests": {"cpu": "5"}}}
    assert cpu_of(spec) == 5000
    only_limit = {"containers": [container()], "resources": {"limits": {"memory": "1Ki", "cpu": "1"}}}
    assert requests_of(only_limit) == (("cpu", 1000), ("memory", 1024))


def test_while_it_is_resized_the_larger_counts() -> None:
    status = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "4"}}]}
    assert cpu_of({"containers": [container("1")]}, status) == 4000
    status = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}}]}
    assert cpu_of({"containers": [container("4")]}, status) == 4000


def test_host_ports() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]
    assert ports_of({"containers": [{"ports": ports}]}) == (("TCP", "0.0.0.0", 8080),)
    on_host = {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 81, "protocol": "UDP"}]}]}
    assert ports_of(on_host) == (("UDP", "0.0.0.0", 81),)
    init = {"containers": [], "initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 7}]}]}
    assert ports_of(init) == (("TCP", "0.0.0.0", 7),)
    once = {"containers": [], "initContainers": [{"ports": [{"hostPort": 7}]}]}
    assert ports_of(once) == ()


@pytest.mark.parametrize(
    ("wanted", "taken", "clash"),
    [
        (("TCP", "0.0.0.0", 80), ("TCP", "10.0.0.1", 80), True),
        (("TCP", "10.0.0.1", 80), ("TCP", "0.0.0.0", 80), True),
        (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.2", 80), False),
        (("TCP", "0.0.0.0", 80), ("UDP", "0.0.0.0", 80), False),
        (("TCP", "0.0.0.0", 80), ("TCP", "0.0.0.0", 81), False),
    ],
)
def test_ports_clash(wanted: tuple[str, str, int], taken: tuple[str, str, int], clash: bool) -> None:
    assert (clashes((wanted,), {taken: 1}) is not None) is clash
