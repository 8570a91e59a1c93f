"""Labels and taints of nodes, as fields of a file. Which type a taint becomes is the caller's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from longboat.specs.fields import rules
from longboat.specs.fields.composites import AsWritten, Field, MapOf, Shape
from longboat.specs.fields.scalars import ChoiceOf, FieldPath, Text
from longboat.specs.yaml.yaml_tree import YamlNode

EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


def label_fault(text: str) -> str | None:
    if rules.label_value_fault(text) is None:
        return None
    return f'found the text "{text[:80]}", expected a label\'s value: letters, digits, "-", "_" and ".", 63 at most'


LABEL = AsWritten(expected="a label's value", check=label_fault)
"""`true` and `1` are texts here, as nodes hold them."""

LABELS = MapOf(item=LABEL, what="labels", key=rules.LABEL_KEY, key_expected=rules.LABEL_KEY_EXPECTED)
KEY = Text(expected="a key such as nvidia.com/gpu", pattern=rules.LABEL_KEY)

_TAINT = rf"(?P<key>{rules.LABEL_KEY})(=(?P<value>[-_.A-Za-z0-9]*))?:(?P<effect>{'|'.join(EFFECTS)})"


class TaintText(Text, frozen=True):
    """`KEY:EFFECT` or `KEY=VALUE:EFFECT`, as kubectl takes it."""

    expected: str = "a taint such as nvidia.com/gpu=present:NoSchedule"
    make: Callable[..., Any] = dict

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        parts = re.fullmatch(_TAINT, node.value) if isinstance(node.value, str) else None
        if parts is None:
            at.wrong(node, self.expected)
            return None
        if fault := label_fault(parts["value"] or ""):
            at.problem(node, fault)
            return None
        return self.make(key=parts["key"], effect=parts["effect"], value=parts["value"] or "")

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f":({'|'.join(EFFECTS)})$"}


def taint_field(make: Callable[..., Any]) -> Shape:
    """A taint as a mapping or a short text; `make` gets key, effect and value by name."""

    def build(values: dict[str, Any], _node: YamlNode, _at: FieldPath) -> Any:
        return make(**{"value": "", **values})

    return Shape(
        fields=(
            Field(name="key", kind=KEY, doc="Key.", required=True, substituted=False),
            Field(name="effect", kind=ChoiceOf(options=EFFECTS), doc="Effect.", required=True, substituted=False),
            Field(name="value", kind=LABEL, doc="Value.", substituted=False),
        ),
        build=build,
        short=TaintText(make=make),
    )
