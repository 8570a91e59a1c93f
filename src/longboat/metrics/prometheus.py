"""Prometheus' text format. Pure."""

from __future__ import annotations

from collections.abc import Iterable

TEXT = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of the format."""
Labels = tuple[tuple[str, str], ...]
LabelledValue = tuple[Labels, float]
Family = tuple[str, str, str, list[LabelledValue]]
"""Name without its prefix, type, help, values."""


def families(prefix: str, given: Iterable[Family]) -> str:
    return "".join(_family(prefix, *each) for each in given)


def _family(prefix: str, name: str, kind: str, help_text: str, values: list[LabelledValue]) -> str:
    head = f"# HELP {prefix}{name} {help_text}\n# TYPE {prefix}{name} {kind}\n"
    body = ""
    for labels, value in values:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        body += f"{prefix}{name}{'{' + shown + '}' if shown else ''} {_number(value)}\n"
    return head + body


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
