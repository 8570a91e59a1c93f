"""The table of all fields of the cluster file. Validation, the JSON schema and the check of its page read it."""

from __future__ import annotations

import functools
from ipaddress import IPv4Network
from typing import Any, get_args

from longboat.clusters.cloud.kinds import CLOUDS
from longboat.clusters.fields import rules
from longboat.clusters.fields.kinds import GpuPresence, HostText, JsonText, NetworkText, SourceText, StorageText
from longboat.clusters.spec import (
    Addon,
    ClusterKind,
    DriverChoice,
    FirewallChoice,
    Network,
    NetworkKind,
    PackageRepository,
    Role,
    SoftwareSource,
    StorageKind,
    Versions,
    VolumeStorage,
)
from longboat.clusters.versions import combination, tested_lines
from longboat.fitting.model.nodes import Taint
from longboat.specs.fields import composites
from longboat.specs.fields.composites import ListOf, MapOf, Shape
from longboat.specs.fields.labels import LABELS, taint_field
from longboat.specs.fields.rules import IMAGE, IMAGE_EXPECTED, NAME, NAME_EXPECTED, suggest_name
from longboat.specs.fields.scalars import ChoiceOf, FieldPath, Text, WholeNumber
from longboat.specs.schema import DIALECT
from longboat.specs.yaml.yaml_tree import YamlNode

MAX_HOSTS = 5000
"""As many nodes as Kubernetes is made for."""

Field = functools.partial(composites.Field, substituted=False)
"""Without `${VAR}`: a cluster file means the same in every shell."""


