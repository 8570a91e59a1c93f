"""Which steps hosts still need: from bare machines, half-made ones and finished ones."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.plan import kubeadm, network, runtime
from longboat.clusters.plan.host_plan import plan_hosts, plan_network
from longboat.clusters.plan.network import NodeView
from longboat.clusters.plan.steps import Step
from longboat.clusters.spec import ClusterSpec, SoftwareSource, Versions
from longboat.core.errors import Refused
from longboat.fitting.model.nodes import Taint
from tests.clusters.worlds import KEYS, bare, cluster

FULL = ["journal", "data", "repository", "sysctl", "packages", "containerd"]


def names(spec: ClusterSpec, facts: HostFacts) -> list[str]:
    plan = plan_hosts(spec, {facts.name: facts}, KEYS)
    return [step.name for step in plan.steps]


def finished(spec: ClusterSpec, name: str) -> HostFacts:
    """A host on which every step of the plan was carried out."""
    facts = bare(name)
    steps = {step.name: step.key for step in plan_hosts(spec, {name: facts}, KEYS).steps}
    config = runtime.configuration(spec, facts)
    return bare(
        name,
        journal_cluster=spec.name,
        sysctls=(("net.ipv4.ip_forward", "1"),),
        packages=tuple((package, f"{spec.versions.kubernetes}-1.1") for package in ("kubelet", "kubeadm", "kubectl")),
        programs=(("containerd", "2.4.2"),),
        units=(("containerd", "active"),),
        files=((runtime.CONFIG, hashlib.sha256(config.encode()).hexdigest()), (kubeadm.KUBELET, "x")),
        done=(*((step, key) for step, key in steps.items() if step not in ("init", "join")), ("kubernetes", "")),
    )


def test_bare_hosts_become_a_control_plane_and_workers() -> None:
    spec = cluster()
    assert names(spec, bare("cp-0")) == [*FULL, "init"]
    assert names(spec, bare("w-0")) == [*FULL, "join"]


def test_a_bundle_needs_no_repository_and_brings_images() -> None:
    spec = cluster(source=SoftwareSource(kind="files", location="/lab.tar"))
    assert names(spec, bare("w-0")) == ["journal", "data", "sysctl", "packages", "containerd", "images", "join"]
    facts = bare("w-0", images=(f"registry.k8s.io/pause:{spec.versions.pause}", "registry.k8s.io/kube-proxy:v1.36.4"))
    assert "images" not in names(spec, facts)
    plan = plan_hosts(spec, {"w-0": facts}, {}, ["example.org/network:1"])  # a later bundle has one more
    step = next(step for step in plan.steps if step.name == "images")
    assert step.kind == "images" and "label example.org/network:1 io.cri-containerd.pinned=pinned" in step.script
    assert plan_hosts(spec, {"w-0": facts}, {}, ["example.org/network:2"]).steps[-2].key != step.key


def test_a_finished_host_needs_nothing() -> None:
    spec = cluster()
    for host in spec.hosts:
        assert names(spec, finished(spec, host.name)) == []


def test_what_somebody_changed_since_is_done_again() -> None:
    spec = cluster()
    good = finished(spec, "w-0")
    without_config = tuple(entry for entry in good.files if entry[0] != runtime.CONFIG)
    for drift, wanted in {
        "sysctls": ((("net.ipv4.ip_forward", "0"),), ["sysctl"]),
        "files": (without_config, ["containerd"]),
        "units": ((("containerd", "failed"),), ["containerd"]),
        "swaps": (("/dev/sdb",), ["swap"]),
        "packages": ((), ["packages"]),
    }.items():
        assert names(spec, msgspec.structs.replace(good, **{drift: wanted[0]})) == wanted[1], drift


def test_a_firewall_that_was_closed_since_is_opened_again() -> None:
    """With the very script of the first time."""
    spec = cluster(firewall="open")
    closed = bare("w-0", firewall="ufw")
    (step,) = (step for step in plan_hosts(spec, {"w-0": closed}, KEYS).steps if step.name == "firewall")
    again = msgspec.structs.replace(closed, done=(("firewall", step.key),))
    assert "firewall" in names(spec, again)
    open_now = msgspec.structs.replace(again, open_ports=("10250/tcp", "30000:32767/tcp"))
    assert "firewall" not in names(spec, open_now)


def test_images_that_the_kubelet_removed_since_are_imported_again_and_once() -> None:
    spec = cluster(source=msgspec.structs.replace(cluster().source, images="https://files.example.org/images.tar"))

    def images(**fields: Any) -> list[Step]:
        facts = bare("w-0", **fields)
        return [step for step in plan_hosts(spec, {"w-0": facts}, KEYS).steps if step.name == "images"]

    (first,) = images()
    (again,) = images(done=(("images", first.key),))
    assert again.key != first.key
    assert images(done=(("images", again.key),)) == []  # the archive has them not


def test_another_version_on_a_node_is_refused() -> None:
    good = finished(cluster(), "w-0")
    newer = msgspec.structs.replace(cluster(), versions=Versions(kubernetes="1.37.0"))
    with pytest.raises(Refused, match=r"w-0 has Kubernetes 1\.36\.4-1\.1, the file asks for 1\.37\.0"):
        names(newer, good)
    assert "packages" in names(newer, bare("w-0"))  # a host that is not part of it yet gets the new one


def test_a_new_machine_in_place_of_the_control_plane_is_refused() -> None:
    spec = cluster()
    with pytest.raises(Refused, match=r"w-0 of lab have a control plane already, and cp-0 is not part of it"):
        plan_hosts(spec, {"cp-0": bare("cp-0"), "w-0": finished(spec, "w-0")}, KEYS)


def test_an_old_containerd_of_the_users_is_not_replaced() -> None:
    with pytest.raises(Refused, match="not ours to replace"):
        names(cluster(), bare("w-0", programs=(("containerd", "1.6.20"),)))


def test_ranges_that_are_no_pods_ranges_become_no_routes() -> None:
    spec = cluster(workers=2)
    nodes = [
        NodeView(name="cp-0", address="10.0.0.1", pods="10.244.0.0/24", is_ready=True),
        NodeView(name="w-0", address="10.0.0.66", pods="0.0.0.0/0", is_ready=True),
        NodeView(name="stranger", address="10.0.0.67", pods="10.244.9.0/24", is_ready=True),
    ]
    facts = {host.name: bare(host.name) for host in spec.hosts}
    steps = plan_network(spec, facts, nodes).steps
    assert [step.host for step in steps] == ["cp-0"] and "routes to 0 other nodes" in steps[0].title


@pytest.mark.parametrize("claimed", ["10.244.1.0/24", "10.244.1.128/25", "10.244.0.0/16"])
def test_a_node_that_claims_the_range_of_another_gets_no_routes(claimed: str) -> None:
    spec = cluster(workers=2)
    nodes = [
        NodeView(name=name, address="", pods=pods, is_ready=True)
        for name, pods in (("cp-0", "10.244.0.0/24"), ("w-0", "10.244.1.0/24"), ("w-1", claimed))
    ]
    with pytest.raises(Refused, match=r"w-1.*claim the same range of pod addresses"):
        plan_network(spec, {host.name: bare(host.name) for host in spec.hosts}, nodes)


def test_a_join_that_was_cut_off_is_done_again() -> None:
    spec = cluster()
    good = finished(spec, "w-0")
    cut_off = msgspec.structs.replace(good, done=tuple(entry for entry in good.done if entry[0] != "kubernetes"))
    assert names(spec, cut_off) == ["join"]


def test_workers_wait_for_init_and_control_planes_for_each_other() -> None:
    spec = cluster(planes=3, workers=1, endpoint="10.0.0.9")
    plan = plan_hosts(spec, {host.name: bare(host.name) for host in spec.hosts}, KEYS)
    needs = {step.host: step.needs for step in plan.steps if step.name in ("init", "join")}
    assert needs == {"cp-0": (), "cp-1": ("cp-0/init",), "cp-2": ("cp-1/join",), "w-0": ("cp-0/init",)}


def test_kube_vip_comes_with_the_control_planes_alone() -> None:
    spec = cluster(planes=3, workers=1, vip="10.0.0.9")
    plan = plan_hosts(spec, {host.name: bare(host.name) for host in spec.hosts}, KEYS)
    scripts = {step.host: step.script for step in plan.steps if step.name in ("init", "join")}
    assert [name for name, script in scripts.items() if "put_vip" in script] == ["cp-0", "cp-1", "cp-2"]
    documents = kubeadm.init_documents(spec, spec.hosts[0], bare("cp-0"), "a.b")
    assert documents[1]["controlPlaneEndpoint"] == "10.0.0.9:6443"
    for name in ("cp-0", "cp-1"):  # the address goes after the pods that might bring it back
        assert scripts[name].index("undo vip ") < scripts[name].index("undo kubernetes ")
    assert scripts["cp-1"].index("kubeadm join") < scripts["cp-1"].index("\nput_vip admin.conf")


@pytest.mark.parametrize(("has", "wants"), [("", "10.0.0.9"), ("10.0.0.8", "10.0.0.9"), ("10.0.0.8", None)])
def test_the_virtual_ip_of_a_cluster_that_runs_cannot_be_changed(has: str, wants: str | None) -> None:
    done = (("kubernetes", "member"), *((("vip", has),) if has else ()))
    with pytest.raises(Refused, match="nobody would find the API server"):
        plan_hosts(cluster(vip=wants), {"cp-0": bare("cp-0", done=done)}, KEYS)


def test_a_host_that_does_not_answer_has_no_steps() -> None:
    assert [host.host for host in plan_hosts(cluster(), {"cp-0": bare("cp-0")}, KEYS).hosts] == ["cp-0"]


def test_a_containerd_that_is_good_enough_stays() -> None:
    facts = bare("w-0", programs=(("containerd", "2.1.4"),))
    step = next(step for step in plan_hosts(cluster(), {"w-0": facts}, KEYS).steps if step.name == "packages")
    assert "containerd" not in step.title


def test_a_control_plane_alone_takes_pods_and_one_with_workers_does_not() -> None:
    alone, many = cluster(workers=0), cluster()
    own = kubeadm.init_documents(alone, alone.hosts[0], bare("cp-0"), "a.b")[0]["nodeRegistration"]
    assert own["taints"] == []
    assert "taints" not in kubeadm.init_documents(many, many.hosts[0], bare("cp-0"), "a.b")[0]["nodeRegistration"]


def test_taints_of_the_file_are_registered() -> None:
    host = msgspec.structs.replace(cluster().hosts[1], taints=(Taint(key="gpu", effect="NoSchedule"),))
    assert kubeadm.registration(host, bare("w-0"))["taints"] == [{"key": "gpu", "value": "", "effect": "NoSchedule"}]


def test_settings_of_the_kubelet_come_from_the_file() -> None:
    spec = cluster(kubelet=(("maxPods", "250"), ("failSwapOn", "false")))
    found = kubeadm.kubelet_configuration(spec, bare("w-0"))
    assert (found["maxPods"], found["failSwapOn"], found["cgroupDriver"]) == (250, False, "systemd")


def test_each_node_has_routes_to_the_others_and_none_to_itself() -> None:
    spec = cluster(workers=2)
    nodes = [
        NodeView(name=host.name, address=f"10.0.0.{number}", pods=f"10.244.{number}.0/24", is_ready=False)
        for number, host in enumerate(spec.hosts, 1)
    ]
    plan = plan_network(spec, {host.name: bare(host.name) for host in spec.hosts}, nodes)
    assert [step.host for step in plan.steps] == ["cp-0", "w-0", "w-1"]
    unit = network.routes_unit(nodes[1:], spec.network.pods)
    assert "ip route replace 10.244.2.0/24 via 10.0.0.2" in unit
    assert "10.244.1.0/24" not in unit


def test_pods_packets_are_forwarded_and_masqueraded_only_on_their_way_out() -> None:
    """Docker and ufw forward nothing of their own accord; pods of other nodes see a pod's own address."""
    unit = network.routes_unit([], "10.244.0.0/16").splitlines()
    starts = [line.partition("iptables -w 30 ")[2] for line in unit if line.startswith("ExecStart=")]
    assert starts == [
        "-I FORWARD -s 10.244.0.0/16 -j ACCEPT",
        "-I FORWARD -d 10.244.0.0/16 -j ACCEPT",
        "-t nat -I POSTROUTING -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j MASQUERADE",
    ]
    stops = [line.partition("iptables -w 30 ")[2] for line in unit if line.startswith("ExecStop=")]
    assert stops == [start.replace("-I ", "-D ") for start in starts]
    assert '"ipMasq": false' in network.conflist("10.244.1.0/24", "lab")


