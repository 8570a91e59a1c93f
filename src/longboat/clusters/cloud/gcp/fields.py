"""The table of all fields of a cluster file of Google Cloud. Validation, the JSON schema and its page read it."""

from __future__ import annotations

from typing import Any

from longboat.clusters.cloud.fields import NETWORKS, Field, common_fields, pool_fields, text_field
from longboat.clusters.cloud.spec import CloudNetwork
from longboat.specs.fields.composites import ListOf, Shape
from longboat.specs.fields.rules import NAME, NAME_EXPECTED
from longboat.specs.fields.scalars import FieldPath, Flag
from longboat.specs.yaml.yaml_tree import YamlNode

REGION = r"[a-z]{2,12}-[a-z]{3,12}[0-9]{1,2}"
ZONE = REGION + r"-[a-f]"
MACHINE = r"[a-z][a-z0-9]{1,5}-[a-z0-9-]{2,30}"
MAX_MACHINES = 1000
"""As many nodes as a pool of GKE has in a zone."""


def _network(values: dict[str, Any], _node: YamlNode, _at: FieldPath) -> CloudNetwork:
    return CloudNetwork(**values)


_ACCESS = Field(
    name="access", kind=NETWORKS, doc="Networks from which the API server is reached.", default="[0.0.0.0/0]"
)

_PLACES = (
    Field(name="name", kind=text_field("the name of a network", NAME), doc="A network that exists.", default="default"),
    Field(name="subnet", kind=text_field("the name of a subnetwork", NAME), doc="A subnetwork of it, in the region."),
)

POOL = Shape(
    fields=(
        *pool_fields(
            name=text_field(NAME_EXPECTED, NAME),
            type=text_field("a machine type such as a2-highgpu-8g", MACHINE),
            zones=ListOf(item=text_field("a zone such as us-central1-b", ZONE), what="zones", most=1),
            most=MAX_MACHINES,
        ),
        Field(
            name="placement_group",
            kind=text_field("new: machines close together", "new"),
            doc="new: a compact placement, machines close together.",
        ),
        Field(
            name="reservation",
            kind=text_field("the name of a reservation", NAME),
            doc="Reservation that its machines are taken from.",
        ),
        Field(
            name="flex_start",
            kind=Flag(),
            doc="All machines of an order at once, when there is room; each for a week at most.",
            default="false",
        ),
    ),
)

GCP_FILE = Shape(
    fields=(
        *common_fields("gcp", text_field("a region such as us-central1", REGION), POOL),
        Field(
            name="network",
            kind=Shape(fields=(_ACCESS, *_PLACES), build=_network),
            doc="Who reaches the API server, and where its machines are.",
            default="the project's own",
        ),
    ),
)
