"""The table of all fields of a cluster file of Azure. Validation, the JSON schema and the check of its page read it."""

from __future__ import annotations

from typing import Any

from longboat.clusters.cloud.fields import NETWORKS, Field, common_fields, pool_fields, text_field
from longboat.clusters.cloud.spec import CloudNetwork
from longboat.specs.fields.composites import ListOf, Shape
from longboat.specs.fields.scalars import ChoiceOf, FieldPath
from longboat.specs.yaml.yaml_tree import YamlNode

LOCATION = r"[a-z][a-z0-9]{3,29}"
MACHINE = r"Standard_[A-Za-z0-9_]{2,60}"
_SCOPE = r"/subscriptions/[0-9A-Za-z-]{1,64}/resourceGroups/[-A-Za-z0-9_.()]{1,90}/providers/"
_NAME = r"[A-Za-z0-9][-A-Za-z0-9_.]{0,79}"
SUBNET = rf"{_SCOPE}Microsoft\.Network/virtualNetworks/{_NAME}/subnets/{_NAME}"
PLACEMENT_GROUP = rf"{_SCOPE}Microsoft\.Compute/proximityPlacementGroups/{_NAME}"
RESERVATION = rf"{_SCOPE}Microsoft\.Compute/capacityReservationGroups/{_NAME}"
POOL_NAME = r"[a-z][a-z0-9]{0,11}"
MAX_MACHINES = 1000
"""As many nodes as a pool of AKS has."""
ZONES = ("1", "2", "3")


def _network(values: dict[str, Any], _node: YamlNode, _at: FieldPath) -> CloudNetwork:
    return CloudNetwork(**values)


NETWORK = Shape(
    fields=(
        Field(
            name="access", kind=NETWORKS, doc="Networks from which the API server is reached.", default="[0.0.0.0/0]"
        ),
        Field(
            name="subnet",
            kind=text_field("the id of a subnet: /subscriptions/.../virtualNetworks/NAME/subnets/NAME", SUBNET),
            doc="Subnet of a network that exists; else AKS makes one.",
        ),
    ),
    build=_network,
)

POOL = Shape(
    fields=(
        *pool_fields(
            name=text_field("lower-case letters and digits, beginning with a letter, at most 12 characters", POOL_NAME),
            type=text_field("a machine type such as Standard_NC24ads_A100_v4", MACHINE),
            zones=ListOf(item=ChoiceOf(options=ZONES), what='zones, such as ["1", "2"]', most=3),
            most=MAX_MACHINES,
        ),
        Field(
            name="placement_group",
            kind=text_field("the id of a proximity placement group", PLACEMENT_GROUP),
            doc="Id of a proximity placement group: machines close together.",
        ),
        Field(
            name="reservation",
            kind=text_field("the id of a capacity reservation group", RESERVATION),
            doc="Id of a capacity reservation group that its machines are taken from.",
        ),
    ),
)

AZURE_FILE = Shape(
    fields=(
        *common_fields("azure", text_field("a region such as westeurope", LOCATION), POOL),
        Field(name="network", kind=NETWORK, doc="Who reaches the API server.", default="everybody"),
    ),
)
