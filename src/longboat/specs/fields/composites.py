"""Kinds of field values that hold others: lists, maps with free keys, shapes with known fields. The field table is made
of these."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from longboat.core.jobs import Value
from longboat.core.words import counted
from longboat.specs.fields.other_names import is_named, our_name
from longboat.specs.fields.scalars import FieldPath, FieldType, is_encodable, nearest, quote, text_fault
from longboat.specs.yaml.yaml_tree import YamlNode

MOST_CHARACTERS = 100_000  # of a value: Linux takes 128 KiB in one variable
Build = Callable[[dict[str, Any], YamlNode, FieldPath], Any]


class Field(Value, frozen=True):
    """One field of the job file: the single source of its name, kind and documentation."""

    name: str
    kind: Any  # a Kind
    doc: str
    default: str = "none"  # as the documentation shows it
    example: str = ""  # the value as written in YAML
    required: bool = False
    null: bool = False  # null means something other than "not given"
    substituted: bool = True  # `${VAR}` is replaced inside


class Shape(Value, frozen=True):
    """A mapping with known fields, or a short form that stands for one of them."""

    fields: tuple[Field, ...]
    build: Build | None = None
    short: Any = None  # a Kind
    short_name: str = ""  # the field the short form is; empty: the short kind reads the whole value
    unknown_hint: Any = None  # of a key that is no field, and its value: what was meant, or None

    @property
    def expected(self) -> str:
        names = "a mapping with " + ", ".join(field.name for field in self.fields)
        return f"{self.short.expected}, or {names}" if self.short else names

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        if not isinstance(node.value, dict):
            return self._read_short(node, at)
        before = at.mistakes.count
        values: dict[str, Any] = {}
        for key, item in node.value.items():
            field = self.field(key)
            if field is None:
                self._unknown(key, node, at)
            elif item.value is not None or field.null:
                value = field.kind.read(item, at.into(key))
                if value is not None or field.null:
                    values[key] = value
        for field in self.fields:
            is_there = field.name in node.value and node.value[field.name].value is not None
            if field.required and not is_there and not is_named(field.name, node.value):
                at.problem(node, f'the field "{field.name}" is missing: {field.kind.expected}')
        if self.build is None:
            return values
        # What is wrong with a required field may have been told before: a variable that is not set.
        is_whole = all(field.name in values for field in self.fields if field.required)
        return self.build(values, node, at) if is_whole and at.mistakes.count == before else None

    def _read_short(self, node: YamlNode, at: FieldPath) -> Any:
        if self.short is None or not node.is_scalar:
            at.wrong(node, self.expected)
            return None
        value = self.short.read(node, at)
        if value is None or not self.short_name:
            return value
        values = {self.short_name: value}
        return self.build(values, node, at) if self.build else values

    def _unknown(self, key: str, node: YamlNode, at: FieldPath) -> None:
        if at.mistakes.is_full:
            at.problem(node, "unknown field")
            return
        shown = key if len(key) <= 60 else key[:57] + "..."
        names = [field.name for field in self.fields]
        ours = our_name(key, names)
        close = f'; did you mean "{ours}"?' if ours else nearest(key, names)
        allowed = "" if close else "; allowed: " + ", ".join(names)
        if any(problem.message.endswith(allowed) for problem in at.mistakes.problems):
            allowed = ""  # said once for all of them
        hint = self.unknown_hint(shown, node.value[key]) if self.unknown_hint and isinstance(node.value, dict) else None
        place = node.keys.get(key, node.place)
        at.mistakes.add(place, at.into(shown).path, f"unknown field{close or allowed}", hint=hint)

    def schema(self) -> dict[str, Any]:
        shape: dict[str, Any] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {field.name: field_schema(field) for field in self.fields},
        }
        if required := [field.name for field in self.fields if field.required]:
            shape["required"] = required
        return {"anyOf": [self.short.schema(), shape]} if self.short else shape


def field_schema(field: Field) -> dict[str, Any]:
    schema: dict[str, Any] = field.kind.schema()
    text_only = set(schema) == {"type", "minLength"} and schema["type"] == "string"
    if field.substituted and not text_only and schema.get("type") not in ("object", "array"):
        schema = {"anyOf": [schema, {"$ref": "#/$defs/substitution"}]}
    if field.null:
        schema = {"anyOf": [schema, {"type": "null"}]}
    default = "" if field.default == "none" else f" Default: {field.default}."
    return {"description": f"{field.doc}{default}", **schema}


class ListOf(Value, frozen=True):
    item: Any  # a Kind
    what: str = "items"
    single: bool = True  # one scalar stands for a list of one
    least: int = 0
    most: int = 1000  # people write less by hand, and every item is checked and shown

    @property
    def expected(self) -> str:
        return f"a list of {self.what}"

    def read(self, node: YamlNode, at: FieldPath) -> tuple[Any, ...] | None:
        nodes = node.value if isinstance(node.value, list) else [node]
        if not isinstance(node.value, list) and (not self.single or isinstance(node.value, dict)):
            at.wrong(node, self.expected)
            return None
        if not self.least <= len(nodes) <= self.most:
            at.problem(
                node,
                f"found {counted(len(nodes), 'item')}, expected {self.expected}, {self.least} to {self.most} of them",
            )
            return None
        indexed = isinstance(node.value, list)
        return tuple(self.item.read(each, at.into(index) if indexed else at) for index, each in enumerate(nodes))

    def schema(self) -> dict[str, Any]:
        listed = {"type": "array", "items": self.item.schema(), "minItems": self.least, "maxItems": self.most}
        return {"anyOf": [self.item.schema(), listed]} if self.single else listed


class MapOf(Value, frozen=True):
    """A mapping with the user's own keys."""

    item: Any  # a Kind
    what: str
    key: str  # pattern of the keys
    key_expected: str
    build: Build | None = None
    null: bool = False  # a null item means an empty one
    check_key: Callable[[str], str | None] | None = None

    @property
    def expected(self) -> str:
        return f"a mapping of {self.what}"

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        if not isinstance(node.value, dict):
            at.wrong(node, self.expected)
            return None
        values: dict[str, Any] = {}
        for key, item in node.value.items():
            fault = self._key_fault(key)
            if fault:
                at.mistakes.add(node.keys.get(key, node.place), at.path, fault)
                continue
            if item.value is None and self.null:
                item = item._replace(value={})
            values[key] = self.item.read(item, at.into(key))
        return self.build(values, node, at) if self.build else values

    def _key_fault(self, key: str) -> str | None:
        if not re.fullmatch(self.key, key) or not is_encodable(key):
            return f"found the key {quote(key[:60])}, expected {self.key_expected}"
        return self.check_key(key) if self.check_key else None

    def schema(self) -> dict[str, Any]:
        item = self.item.schema()
        item = {"anyOf": [item, {"type": "null"}]} if self.null else item
        return {"type": "object", "patternProperties": {f"^({self.key})$": item}, "additionalProperties": False}


