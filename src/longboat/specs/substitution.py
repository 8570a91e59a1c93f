"""Variable substitution: `${VAR}` in the scalars of a tree, replaced from the submitter's environment. Pure.

Commands are left alone (the shell that runs them expands them, at run time), and so are secrets. `${sweep.NAME}` is a
parameter of a run: it stays in `env`, where `specs.params` replaces it, and is a problem elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.specs.fields.composites import Shape, kind_below
from longboat.specs.fields.scalars import FieldPath
from longboat.specs.yaml.yaml_tree import YamlNode, resolve

_PATTERN = lazy_pattern(
    r"\$\$\{|\$\{(?P<param>sweep\.[^{}]*)\}|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}|\$\{"
)


def substitute(node: YamlNode, kind: object, at: FieldPath, environment: Mapping[str, str]) -> YamlNode:
    """The tree with every `${VAR}` replaced; an undefined one is a problem at its place."""
    if isinstance(node.value, dict):
        entries = {}
        for key, item in node.value.items():
            field = kind.field(key) if isinstance(kind, Shape) else None
            keep = field is not None and not field.substituted
            entries[key] = item if keep else substitute(item, kind_below(kind, key), at.into(key), environment)
        return node._replace(value=entries)
    if isinstance(node.value, list):
        items = [
            substitute(item, kind_below(kind, str(index)), at.into(index), environment)
            for index, item in enumerate(node.value)
        ]
        return node._replace(value=items)
    if isinstance(node.value, str) and "${" in node.value:
        return _scalar(node, at, environment)
    return node


def _scalar(node: YamlNode, at: FieldPath, environment: Mapping[str, str]) -> YamlNode:
    def replaced(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match.group() == "$${":
            return "${"
        if match["param"] is not None:
            if "env" not in at.path.split("."):
                at.problem(node, f"found {match.group()}, which may stand in run, setup and env only")
            return match.group()
        if name is None:
            hint = "write ${VAR} or ${VAR:-default}; $${ stands for ${ itself"
            at.problem(node, "found ${ without a variable's name and }", hint=hint)
            return ""
        if environment.get(name, "") or (name in environment and default is None):
            return environment[name]
        if default is None:
            hint = f"set {name}, or give a default: ${{{name}:-...}}"
            at.problem(node, f"the variable {name} is not set in your environment", hint=hint)
            return ""
        return default

    before = at.mistakes.count
    text = _PATTERN.sub(replaced, node.text)
    if at.mistakes.count > before:
        at.mistakes.settle(node.place, at.path)
    meant = resolve(text) if node.plain else text
    value = text if meant is None or isinstance(meant, str) else meant
    return node._replace(value=value, text=text, shown=node.text)
