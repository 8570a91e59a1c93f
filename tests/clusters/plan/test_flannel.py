"""The network flannel: its program, its unit, what nodes may see, and what stands against it."""

from __future__ import annotations

import json
import subprocess

import pytest

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.observe.problems import find_problems
from longboat.clusters.plan import flannel
from longboat.clusters.plan.host_plan import plan_hosts, plan_network
from longboat.clusters.plan.journal_shell import PRELUDE
from longboat.clusters.plan.network import NodeView
from longboat.clusters.plan.steps import Kept
from longboat.clusters.ports import ports
from longboat.clusters.spec import Network
from longboat.core.errors import Refused
from tests.clusters.worlds import KEYS, bare, cluster

SPEC = cluster(workers=1, network=Network(kind="flannel"))
NODES = [
    NodeView(name=host.name, address=f"10.0.{number}.1", pods=f"10.244.{number}.0/24", is_ready=False)
    for number, host in enumerate(SPEC.hosts)
]


def ready(name: str, **fields: object) -> HostFacts:
    return bare(name, modules=("overlay", "vxlan"), packages=(("nftables", "1.0"),), **fields)


def test_the_program_is_installed_before_the_host_joins() -> None:
    names = [step.name for step in plan_hosts(SPEC, {"w-0": ready("w-0")}, KEYS).steps]
    assert names[-2:] == ["flanneld", "join"]
    kept = flannel.program(SPEC, SPEC.hosts[0], ready("cp-0", programs=(("flanneld", "0.28.0"),)))
    assert isinstance(kept, Kept)
    assert flannel.program(cluster(), SPEC.hosts[0], ready("cp-0")) is None


def test_each_host_has_its_unit_and_the_first_one_gives_the_rights() -> None:
    facts = {name: ready(name, source_address=address) for name, address in (("cp-0", "10.0.0.1"), ("w-0", "10.0.1.1"))}
    first, second = plan_network(SPEC, facts, NODES).steps
    assert first.needs == () and second.needs == ("cp-0/network",)
    assert "system:nodes" in first.script and "system:nodes" not in second.script
    for step in (first, second):
        checked = subprocess.run(["sh", "-n"], input=PRELUDE + step.script, text=True, check=False)
        assert checked.returncode == 0
    unit = flannel.unit(NODES[1], SPEC.network.pods)
    assert "NODE_NAME=w-0" in unit and "--iface=10.0.1.1" in unit and "--ip-masq" in unit
    assert json.loads(flannel.configuration("10.244.0.0/16"))["Backend"] == {"Type": "vxlan", "VNI": 1, "Port": 8472}


def test_a_node_that_joins_later_changes_nothing_elsewhere() -> None:
    """flanneld sees it by itself."""
    facts = {name: ready(name) for name in ("cp-0", "w-0")}
    alone = plan_network(SPEC, facts, NODES[:1]).steps[0]
    assert plan_network(SPEC, facts, NODES).steps[0].key == alone.key


def test_its_port_is_opened() -> None:
    assert "8472/udp" in ports(SPEC, SPEC.hosts[1]) and "8472/udp" not in ports(cluster(), SPEC.hosts[1])


def test_a_kernel_without_vxlan_and_a_host_without_nft_are_refused() -> None:
    def messages(**fields: object) -> list[str]:
        facts = [bare(host.name, **fields) for host in SPEC.hosts[:1]]
        return [problem.message for problem in find_problems(SPEC, facts) if problem.check == "vxlan"]

    assert len(messages()) == 2
    assert messages(loadable=("vxlan",), packages=(("nftables", "1.0"),)) == []


def test_another_network_on_a_host_is_refused() -> None:
    facts = {"cp-0": ready("cp-0", units=(("longboat-routes", "active"),))}
    with pytest.raises(Refused, match="cp-0 has the network routes, the file asks for flannel"):
        plan_hosts(SPEC, facts, KEYS)


def test_pods_keep_their_addresses_between_nodes() -> None:
    """flannel masquerades what leaves the network of pods; the plugin would do so with every packet."""
    step = flannel.network(SPEC, "w-0", NODES)
    assert step is not None and '"ipMasq": false' in step.script and '"mtu": "MTU"' in step.script
