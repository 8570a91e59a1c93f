"""Fields that the cluster files of all clouds share. What only one cloud has is in its folder.

Which fields fit together is `consistency`'s.
"""

from __future__ import annotations

import functools
from typing import Any

from longboat.clusters.cloud import rules
from longboat.fitting.model.nodes import Taint
from longboat.specs.fields import composites
from longboat.specs.fields.composites import AsWritten, ListOf, MapOf, Shape
from longboat.specs.fields.labels import LABELS, taint_field
from longboat.specs.fields.rules import IMAGE, IMAGE_EXPECTED, NAME, NAME_EXPECTED, suggest_name
from longboat.specs.fields.scalars import ChoiceOf, Flag, Text, WholeNumber, size

ADDONS = ("gpu", "jobset", "kueue", "controller", "metrics", "autoscaler")
MAX_POOLS = 15
"""So many fit into a template; an EKS cluster has 30 node groups by default."""
SMALLEST_DISK = 20 << 30  # the image of the nodes has 20 GiB

Field = functools.partial(composites.Field, substituted=False)
"""Without `${VAR}`: a cluster file means the same in every shell."""


def text_field(expected: str, pattern: str | None = None, **more: Any) -> Text:
    return Text(expected=expected, pattern=pattern, **more)


NETWORKS = ListOf(item=text_field("an IPv4 network such as 192.0.2.0/24", check=rules.cidr_fault), what="networks")


def pool_fields(*, name: Text, type: Text, zones: ListOf, most: int) -> tuple[composites.Field, ...]:
    """Fields of a pool. `most`: machines that the cloud allows in one."""
    number = WholeNumber(low=0, high=most)
    taints = ListOf(item=taint_field(Taint), what="taints")
    return (
        Field(name="name", kind=name, doc="Name of the pool.", required=True),
        Field(name="type", kind=type, doc="Machine type, one of the table.", required=True),
        Field(name="count", kind=number, doc="Machines that it starts with.", default="min, or 1"),
        Field(name="min", kind=number, doc="Fewest machines.", default="count"),
        Field(name="max", kind=WholeNumber(low=1, high=most), doc="Most machines.", default="count"),
        Field(name="gpu", kind=Flag(), doc="Whether pods get its GPUs.", default="true if the type has some"),
        Field(name="spot", kind=Flag(), doc="Machines that the cloud may take back, for less.", default="false"),
        Field(name="zones", kind=zones, doc="Its zones.", default="all"),
        Field(name="disk", kind=size(SMALLEST_DISK), doc="Disk of each machine.", default="100Gi"),
        Field(name="labels", kind=LABELS, doc="Labels of its nodes.", default="{}"),
        Field(name="taints", kind=taints, doc="Taints of its nodes.", default="[]"),
    )


def common_fields(cloud: str, region: Text, pool: Shape) -> tuple[composites.Field, ...]:
    name = text_field(NAME_EXPECTED, NAME, suggest=functools.partial(suggest_name, fallback="lab"))
    version = text_field('a version such as "1.35", in quotes', rules.VERSION)
    pools = ListOf(item=pool, what="pools", single=False, least=1, most=MAX_POOLS)
    addons = ListOf(item=ChoiceOf(options=ADDONS), what="add-ons")
    return (
        Field(name="name", kind=name, doc="Name of the cluster and of its context for --on.", required=True),
        Field(name="kind", kind=ChoiceOf(options=(cloud,)), doc="The cloud.", required=True),
        Field(name="region", kind=region, doc="Where it is made.", required=True),
        Field(name="version", kind=version, doc="Version of Kubernetes.", default="1.35"),
        Field(name="pools", kind=pools, doc="Pools of machines.", required=True),
        Field(
            name="tags",
            kind=MapOf(
                item=AsWritten(expected="the value of a tag", check=rules.tag_fault),
                what="tags",
                key=rules.TAG_KEY,
                key_expected="a tag's name: letters, digits, blanks and _.:/=+@-, not beginning with aws:",
            ),
            doc="Tags of everything that is made.",
            default="{}",
        ),
        Field(
            name="addons",
            kind=addons,
            doc="What is installed into the cluster.",
            default="[controller], and gpu where a pool has GPUs",
        ),
        Field(name="image", kind=text_field(IMAGE_EXPECTED, IMAGE), doc="Image that has Longboat, for the controller."),
        Field(name="machines", kind=text_field("a file"), doc="CSV file with further machine types and prices."),
    )
