"""Kinds of values that only a cluster file has: short texts of hosts, sources and networks; GPUs; any JSON."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from longboat.clusters.fields import rules
from longboat.clusters.spec import Network, SoftwareSource, VolumeStorage
from longboat.core.jobs import Value
from longboat.specs.fields.scalars import ChoiceOf, FieldPath, Text
from longboat.specs.yaml.yaml_tree import YamlNode, plain


class HostText(Text, frozen=True):
    """`user@host:port`, read as the fields of a host."""

    expected: str = rules.LOGIN_EXPECTED

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        text = super().read(node, at)
        if text is None:
            return None
        try:
            login = rules.parse_login(text)
        except ValueError as error:
            at.wrong(node, f"{self.expected}: {error}")
            return None
        given = {"address": login.host, "user": login.user, "port": login.port}
        return {name: value for name, value in given.items() if value is not None}


class GpuPresence(ChoiceOf, frozen=True):
    """auto, yes or no; also `true` and `false`, since YAML readers differ on which words are booleans."""

    options: tuple[str, ...] = ("auto", "yes", "no")

    def read(self, node: YamlNode, at: FieldPath) -> str | None:
        if isinstance(node.value, bool):
            return "yes" if node.value else "no"
        return super().read(node, at)

    def schema(self) -> dict[str, Any]:
        return {"enum": [*self.options, True, False]}


class SourceText(Text, frozen=True):
    """`packages`, or the location of files."""

    expected: str = "packages, a URL, a folder or a bundle file"

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        text = super().read(node, at)
        if text is None or text == "packages":
            return text and SoftwareSource()
        if text.startswith("http://"):
            at.problem(node, rules.INSECURE_BUNDLE, hint=rules.INSECURE_HINT)
            return None
        return SoftwareSource(kind="files", location=text)


class NetworkText(ChoiceOf, frozen=True):
    options: tuple[str, ...] = ("routes", "flannel")

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        kind = super().read(node, at)
        return kind and Network(kind=kind)  # type: ignore[arg-type]  # one of the options


class StorageText(ChoiceOf, frozen=True):
    """Nfs needs more than its name."""

    options: tuple[str, ...] = ("local-path",)

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        kind = super().read(node, at)
        return kind and VolumeStorage()


class JsonText(Value, frozen=True):
    """Any value, kept as JSON."""

    expected: str = "a value of KubeletConfiguration"

    def read(self, node: YamlNode, at: FieldPath) -> str | None:
        if node.value is None or _has_no_json(plain(node)):
            at.wrong(node, self.expected)
            return None
        return msgspec.json.encode(plain(node)).decode()

    def schema(self) -> dict[str, Any]:
        return {}


def _has_no_json(value: Any) -> bool:
    if isinstance(value, (dict, list)):
        return any(map(_has_no_json, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and not math.isfinite(value)