class AsWritten(Value, frozen=True):
    """Text kept exactly as written, numbers and booleans too: `1e-3` stays "1e-3"."""

    expected: str = "text or a number, kept as written"
    check: Callable[[str], str | None] | None = None

    def read(self, node: YamlNode, at: FieldPath) -> str | None:
        if node.value is None or not node.is_scalar:
            hint = 'write "" for an empty value' if node.value is None else None
            at.wrong(node, self.expected, hint=hint)
            return None
        text = node.text
        if (unfit := text_fault(text, MOST_CHARACTERS)) is not None:
            at.problem(node, unfit[0], hint=unfit[1])
            return None
        if self.check and (fault := self.check(text)):
            at.problem(node, fault)
            return None
        return text

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"]}


class Either(Value, frozen=True):
    """A list where a list is written, else the other kind."""

    scalar: Any  # a Kind
    listed: Any  # a Kind

    @property
    def expected(self) -> str:
        return f"{self.scalar.expected}, or {self.listed.expected}"

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        if isinstance(node.value, dict) and not isinstance(self.scalar, MapOf):
            at.wrong(node, self.expected)
            return None
        chosen: FieldType = self.listed if isinstance(node.value, list) else self.scalar
        return chosen.read(node, at)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.scalar.schema(), self.listed.schema()]}


def kind_below(kind: Any, key: str) -> Any:
    """The kind of what is under `key`; None where there is nothing to know."""
    if isinstance(kind, Either):
        return kind_below(kind.listed if key.isdecimal() else kind.scalar, key)
    if isinstance(kind, Shape):
        field = kind.field(key)
        return field.kind if field else None
    return kind.item if isinstance(kind, (ListOf, MapOf)) else None


def all_fields(shape: Shape, path: str = "") -> Mapping[str, Field]:
    """Every field by its path, `roles.NAME.gpus.count`; what the documentation must mention."""
    fields: dict[str, Field] = {}
    for field in shape.fields:
        name = f"{path}{field.name}"
        fields[name] = field
        for inner, step in _inner(field.kind):
            fields.update(all_fields(inner, f"{name}{step}."))
    return fields


def _inner(kind: Any) -> list[tuple[Shape, str]]:
    if isinstance(kind, Shape):
        return [(kind, "")]
    if isinstance(kind, Either):
        return _inner(kind.scalar) + _inner(kind.listed)
    if isinstance(kind, (ListOf, MapOf)):
        return [(shape, ("[]" if isinstance(kind, ListOf) else ".NAME") + step) for shape, step in _inner(kind.item)]
    return []
