"""cluster.yaml: every field, what fits together, and every mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.clusters.cluster_file import cluster_of_hosts, local_cluster, read_cluster, with_version
from longboat.clusters.spec import ClusterSpec, HostSpec, Network, PackageRepository, SoftwareSource, Versions
from longboat.core.errors import JobError, NotFound
from longboat.fitting.model.nodes import Taint

ALL = """\
name: lab
kind: ssh
hosts:
- {address: 10.0.0.5, name: cp, user: root, port: 2222, key: id, bastion: me@gate:22, role: control-plane, gpu: no}
- {address: gpu-1.example.org, node_address: 192.168.7.2, labels: {zone: b}, taints: [nvidia.com/gpu=x:NoSchedule]}
- ubuntu@gpu-2:23
defaults: {user: admin, labels: {zone: a, tier: "1"}, taints: {key: old, effect: NoExecute}, gpu: true}
endpoint: 10.0.0.9:8443
versions: {kubernetes: "1.36", containerd: 2.4.2}
source:
  repositories: [{url: "https://pkgs.example.org/{minor}/deb", key: key.asc, suite: stable main}]
  images: images.tar
network: {kind: flannel, pods: 10.32.0.0/12, services: 10.96.0.0/16}
firewall: open
addons: [gpu, storage]
image: example.org/longboat:1
kubelet: {maxPods: 200, evictionHard: {memory.available: 5%}}
"""


def read(text: str, folder: Path) -> ClusterSpec:
    file = folder / "cluster.yaml"
    file.write_text(text)
    return read_cluster(file)


def mistakes(text: str, folder: Path) -> list[str]:
    with pytest.raises(JobError) as caught:
        read(text, folder)
    return [str(problem).removeprefix(f"{folder}/") for problem in caught.value.problems]


@pytest.mark.parametrize(("count", "hint"), [(3, "10.244.0.0/16"), (257, "10.244.0.0/15"), (5000, "10.224.0.0/11")])
def test_the_range_of_pods_in_the_hint_has_room_for_all(count: int, hint: str, tmp_path: Path) -> None:
    hosts = ", ".join(f"h{number}" for number in range(count))
    small = ", network: {pods: 10.1.0.0/23}" if count == 3 else ""
    with pytest.raises(JobError) as caught:
        read(f"{{name: lab, hosts: [{hosts}]{small}}}", tmp_path)
    assert [problem.hint for problem in caught.value.problems] == [f"pods: {hint}"]
    read(f"{{name: lab, hosts: [{hosts}], network: {{pods: {hint}}}}}", tmp_path)


def test_an_address_that_is_wrong_is_not_told_to_be_missing(tmp_path: Path) -> None:
    hosts = ", ".join(f"{{address: {name}, role: control-plane}}" for name in "abc")
    for field, value in (("vip", "x"), ("endpoint", "root@x")):
        with pytest.raises(JobError) as caught:
            read(f"{{name: lab, {field}: {value}, hosts: [{hosts}]}}", tmp_path)
        assert "need one address" not in str(caught.value) and f"{field}: " in str(caught.value)


def test_all_fields(tmp_path: Path) -> None:
    for name in ("id", "key.asc", "images.tar"):
        (tmp_path / name).write_text("")
    spec = read(
        ALL.replace("taints: {key: old, effect: NoExecute}", "taints: [{key: old, effect: NoExecute}]"), tmp_path
    )
    old = (Taint(key="old", effect="NoExecute"),)
    first, second, third = spec.hosts
    assert first == HostSpec(
        name="cp", address="10.0.0.5", user="root", port=2222, key=str(tmp_path / "id"), bastion="me@gate:22",
        role="control-plane", gpu="no", labels=(("zone", "a"), ("tier", "1")), taints=old,
    )  # fmt: skip
    assert second == HostSpec(
        name="gpu-1", address="gpu-1.example.org", user="admin", node_address="192.168.7.2", gpu="yes",
        labels=(("zone", "b"), ("tier", "1")), taints=(Taint(key="nvidia.com/gpu", value="x", effect="NoSchedule"),),
    )  # fmt: skip
    assert (third.name, third.address, third.user, third.port, third.role) == ("gpu-2", "gpu-2", "ubuntu", 23, "worker")
    assert (spec.name, spec.kind, spec.endpoint, spec.firewall) == ("lab", "ssh", "10.0.0.9:8443", "open")
    assert (spec.addons, spec.image) == (("gpu", "storage"), "example.org/longboat:1")
    assert spec.versions == Versions(kubernetes="1.36.4", containerd="2.4.2", flannel="0.28.0")
    repository = PackageRepository(
        url="https://pkgs.example.org/{minor}/deb", key=str(tmp_path / "key.asc"), suite="stable main"
    )
    assert spec.source == SoftwareSource(repositories=(repository,), images=str(tmp_path / "images.tar"))
    assert spec.network == Network(kind="flannel", pods="10.32.0.0/12", services="10.96.0.0/16")
    assert spec.kubelet == (("maxPods", "200"), ("evictionHard", '{"memory.available":"5%"}'))


def test_hosts_alone_are_enough(tmp_path: Path) -> None:
    spec = read("{name: lab, hosts: [root@gpu_1, '[fd00::5]:22', 10.0.0.5]}", tmp_path)
    assert [(host.name, host.address, host.port, host.role) for host in spec.hosts] == [
        ("gpu-1", "gpu_1", None, "control-plane"),
        ("fd00-5", "fd00::5", 22, "worker"),
        ("10-0-0-5", "10.0.0.5", None, "worker"),
    ]
    assert spec.versions == Versions() and spec.source == SoftwareSource() and spec.network == Network()
    assert cluster_of_hosts(["root@gpu_1", "[fd00::5]:22", "10.0.0.5"], name="lab") == spec


def test_a_kind_that_is_none_is_one_mistake(tmp_path: Path) -> None:
    with pytest.raises(JobError) as caught:
        read("{name: lab, kind: ibm}", tmp_path)
    assert [problem.path for problem in caught.value.problems] == ["kind"]


def test_the_first_host_is_the_control_plane_unless_one_says_so(tmp_path: Path) -> None:
    def roles(*hosts: str) -> list[str]:
        spec = read(f"{{name: lab, endpoint: vip, hosts: [{', '.join(hosts)}]}}", tmp_path)
        return [host.name for host in spec.control_planes]

    plane, worker = "{{address: {0}, role: control-plane}}".format, "{{address: {0}, role: worker}}".format
    assert roles("a", "b", plane("c")) == ["c"]
    assert roles(worker("a"), "b", "c") == ["b"]
    assert roles(plane("a"), plane("b"), plane("c"), "d") == ["a", "b", "c"]


def test_local_is_one_node_called_like_the_cluster(tmp_path: Path) -> None:
    spec = read("{name: desk, kind: local, defaults: {gpu: no, labels: {a: b}}}", tmp_path)
    (host,) = spec.hosts
    assert host == HostSpec(name="desk", address="", role="control-plane", gpu="no", labels=(("a", "b"),))
    assert local_cluster(name="desk").kind == "local"


def test_existing_is_a_context(tmp_path: Path) -> None:
    spec = read("{name: prod, kind: existing, context: admin@prod, addons: [kueue]}", tmp_path)
    assert (spec.context, spec.hosts, spec.addons) == ("admin@prod", (), ("kueue",))
    assert read("{name: prod, kind: existing}", tmp_path).context == "prod"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("packages", SoftwareSource()),
        (
            {"location": "http://mirror.example.org/k8s", "sha256": "0" * 64},
            SoftwareSource(kind="files", location="http://mirror.example.org/k8s", sha256="0" * 64),
        ),
        ("https://mirror.example.org/k8s", SoftwareSource(kind="files", location="https://mirror.example.org/k8s")),
        ("bundle.tar", SoftwareSource(kind="files", location="HERE/bundle.tar")),
        ("{location: .}", SoftwareSource(kind="files", location="HERE")),
    ],
)
def test_sources(source: str, expected: SoftwareSource, tmp_path: Path) -> None:
    (tmp_path / "bundle.tar").write_text("")
    spec = read(f"{{name: lab, hosts: a, source: {source}}}", tmp_path)
    location = expected.location and expected.location.replace("HERE", str(tmp_path))
    assert (spec.source.kind, spec.source.location) == (expected.kind, location)


def test_a_manifest_is_a_network_of_its_own_kind(tmp_path: Path) -> None:
    (tmp_path / "cni.yaml").write_text("")
    spec = read("{name: lab, hosts: a, network: {manifest: cni.yaml}}", tmp_path)
    assert spec.network == Network(kind="manifest", manifest=str(tmp_path / "cni.yaml"))
    assert read("{name: lab, hosts: a, network: flannel}", tmp_path).network == Network(kind="flannel")


def test_all_mistakes_at_once_with_line_and_column(tmp_path: Path) -> None:
    text = """\
