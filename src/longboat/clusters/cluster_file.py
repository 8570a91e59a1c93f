"""The cluster file: cluster.yaml to a ClusterSpec, every mistake with its line. Flags go the same way.

What may be written is in `fields`; what is done with it in `plan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from longboat.clouds.machine_types import MachineTable
from longboat.clusters.cloud.consistency import make_pool
from longboat.clusters.cloud.kinds import CLOUDS
from longboat.clusters.cloud.spec import CloudSpec
from longboat.clusters.fields import rules
from longboat.clusters.fields.cluster_fields import FILE
from longboat.clusters.fields.consistency import FileCheck, resolved
from longboat.clusters.spec import ClusterSpec, HostSpec, SoftwareSource
from longboat.specs.fields.scalars import FieldPath
from longboat.specs.yaml.mapping_file import FileHints, read_mapping
from longboat.specs.yaml.yaml_tree import Mistakes, SourcePosition, YamlNode, from_python

DEFAULT_FILE = "cluster.yaml"
_BEGINS = "it begins like this: `name: lab` and `hosts: [user@gpu-1, user@gpu-2]`"
_MISSING = "longboat cluster init writes one; --hosts a,b,c and --local do without"


def read_cluster(path: str | Path) -> ClusterSpec:
    """Read a cluster file. Raises JobError with all mistakes, or NotFound."""
    mistakes = Mistakes()
    root = read_mapping(
        Path(path), mistakes, FileHints(_BEGINS, missing=_MISSING, folder=f"name the {DEFAULT_FILE} in it")
    )
    mistakes.raise_if_any()
    assert root is not None
    return _cluster(root, Path(path).absolute().parent, mistakes)


def cluster_of_hosts(hosts: Sequence[str], *, name: str) -> ClusterSpec:
    """A cluster without a file from `user@host:port` texts; the first is the control plane."""
    return _from_fields({"name": name, "hosts": list(hosts)}, "--hosts")


def local_cluster(*, name: str) -> ClusterSpec:
    """This machine as a cluster of one node."""
    return _from_fields({"name": name, "kind": "local"}, "--local")


def bundle_source(location: str) -> SoftwareSource:
    """What `source: LOCATION` of a file would be; paths start from the present folder."""
    spec = _from_fields({"name": "x", "kind": "local", "source": location}, "--from")
    return spec.source


def _from_fields(fields: Mapping[str, Any], flag: str) -> ClusterSpec:
    mistakes = Mistakes()
    root = from_python(fields, place=SourcePosition(flag), path="", mistakes=mistakes)
    return _cluster(root, Path.cwd(), mistakes)


def _cluster(root: YamlNode, folder: Path, mistakes: Mistakes) -> ClusterSpec:
    kind = root.value.get("kind") if isinstance(root.value, dict) else None
    if kind is not None and kind.value in CLOUDS:
        return _cloud_cluster(str(kind.value), root, folder, mistakes)
    values = FILE.read(root, FieldPath("", mistakes)) or {}
    FileCheck(values, root, mistakes).check(folder)
    mistakes.raise_if_any()
    return _assemble(values, folder)


def _cloud_cluster(kind: str, root: YamlNode, folder: Path, mistakes: Mistakes) -> ClusterSpec:
    shape, check = CLOUDS[kind]
    values = shape.read(root, FieldPath("", mistakes)) or {}
    table = check(values, root, mistakes).check(folder)
    mistakes.raise_if_any()
    return _assemble_cloud(values, table, folder)


def _assemble_cloud(values: dict[str, Any], table: MachineTable, folder: Path) -> ClusterSpec:
    pools = tuple(make_pool(pool, table) for pool in values["pools"])
    if "machines" in values:
        values["machines"] = resolved(values["machines"], folder)
    addons = values.get("addons", ("gpu", "controller") if any(pool.gpus for pool in pools) else ("controller",))
    cloud = CloudSpec(
        region=values["region"],
        pools=pools,
        tags=tuple(values.get("tags", {}).items()),
        autoscaler="autoscaler" in addons,
        **{key: values[key] for key in ("version", "network", "storage", "machines") if key in values},
    )
    return ClusterSpec(
        name=values["name"], kind=values["kind"], addons=addons, image=values.get("image"), cloud=cloud,
    )  # fmt: skip


def _assemble(values: dict[str, Any], folder: Path) -> ClusterSpec:
    name, kind = values["name"], values.get("kind", "ssh")
    network, source = values.get("network"), values.get("source")
    if network is not None and network.manifest:
        values["network"] = msgspec.structs.replace(network, manifest=resolved(network.manifest, folder))
    if source is not None:
        values["source"] = _resolved_source(source, folder)
    if "pools" in values:
        values["pools"] = resolved(values["pools"], folder)
    if "manifests" in values:
        values["manifests"] = tuple((addon, resolved(text, folder)) for addon, text in values["manifests"])
    hosts, defaults = values.pop("hosts", ()), values.pop("defaults", {})
    if kind == "existing":
        values.setdefault("context", name)
    if kind == "local":
        hosts = [{"name": name, "address": "", "role": "control-plane"}]
    return ClusterSpec(hosts=_hosts(hosts, defaults, folder) if hosts else (), **values)


def _resolved_source(source: SoftwareSource, folder: Path) -> SoftwareSource:
    return msgspec.structs.replace(
        source,
        location=source.location and resolved(source.location, folder),
        images=source.images and resolved(source.images, folder),
        flanneld=source.flanneld and resolved(source.flanneld, folder),
        repositories=tuple(
            msgspec.structs.replace(each, key=resolved(each.key, folder)) for each in source.repositories
        ),
    )


def _hosts(hosts: Sequence[dict[str, Any]], defaults: dict[str, Any], folder: Path) -> tuple[HostSpec, ...]:
    if not any(host.get("role") == "control-plane" for host in hosts):
        next(host for host in hosts if "role" not in host)["role"] = "control-plane"
    made = []
    for host in hosts:
        fields = {**defaults, **host}
        fields.setdefault("name", rules.node_name_of(host["address"]))
        fields["labels"] = tuple({**defaults.get("labels", {}), **host.get("labels", {})}.items())
        if "key" in fields:
            fields["key"] = resolved(fields["key"], folder)
        made.append(HostSpec(**fields))
    return tuple(made)


def with_version(text: str, version: str) -> str | None:
    """The text of a cluster file with another Kubernetes version, otherwise unchanged, comments included. None: it must
    be edited by hand.
    """
    import yaml

    root = yaml.compose(text, yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    versions = _child(root, "versions")
    if versions is None:
        return f"{text.rstrip()}\nversions: {version}\n"
    node = _child(versions, "kubernetes") if isinstance(versions, yaml.MappingNode) else versions
    if isinstance(node, yaml.ScalarNode) and node.start_mark.index < node.end_mark.index:
        return f"{text[: node.start_mark.index]}{version}{text[node.end_mark.index :]}"
    if node is not None or not versions.value:
        return None
    first = versions.value[0][0].start_mark
    joint = ", " if versions.flow_style else "\n" + " " * first.column
    return f"{text[: first.index]}kubernetes: {version}{joint}{text[first.index :]}"


def _child(mapping: Any, key: str) -> Any:
    return next((value for name, value in mapping.value if name.value == key), None)
