"""What a probe tells of hosts with GPUs: one that is ready for them, one without a driver."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.observe.gpu_checks import gpu
from longboat.clusters.observe.parse import parse
from longboat.clusters.observe.probe_shell import script
from longboat.clusters.spec import ClusterSpec, HostSpec
from testbed import driver
from testbed.hosts import Group, Host

pytestmark = pytest.mark.hosts


def facts_of(host: Host) -> HostFacts:
    sent_s = time.time()
    return parse(host.name, host.run("sudo sh -s", text=script()), sent_s=sent_s, received_s=time.time())


def test_gpus_are_seen_with_and_without_a_driver(hosts: Callable[..., Group]) -> None:
    ready, bare = map(facts_of, hosts(2, "0:gpus=2", "1:gpus=3", "1:no-driver").hosts)
    assert [device.bus for device in ready.gpus] == [driver.bus_address(0), driver.bus_address(1)]
    assert ready.driver == ready.program("nvidia-smi") == driver.VERSION and "nvidia" in ready.modules
    assert (len(bare.gpus), bare.driver, bare.program("nvidia-smi")) == (3, "", "")
    spec = ClusterSpec(name="lab", addons=("gpu",))
    problems = [[*gpu(spec, HostSpec(name=facts.name, address="192.0.2.1"), facts)] for facts in (ready, bare)]
    assert problems[0] == []
    assert [problem.message for problem in problems[1]] == ["3 NVIDIA devices without a driver"]