name: Lab 1
hosts:
- root@10.96.0.7
- {address: a, rol: worker}
- {address: 10.0.0.300, role: master}
- user@b:99999
- {address: c.example.org, name: c, key: none}
- c
network: {pods: 10.96.0.0/16}
versions: "1.12"
firewall: shut
"""
    assert mistakes(text, tmp_path) == [
        'cluster.yaml:1:7: name: found the text "Lab 1", expected a-z, 0-9 and -, beginning with a letter, '
        "not ending with -, at most 40 characters; for example lab-1",
        "cluster.yaml:3:3: hosts.0.address: 10.96.0.7 lies in the network of services, 10.96.0.0/12",
        'cluster.yaml:4:16: hosts.1.rol: unknown field; did you mean "role"?',
        "cluster.yaml:5:13: hosts.2.address: 10.0.0.300 is no IPv4 address, and a name of digits alone would be taken"
        " for one",
        'cluster.yaml:5:31: hosts.2.role: found the text "master", expected one of control-plane, worker',
        'cluster.yaml:6:3: hosts.3: found the text "user@b:99999", expected user@host:port, of which user and port'
        " may be left out: the port is a number from 1 to 65535",
        f"cluster.yaml:7:42: hosts.4.key: no such file: {tmp_path}/none",
        "cluster.yaml:8:3: hosts.5.name: hosts.4 is called c too",
        "cluster.yaml:9:10: network: pods (10.96.0.0/16) and services (10.96.0.0/12) overlap, expected two networks",
        "cluster.yaml:10:11: versions: kubernetes 1.12: not a combination that is tested",
        'cluster.yaml:11:11: firewall: found the text "shut", expected one of check, open, ignore',
    ]


def test_files_of_addons_are_found_beside_the_cluster_file(tmp_path: Path) -> None:
    text = (
        "{name: prod, kind: existing, image: x, addons: [storage, autoscaler, jobset], pools: p.yaml, "
        f"manifests: {{jobset: 'j.yaml#sha256={'0' * 64}', kueue: 'https://x.example/k.yaml'}}, "
        "storage: {server: nas, path: /export}}"
    )
    for name, content in (("cluster.yaml", text), ("p.yaml", ""), ("j.yaml", "")):
        (tmp_path / name).write_text(content)
    spec = read_cluster(tmp_path / "cluster.yaml")
    assert spec.pools == str(tmp_path / "p.yaml")
    assert spec.manifests == (
        ("jobset", f"{tmp_path / 'j.yaml'}#sha256={'0' * 64}"),
        ("kueue", "https://x.example/k.yaml"),
    )
    assert (spec.storage.kind, spec.storage.server, spec.storage.path) == ("nfs", "nas", "/export")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{hosts: a}", 'the field "name" is missing'),
        ("name: lab", "the kind ssh needs hosts"),
        ("{name: lab, kind: ssh}", "the kind ssh needs hosts"),
        ("{name: lab, hosts: []}", "the kind ssh needs hosts"),
        ("{name: lab, hosts: a, context: x}", "context: a context is of the kind existing"),
        ("{name: lab, kind: local, hosts: a}", "hosts: the kind local is this machine"),
        ("{name: lab, kind: local, defaults: {user: x}}", "defaults.user: the kind local is this machine"),
        ("{name: lab, kind: existing, versions: '1.36'}", "versions: the kind existing takes a cluster as it is"),
        ("{name: lab, hosts: a, addons: [storage]}", "addons: storage needs an image that has Longboat"),
        ("{name: lab, hosts: a, image: x, addons: [autoscaler]}", "addons: autoscaler needs a pools file"),
        ("{name: lab, hosts: a, pools: none.yaml}", "pools: no such file"),
        ("{name: lab, hosts: a, storage: nfs}", "storage"),
        ("{name: lab, hosts: a, storage: {server: nas}}", "storage: nfs needs a server and the path that it exports"),
        ("{name: lab, hosts: a, storage: {kind: local-path, server: nas}}", "storage: a server is of the kind nfs"),
        ("{name: lab, hosts: a, storage: {path: /etc}}", "storage.path: /etc is the system's"),
        (
            "{name: lab, hosts: a, storage: {path: /srv/../etc}}",
            "storage.path: found '/srv/../etc', expected",
        ),
        (
            "{name: lab, hosts: a, storage: {path: /var/lib/longboat}}",
            "/var/lib/longboat is the system's",
        ),
        (
            "{name: lab, hosts: a, storage: {path: /var/lib/kubelet/x}}",
            "storage.path: /var/lib/kubelet/x is the system",
        ),
        ("{name: lab, hosts: a, storage: {path: /tmp/volumes}}", "storage.path: /tmp/volumes is the system's"),
        ("{name: lab, hosts: a, storage: {path: /home}}", "storage.path: /home is the system's"),
        ("{name: lab, hosts: a, storage: {server: nas, path: /var}}", "storage.path: /var is the system's"),
        ("{name: lab, hosts: a, storage: {path: '/srv/$(id)'}}", "storage.path: found '/srv/$(id)'"),
        ("{name: lab, hosts: a, manifests: {metrics: x}}", 'found the key "metrics", expected jobset or kueue'),
        ("{name: lab, hosts: a, manifests: {kueue: 'http://x/y'}}", "manifests.kueue: a manifest that comes over http"),
        ("{name: lab, hosts: a, manifests: {kueue: none.yaml}}", "manifests.kueue: no such file"),
        ("{name: lab, hosts: a, manifests: {kueue: 'none.yaml#sha256=0'}}", "expected #sha256= with 64 hexadecimal"),
        ("{name: lab, hosts: [a, {address: b, name: a}]}", "hosts.1.name: hosts.0 is called a too"),
        ("{name: lab, hosts: [a, {address: a, name: b}]}", "hosts.1: the same machine as hosts.0: a"),
        ("{name: lab, hosts: [{address: a, role: worker}]}", "hosts: all hosts are workers"),
        (
            "{name: lab, hosts: [{address: a, role: control-plane}, {address: b, role: control-plane}]}",
            "hosts: found 2 control planes, expected 1, 3 or 5",
        ),
        (
            "{name: x, hosts: [" + ", ".join(f"{{address: {a}, role: control-plane}}" for a in "abc") + "]}",
            "endpoint: 3 control planes need one address",
        ),
        ("{name: lab, hosts: a, endpoint: root@x}", "endpoint: expected the address before the control planes"),
        ("{name: lab, hosts: a, endpoint: '[fd00::1]:6443'}", "no IPv6 address"),
        ("{name: lab, hosts: [{address: a, node_address: 'fd00::1'}]}", "hosts.0.node_address: found 'fd00::1'"),
        ("{name: lab, hosts: [{address: a, node_address: b}]}", "hosts.0.node_address: found 'b'"),
        ("{name: lab, hosts: 10.0.0.5, vip: 10.0.0.9, endpoint: x}", "vip: endpoint and vip are two addresses"),
        ("{name: lab, hosts: 10.0.0.5, vip: cp.example.org}", "vip: found 'cp.example.org', expected an IPv4 address"),
        ("{name: lab, hosts: 10.0.0.5, vip: 127.0.0.1}", "vip: found '127.0.0.1', expected an IPv4 address"),
        ("{name: lab, hosts: 10.0.0.5, vip: 10.0.0.5}", "vip: 10.0.0.5 is the address of hosts.0"),
        ("{name: lab, hosts: 10.0.0.5, vip: 10.244.0.9}", "vip: 10.244.0.9 lies in the network of pods"),
        ("{name: lab, kind: local, vip: 10.0.0.9}", "vip: the kind local has one control plane"),
        ("{name: lab, hosts: a, endpoint: 10.96.0.1}", "endpoint: 10.96.0.1 lies in the network of services"),
        ("{name: lab, hosts: [a, b, c], network: {pods: 10.1.0.0/23}}", "network.pods: 10.1.0.0/23 has room for 2"),
        ("{name: lab, hosts: a, network: {pods: 10.1.0.0/25}}", "network.pods: 10.1.0.0/25 has no room for a node"),
        ("{name: lab, hosts: a, network: {pods: 10.1.2.3/16}}", "did you mean 10.1.0.0/16?"),
        ("{name: lab, hosts: a, network: {pods: 127.0.0.0/16}}", "network.pods: 127.0.0.0/16 is reserved"),
        ("{name: lab, hosts: a, network: {services: 172.0.0.0/8}}", "services is a network from /12 to /24"),
        ("{name: lab, hosts: a, network: {kind: manifest}}", "the kind manifest and the field manifest belong"),
        ("{name: lab, hosts: a, source: nowhere}", "source.location: no such file"),
        ("{name: lab, hosts: a, source: {location: ., images: x}}", "files bring their own"),
        ("{name: lab, hosts: a, source: 'https://me:secret@x/y'}", "a user or a password in the URL"),
        ("{name: lab, hosts: a, source: 'http://x/y'}", "programs that come over http could be anybody's"),
        ("{name: lab, hosts: a, source: {images: 'http://x/y'}}", "what comes over http could be anybody's"),
        ("{name: lab, hosts: a, source: {images: 'https://x/y#sha256=0'}}", "with 64 hexadecimal digits"),
        ("{name: lab, hosts: a, source: {location: 'http://x/y'}}", "programs that come over http could be anybody's"),
        ("{name: lab, hosts: a, source: {location: ., sha256: abc}}", "64 hexadecimal digits"),
        (f"{{name: lab, hosts: a, source: {{sha256: {'0' * 64}}}}}", "sha256 is that of a bundle"),
        ("{name: lab, hosts: a, versions: {containerd: 1.7.1}}", "containerd 1.7.1: not a combination"),
        ("{name: lab, hosts: a, addons: [gpu, gpu]}", "addons: gpu stands there 2 times"),
        ("{name: lab, hosts: a, kubelet: {kind: x}}", "found the key"),
        ("{name: lab, hosts: a, kubelet: {maxPods: .inf}}", "kubelet.maxPods: found the number .inf"),
        ("{name: lab, hosts: ___}", "hosts: found the text"),
        ("[]", "found a list or a single value, expected a mapping"),
    ],
)
def test_each_mistake(text: str, words: str, tmp_path: Path) -> None:
    (found,) = mistakes(text, tmp_path)
    assert words in found and "secret" not in found


@pytest.mark.parametrize(
    "host",
    ["-oProxyCommand=id", "a;id", "$(id)", "a b", "a\\tb", "*", "../x", "a'b", "root@-x", "a..b", "::1%lo", "0.0.0.0"],
)
@pytest.mark.parametrize(
    "field", ['hosts: ["{}"]', 'hosts: [{{address: "{}"}}]', 'hosts: [{{address: x, bastion: "{}"}}]']
)
def test_no_host_reaches_a_shell_with_more_than_a_name(host: str, field: str, tmp_path: Path) -> None:
    assert mistakes(f"name: lab\n{field.format(host)}\n", tmp_path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        read_cluster(tmp_path / "cluster.yaml")
    assert caught.value.hint is not None and "longboat cluster init" in caught.value.hint


def test_mistakes_of_flags_name_the_flag() -> None:
    with pytest.raises(JobError) as caught:
        cluster_of_hosts(["a", "b;c"], name="lab")
    (problem,) = caught.value.problems
    assert str(problem).startswith('--hosts: hosts.1: found the text "b;c"')


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ("", "versions: 1.36.4\n"),
        ("versions: '1.35'  # so far\n", "versions: 1.36.4  # so far\n"),
        ("versions: {kubernetes: 1.35.8, containerd: 2.4.2}\n", "versions: {kubernetes: 1.36.4, containerd: 2.4.2}\n"),
        ("versions:\n  # pinned\n  kubernetes: 1.35.8\n", "versions:\n  # pinned\n  kubernetes: 1.36.4\n"),
        ("versions:\n  containerd: 2.4.2\n", "versions:\n  kubernetes: 1.36.4\n  containerd: 2.4.2\n"),
        ("versions: {containerd: 2.4.2}\n", "versions: {kubernetes: 1.36.4, containerd: 2.4.2}\n"),
    ],
)
def test_another_version_is_written_and_the_rest_stays(tmp_path: Path, versions: str, expected: str) -> None:
    head = "# the lab\nname: lab\nhosts: [gpu-1]  # one\n"
    text = with_version(head + versions, "1.36.4")
    assert text == head + expected
    (tmp_path / "cluster.yaml").write_text(text)
    assert read_cluster(tmp_path / "cluster.yaml").versions.kubernetes == "1.36.4"


@pytest.mark.parametrize("text", ["{name: lab, hosts: [a]}", "name: lab\nversions: {}\n", "name: lab\nversions:\n"])
def test_a_version_that_is_better_written_by_hand(text: str) -> None:
    assert with_version(text, "1.36.4") is None
