"""The table of all fields of a cluster file of AWS. Validation, the JSON schema and the check of its page read it.

Which fields fit together is `consistency`'s.
"""

from __future__ import annotations

from typing import Any

from longboat.clusters.cloud import rules
from longboat.clusters.cloud.fields import NETWORKS, Field, common_fields, pool_fields
from longboat.clusters.cloud.fields import text_field as _text
from longboat.clusters.cloud.spec import CloudNetwork, CloudStorage
from longboat.specs.fields.composites import ListOf, MapOf, Shape
from longboat.specs.fields.rules import NAME, NAME_EXPECTED
from longboat.specs.fields.scalars import ChoiceOf, FieldPath
from longboat.specs.yaml.yaml_tree import YamlNode

MAX_MACHINES = 450
"""As many nodes as an EKS node group has by default."""


def _network(values: dict[str, Any], node: YamlNode, at: FieldPath) -> CloudNetwork | None:
    if "vpc" in values or "subnets" in values:
        extra = sorted({"cidr", "nodes", "zones"} & set(values))
        if extra:
            at.problem(node, f"{extra[0]} is of a new network, and vpc of one that exists")
            return None
        if not {"vpc", "subnets"} <= set(values):
            at.problem(
                node, "vpc and subnets belong together", hint="{vpc: vpc-..., subnets: {us-east-1a: subnet-...}}"
            )
            return None
    return CloudNetwork(**{**values, "subnets": tuple(values.get("subnets", {}).items())})


def _storage(values: dict[str, Any], _node: YamlNode, _at: FieldPath) -> CloudStorage:
    return CloudStorage(**values)


class StorageName(ChoiceOf, frozen=True):
    """`efs`: a new file system."""

    options: tuple[str, ...] = ("efs",)

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        return super().read(node, at) and CloudStorage()


_ZONE = _text("a zone such as us-east-1a", rules.ZONE)

NETWORK = Shape(
    fields=(
        Field(
            name="cidr",
            kind=_text("an IPv4 network such as 10.0.0.0/16", check=rules.vpc_fault),
            doc="Addresses of a new network.",
            default="10.0.0.0/16",
        ),
        Field(
            name="nodes",
            kind=ChoiceOf(options=("private", "public")),
            doc="private: nodes reach the internet through a NAT gateway; public: they have addresses of their own.",
            default="private",
        ),
        Field(
            name="zones",
            kind=ListOf(item=_ZONE, what="zones", single=False, least=2, most=6),
            doc="Zones of a new network, two at least.",
            default="those that offer the machine types",
        ),
        Field(name="vpc", kind=_text("a VPC such as vpc-0a1b2c3d", rules.VPC), doc="A network that exists."),
        Field(
            name="subnets",
            kind=MapOf(
                item=_text("a subnet such as subnet-0a1b2c3d", rules.SUBNET),
                what="zones and their subnets",
                key=rules.ZONE,
                key_expected="a zone such as us-east-1a",
            ),
            doc="Subnets of a network that exists, by zone; two at least.",
        ),
        Field(
            name="access",
            kind=NETWORKS,
            doc="Networks from which the API server is reached.",
            default="[0.0.0.0/0]",
        ),
    ),
    build=_network,
)

POOL = Shape(
    fields=(
        *pool_fields(
            name=_text(NAME_EXPECTED, NAME),
            type=_text("a machine type such as g5.xlarge", rules.MACHINE),
            zones=ListOf(item=_ZONE, what="zones", most=6),
            most=MAX_MACHINES,
        ),
        Field(
            name="placement_group",
            kind=_text("new, or the name of a placement group", rules.GROUP),
            doc="Machines close together, in one zone: new, or a group that exists.",
        ),
        Field(
            name="reservation",
            kind=_text("a capacity reservation such as cr-0a1b2c3d", rules.RESERVATION),
            doc="Capacity reservation that its machines are taken from.",
        ),
    ),
)

STORAGE = Shape(
    fields=(
        Field(
            name="efs",
            kind=_text("new, or a file system such as fs-0a1b2c3d", rules.EFS),
            doc="A file system for all nodes: new, or one that exists.",
            default="new",
        ),
    ),
    build=_storage,
    short=StorageName(),
)

AWS_FILE = Shape(
    fields=(
        *common_fields("aws", _text("a region such as us-east-1", rules.REGION, check=rules.region_fault), POOL),
        Field(name="network", kind=NETWORK, doc="A new network, or one that exists.", default="a new one"),
        Field(name="storage", kind=STORAGE, doc="A file system that all nodes mount."),
    ),
)
