"""The field `nodes`: a number, or the range of an elastic role."""

from __future__ import annotations

import re
from typing import Any

from longboat.core.jobs import Value
from longboat.specs.fields.composites import Field, Shape
from longboat.specs.fields.scalars import FieldPath, Text, WholeNumber
from longboat.specs.yaml.yaml_tree import YamlNode

MAX_NODES = 10_000  # twice what one Kubernetes cluster is made for
NODE_RANGE = r"([0-9]{1,5}) *- *([0-9]{1,5})"
_RANGE_OF_OTHERS = r"([0-9]{1,5}) *(?:\.\.|:) *([0-9]{1,5})"


class NodeRange(Value, frozen=True):
    """Nodes of an elastic role: any number from one to the other."""

    low: int
    high: int


class NodeCount(Text, frozen=True):
    """`4`, or `2-8`."""

    expected: str = f"a whole number from 1 to {MAX_NODES}, or a range of them such as 2-8"

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        if not isinstance(node.value, str):
            return WholeNumber(low=1, high=MAX_NODES).read(node, at)
        match = re.fullmatch(NODE_RANGE, node.value.strip())
        if match is not None:
            return _node_range(int(match[1]), int(match[2]), node, at)
        if re.fullmatch(r"[0-9]+", node.value.strip()):
            return WholeNumber(low=1, high=MAX_NODES).read(node, at)
        other = re.fullmatch(_RANGE_OF_OTHERS, node.value.strip())
        bounds = sorted((int(other[1]), int(other[2]))) if other is not None else []
        at.wrong(node, self.expected, hint=f"write {bounds[0]}-{bounds[1]}" if bounds else None)
        return None

    def schema(self) -> dict[str, Any]:
        count = {"type": "integer", "minimum": 1, "maximum": MAX_NODES}
        return {"anyOf": [count, {"type": "string", "pattern": f"^({NODE_RANGE})$"}]}


def _node_range(low: int, high: int, node: YamlNode, at: FieldPath) -> int | NodeRange | None:
    if not 1 <= low <= high <= MAX_NODES:
        at.problem(node, f"found {low} to {high} nodes, expected min <= max, both from 1 to {MAX_NODES}")
        return None
    return low if low == high else NodeRange(low=low, high=high)


def _nodes(values: dict[str, Any], node: YamlNode, at: FieldPath) -> int | NodeRange | None:
    return _node_range(values["min"], values["max"], node, at)


NODES = Shape(
    fields=(
        Field(
            name="min",
            kind=WholeNumber(low=1, high=MAX_NODES),
            doc="An elastic role starts as soon as so many fit.",
            example="2",
            required=True,
        ),
        Field(
            name="max",
            kind=WholeNumber(low=1, high=MAX_NODES),
            doc="An elastic role has at most so many.",
            example="8",
            required=True,
        ),
    ),
    build=_nodes,
    short=NodeCount(),
)