def _versions(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Versions | None:
    tested = combination(**values)
    if tested is None:
        named = ", ".join(f"{name} {version}" for name, version in values.items())
        at.problem(node, f"{named}: not a combination that is tested", hint=f"tested: {tested_lines()}")
    return tested


def _repository(values: dict[str, Any], _node: YamlNode, _at: FieldPath) -> PackageRepository:
    return PackageRepository(**values)


def _source(values: dict[str, Any], node: YamlNode, at: FieldPath) -> SoftwareSource | None:
    is_bundle = "location" in values
    if is_bundle and {"repositories", "images", "flanneld"} & set(values):
        at.problem(node, "files bring their own packages and images", hint="location alone, or repositories and images")
        return None
    if "sha256" in values and not is_bundle:
        at.problem(node, "sha256 is that of a bundle", hint="location: URL")
        return None
    if values.get("location", "").startswith("http://") and "sha256" not in values:
        at.problem(node, rules.INSECURE_BUNDLE, hint=rules.INSECURE_HINT)
        return None
    return SoftwareSource(kind="files" if "location" in values else "packages", **values)


def _network(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Network | None:
    values.setdefault("kind", "manifest" if "manifest" in values else "routes")
    network = Network(**values)
    before = at.mistakes.count
    if (network.kind == "manifest") != (network.manifest is not None):
        at.problem(node, "the kind manifest and the field manifest belong together", hint="manifest: FILE")
    pods, services = IPv4Network(network.pods), IPv4Network(network.services)
    if pods.overlaps(services):
        at.problem(node, f"pods ({pods}) and services ({services}) overlap, expected two networks")
    if not 12 <= services.prefixlen <= 24:
        at.problem(node, f"services is a network from /12 to /24, found {services}")
    return network if at.mistakes.count == before else None


def _storage(values: dict[str, Any], node: YamlNode, at: FieldPath) -> VolumeStorage | None:
    values.setdefault("kind", "nfs" if "server" in values else "local-path")
    if values["kind"] == "nfs" and not {"server", "path"} <= set(values):
        at.problem(node, "nfs needs a server and the path that it exports", hint="{server: 10.0.0.5, path: /export}")
        return None
    if values["kind"] != "nfs" and "server" in values:
        at.problem(node, "a server is of the kind nfs")
        return None
    storage = VolumeStorage(**values)
    if fault := rules.system_fault(storage.path, is_on_nodes=storage.kind == "local-path"):
        at.into("path").problem(node, fault)
        return None
    return storage


def _pairs(values: dict[str, Any], _node: YamlNode, _at: FieldPath) -> tuple[tuple[str, str], ...]:
    return tuple(values.items())


def _text(expected: str, pattern: str | None = None, **more: Any) -> Text:
    return Text(expected=expected, pattern=pattern, **more)


CONNECTION = (
    Field(name="user", kind=_text(rules.USER_EXPECTED, rules.USER), doc="Who logs in.", default="as ssh has it"),
    Field(name="port", kind=WholeNumber(low=1, high=65535), doc="Port of sshd.", default="as ssh has it"),
    Field(name="key", kind=_text("a file"), doc="File with a private key.", default="the agent's, and ssh's own"),
    Field(
        name="bastion",
        kind=_text(rules.LOGIN_EXPECTED, check=rules.login_fault),
        doc="Host through which this one is reached: user@host:port.",
        default="as ssh has it",
    ),
)
NODE = (
    Field(name="gpu", kind=GpuPresence(), doc="Whether it has NVIDIA GPUs to set up; auto looks.", default="auto"),
    Field(name="labels", kind=LABELS, doc="Labels of its node.", default="{}"),
    Field(name="taints", kind=ListOf(item=taint_field(Taint), what="taints"), doc="Taints of its node.", default="[]"),
)

HOST = Shape(
    fields=(
        Field(
            name="address",
            kind=_text(rules.HOST_EXPECTED, check=rules.host_fault),
            doc="What ssh connects to: an address, a name, or a Host of ~/.ssh/config.",
            required=True,
        ),
        Field(
            name="name",
            kind=_text(rules.NODE_EXPECTED, rules.NODE, check=rules.node_fault),
            doc="Name of its node.",
            default="the first part of the address",
        ),
        Field(
            name="role",
            kind=ChoiceOf(options=get_args(Role)),
            doc="What it becomes.",
            default="worker; of the first host control-plane, if no host says so",
        ),
        Field(
            name="node_address",
            kind=_text("an IPv4 address", check=rules.node_address_fault),
            doc="Address that other nodes use.",
            default="the one it sends from",
        ),
        *CONNECTION,
        *NODE,
    ),
    short=HostText(),
)

_VERSION = _text("a version such as 1.36.4, in quotes if it has one dot", rules.VERSION)
_CIDR = _text("an IPv4 network such as 10.244.0.0/16", check=rules.network_fault)

REPOSITORY = Shape(
    fields=(
        Field(
            name="url",
            kind=_text(rules.URL_EXPECTED, check=rules.url_fault),
            doc="Its URL; {minor} stands for a version such as v1.36.",
            required=True,
        ),
        Field(
            name="key",
            kind=_text("a file here or an https URL", check=rules.key_fault),
            doc="Public key that signs it.",
            required=True,
        ),
        Field(
            name="suite",
            kind=_text("a suite and components such as stable main", rules.SUITE),
            doc="Of apt.",
            default="/",
        ),
    ),
    build=_repository,
)

SOURCE = Shape(
    fields=(
        Field(
            name="location",
            kind=_text("a URL, a folder or a bundle file", check=rules.location_fault),
            doc="Programs and images come from this URL, folder or bundle file.",
        ),
        Field(
            name="sha256",
            kind=_text("64 hexadecimal digits, as sha256sum prints them", "[0-9a-f]{64}"),
            doc="Checksum of the bundle's bundle.json; needed for a URL with http.",
        ),
        Field(
            name="repositories",
            kind=ListOf(item=REPOSITORY, what="repositories", single=False, most=20),
            doc="Repositories of packages instead of the projects' own.",
            default="[]",
        ),
        Field(
            name="images",
            kind=_text("a file here or a URL", check=rules.pinned_fault),
            doc="Archive of images that is imported instead of pulling them; #sha256=SUM after it takes no other.",
        ),
        Field(
            name="flanneld",
            kind=_text("a file here or an https URL", check=rules.pinned_fault),
            doc="Program flanneld, for the network flannel; #sha256=SUM after it takes no other.",
            default="the project's release",
        ),
    ),
    build=_source,
    short=SourceText(check=rules.location_fault),
)

VERSIONS = Shape(
    fields=(
        Field(name="kubernetes", kind=_VERSION, doc="Kubernetes; 1.36 means its tested patch.", default="1.36.4"),
        Field(name="containerd", kind=_VERSION, doc="containerd.", default="as tested with it"),
        Field(name="flannel", kind=_VERSION, doc="flannel.", default="as tested with it"),
    ),
    build=_versions,
    short=_VERSION,
    short_name="kubernetes",
)

NETWORK = Shape(
    fields=(
        Field(
            name="kind",
            kind=ChoiceOf(options=get_args(NetworkKind)),
            doc="How pods reach each other.",
            default="routes",
        ),
        Field(name="pods", kind=_CIDR, doc="Addresses of pods.", default="10.244.0.0/16"),
        Field(name="services", kind=_CIDR, doc="Addresses of services.", default="10.96.0.0/12"),
        Field(name="manifest", kind=_text("a file"), doc="File with the objects of a network of your own."),
    ),
    build=_network,
    short=NetworkText(),
)

STORAGE = Shape(
    fields=(
        Field(
            name="kind",
            kind=ChoiceOf(options=get_args(StorageKind)),
            doc="A folder of each node, or an export of an NFS server.",
            default="local-path",
        ),
        Field(
            name="path",
            kind=_text(rules.FOLDER_EXPECTED, check=rules.folder_fault),
            doc="A folder of the nodes, in which longboat-volumes is made; or what the server exports.",
            default="/var/lib/longboat-volumes",
        ),
        Field(name="server", kind=_text(rules.HOST_EXPECTED, check=rules.host_fault), doc="Of nfs: its address."),
    ),
    build=_storage,
    short=StorageText(),
)

FILE = Shape(
    fields=(
        Field(
            name="name",
            kind=_text(NAME_EXPECTED, NAME, suggest=functools.partial(suggest_name, fallback="lab")),
            doc="Name of the cluster, and of its context for --on.",
            required=True,
        ),
        Field(name="kind", kind=ChoiceOf(options=get_args(ClusterKind)), doc="What it is made of.", default="ssh"),
        Field(name="hosts", kind=ListOf(item=HOST, what="hosts", most=MAX_HOSTS), doc="The machines.", default="[]"),
        Field(name="defaults", kind=Shape(fields=(*CONNECTION, *NODE)), doc="For hosts that do not say otherwise."),
        Field(
            name="endpoint",
            kind=_text("an address before the control planes", check=rules.endpoint_fault),
            doc="Address (and port) before several control planes.",
            default="that of the only one",
        ),
        Field(
            name="vip",
            kind=_text("an IPv4 address that nobody has", check=rules.vip_fault),
            doc="Address that kube-vip moves between the control planes, in place of endpoint.",
        ),
        Field(
            name="context", kind=_text("a context", longest=253), doc="Of existing: its context.", default="the name"
        ),
        Field(name="versions", kind=VERSIONS, doc="Versions, a combination that is tested."),
        Field(name="source", kind=SOURCE, doc="Where programs and images come from.", default="packages"),
        Field(name="network", kind=NETWORK, doc="How pods reach each other.", default="routes"),
        Field(
            name="firewall",
            kind=ChoiceOf(options=get_args(FirewallChoice)),
            doc="Of the hosts: told what is closed, opened, or left alone.",
            default="check",
        ),
        Field(
            name="driver",
            kind=ChoiceOf(options=get_args(DriverChoice)),
            doc="NVIDIA's driver for GPU hosts without one: from NVIDIA, from the distribution, or left to you.",
            default="nvidia",
        ),
        Field(
            name="addons",
            kind=ListOf(item=ChoiceOf(options=get_args(Addon)), what="add-ons"),
            doc="What is installed into the cluster.",
            default="[controller]",
        ),
        Field(
            name="image",
            kind=_text(IMAGE_EXPECTED, IMAGE),
            doc="Image that has Longboat, for the controller, the autoscaler and storage.",
        ),
        Field(name="storage", kind=STORAGE, doc="Where the add-on storage keeps volumes.", default="local-path"),
        Field(name="pools", kind=_text("a file"), doc="Pools file of the add-on autoscaler."),
        Field(
            name="manifests",
            kind=MapOf(
                item=_text("a file here or an https URL", check=rules.manifest_fault),
                what="add-ons and their manifests",
                key="jobset|kueue",
                key_expected="jobset or kueue",
                build=_pairs,
            ),
            doc="Manifests of add-ons instead of those that their projects publish.",
            default="{}",
        ),
        Field(
            name="kubelet",
            kind=MapOf(
                item=JsonText(),
                what="fields of KubeletConfiguration",
                key=r"(?!apiVersion$|kind$)[a-z][A-Za-z0-9]{0,62}",
                key_expected="a field of KubeletConfiguration such as maxPods",
                build=_pairs,
            ),
            doc="Fields of KubeletConfiguration, for all hosts.",
            default="{}",
        ),
    ),
)


def cluster_schema() -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "title": "Longboat cluster",
        "description": "Machines that become a Kubernetes cluster: hosts, roles, versions, network, add-ons.",
        "allOf": [{"if": _is_kind(kind), "then": shape.schema()} for kind, (shape, _) in CLOUDS.items()],
        "if": {"not": {"anyOf": [_is_kind(kind) for kind in CLOUDS]}},
        "then": FILE.schema(),
    }


def _is_kind(kind: str) -> dict[str, Any]:
    return {"properties": {"kind": {"const": kind}}, "required": ["kind"]}
