"""The job file that an import writes: fields that are valid, and a list of what was lost. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from longboat.specs.dump import to_yaml
from longboat.specs.fields.composites import kind_below
from longboat.specs.fields.job_fields import JOB
from longboat.specs.fields.rules import clean_target, is_secret_name, looks_like_secret_value
from longboat.specs.fields.scalars import FieldPath
from longboat.specs.yaml.yaml_tree import Mistakes, SourcePosition, YamlNode, from_python

_BASH = re.compile(
    r"\[\[|\bsource\s|\bpipefail\b|<\(|>\(|&>|\$\{\w+(\[|//?|\^|,|:[0-9])|\bfunction\s|=\(|\bdeclare\s|<<<"
)
_NO_COMMAND = "echo 'write the command of this job into its job file' >&2; exit 1"


class ImportDraft:
    """Every field is checked as it is set, so that the written file loads."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.untranslated: list[str] = []

    def lost(self, field: str, why: str) -> None:
        self.untranslated.append(f"{field}: {why}")

    def set(self, name: str, value: Any, *, source: str) -> None:
        """Set a top-level field, or say why it cannot be."""
        if value is None:
            return
        fault = _fault(name, value, kind_below(JOB, name))
        if fault is None:
            self.fields[name] = value
        else:
            self.lost(source, fault)

    def put(self, name: str, key: str, value: Any, *, source: str) -> None:
        """Set one entry of a mapping such as env or volumes."""
        key = clean_target(key) if name == "volumes" and key.startswith("/") else key
        fault = _fault(name, {key: value}, kind_below(JOB, name))
        if fault is None:
            self.fields.setdefault(name, {})[key] = value
        else:
            self.lost(source, fault)

    def add(self, name: str, value: Any, *, source: str) -> None:
        """Append one item to a list such as data."""
        fault = _fault(name, [value], kind_below(JOB, name))
        if fault is None:
            self.fields.setdefault(name, []).append(value)
        else:
            self.lost(source, fault)

    def variable(self, name: str, value: str | None, *, source: str) -> None:
        """A variable of the environment; one without a value is the submitter's, one that is secret is only named."""
        if value is None or is_secret(name, value):
            self.put("secrets", name, {}, source=source)
            if value:
                self.lost(source, f"looks like a secret, its value was not copied; set {name} in your environment")
        else:
            self.put("env", name, value.replace("${", "$${"), source=source)

    def command(self, name: str, text: str, *, source: str) -> None:
        """A script that needs bash is handed to bash; Longboat's own shell is sh."""
        if not text.strip():
            return
        text = _readable(text)
        if name == "run" and _BASH.search(text):
            own_name = ["bash"] if '"$@"' in text else []  # else the first argument would be taken for $0
            self.set(name, ["bash", "-c", text, *own_name], source=source)
        elif _BASH.search(text):
            import shlex

            self.set(name, f"bash -c {shlex.quote(text)}", source=source)
        else:
            self.set(name, text, source=source)

    def text(self, heading: str) -> str:
        """The job file, every field under its documentation; what was lost stands at the top as comments."""
        if "run" not in self.fields:
            self.fields["run"] = _NO_COMMAND
            self.lost("run", "the file has no command; write one")
        lines = [_comment(heading)]
        if self.untranslated:
            lines.append("#\n# Not translated:\n")
            lines += [_comment(f"- {each}") for each in self.untranslated]
        for field in JOB.fields:
            if field.name in self.fields:
                lines.append(f"\n{_comment(field.doc)}{to_yaml({field.name: _tidy(self.fields[field.name])})}")
        return "".join(lines)


def _tidy(value: Any) -> Any:
    """`secrets: {A: {}}` reads better as a list of names."""
    if isinstance(value, dict) and value and all(item == {} for item in value.values()):
        return list(value)
    return value


def _readable(text: str) -> str:
    """A script that YAML can write as a block: no blanks at the ends of lines, and blanks for tabs before them."""
    lines = [line.rstrip() for line in text.strip("\n").split("\n")]
    if "<<-" not in text:  # a here-document that takes leading tabs away, and nothing else
        lines = [re.sub(r"^[ \t]+", lambda blank: blank[0].expandtabs(4), line) for line in lines]
    return "\n".join(lines)


def _comment(text: str) -> str:
    return "# " + " ".join("".join(c if c.isprintable() else " " for c in text).split()) + "\n"


def _fault(name: str, value: Any, kind: Any) -> str | None:
    mistakes = Mistakes()
    node = from_python(value, place=SourcePosition(), path=name, mistakes=mistakes)
    kind.read(node, FieldPath(name, mistakes))
    return mistakes.problems[0].message if mistakes.problems else None


def is_secret(name: str, value: str) -> bool:
    return is_secret_name(name) or looks_like_secret_value(value)


def entries(node: YamlNode | None) -> Mapping[str, YamlNode]:
    """The entries of a mapping; nothing for anything else."""
    return node.value if node is not None and isinstance(node.value, dict) else {}


def text_of(node: YamlNode | None) -> str | None:
    """A scalar as written; None for null, lists and mappings."""
    if node is None or node.value is None or not node.is_scalar:
        return None
    return node.text


def whole_of(node: YamlNode | None) -> Any:
    """A whole number, or the text as it is for the check to complain about."""
    text = text_of(node)
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else text


def at_least(text: str | None) -> str | None:
    """The lower end of `4`, `4+`, `4..8`, `4..`."""
    if text is None:
        return None
    return text.replace(" ", "").split("..")[0].rstrip("+") or None


def number_at_least(text: str | None) -> Any:
    """The lower end as a number, or as it is for the check to complain about."""
    low = at_least(text)
    if low is None or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", low):
        return low
    return float(low) if "." in low else int(low)


def gibibytes(text: str | None) -> str | None:
    """`32`, `32+`, `32GB`, `0.5TB`: these tools count by 1024."""
    low = at_least(text)
    if low is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(?:([MGT])i?B?)?", low, re.IGNORECASE)
    return f"{match.group(1)}{(match.group(2) or 'G').upper()}i" if match else text