def test_a_new_node_changes_the_routes_of_all_and_a_second_time_of_none() -> None:
    spec = cluster(workers=1)
    nodes = [
        NodeView(name=host.name, address=f"10.0.0.{number}", pods=f"10.244.{number}.0/24", is_ready=True)
        for number, host in enumerate(spec.hosts, 1)
    ]
    facts = {host.name: bare(host.name) for host in spec.hosts}
    alone = plan_network(spec, facts, nodes[:1]).steps[0]
    facts["cp-0"] = bare("cp-0", done=(("network", alone.key),))
    assert plan_network(spec, facts, nodes[:1]).is_empty
    assert {step.host for step in plan_network(spec, facts, nodes).steps} == {"cp-0", "w-0"}


def test_the_network_of_pods_has_the_nodes_range() -> None:
    plugins = json.loads(network.conflist("10.244.3.0/24", "lab"))["plugins"]
    assert plugins[0]["ipam"]["ranges"] == [[{"subnet": "10.244.3.0/24"}]]


@pytest.mark.parametrize(("state", "is_planned"), [("active", False), ("inactive", True), ("failed", True)])
def test_routes_that_were_stopped_since_come_back(state: str, is_planned: bool) -> None:
    spec = cluster(workers=1)
    nodes = [
        NodeView(name="cp-0", address="10.0.0.1", pods="10.244.0.0/24", is_ready=True),
        NodeView(name="w-0", address="10.0.0.2", pods="10.244.1.0/24", is_ready=True),
    ]
    facts = {"cp-0": bare("cp-0"), "w-0": bare("w-0", source_address="10.0.0.2")}
    keys = {step.host: step.key for step in plan_network(spec, facts, nodes).steps}
    facts = {
        name: msgspec.structs.replace(host, done=(("network", keys[name]),), units=(("longboat-routes", state),))
        for name, host in facts.items()
    }
    assert bool(plan_network(spec, facts, nodes).steps) is is_planned
