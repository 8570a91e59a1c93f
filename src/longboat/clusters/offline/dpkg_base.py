"""Packages that every Debian or Ubuntu host has, out of this machine's own list. Pure.

A bundle need not bring them: those of the priority `required`, and what they depend on, as far as it is installed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

Fields = Mapping[str, str]


def base_status(status: str) -> str:
    """The entries of the base system in dpkg's status file, for a private apt."""
    entries = {fields["Package"]: (fields, text) for fields, text in _entries(status)}
    providers: dict[str, str] = {}
    for name, (fields, _) in entries.items():
        for provided in _names(fields.get("Provides", "")):
            providers.setdefault(provided, name)
    waiting = [name for name, (fields, _) in entries.items() if _is_base(fields)]
    kept: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        if name in kept:
            continue
        fields, kept[name] = entries[name]
        for needed in _names(f"{fields.get('Pre-Depends', '')}, {fields.get('Depends', '')}"):
            real = needed if needed in entries else providers.get(needed, "")
            if real:
                waiting.append(real)
    return "\n\n".join(kept[name] for name in sorted(kept)) + "\n"


def _is_base(fields: Fields) -> bool:
    return fields.get("Priority") == "required" or fields.get("Essential") == "yes"


def _entries(status: str) -> Iterator[tuple[Fields, str]]:
    for text in re.split(r"\n{2,}", status.strip()):
        fields = dict(re.findall(r"^([A-Za-z-]+): *(.*)$", text, re.MULTILINE))
        if "Package" in fields and fields.get("Status", "").endswith(" installed"):
            yield fields, text


def _names(relations: str) -> list[str]:
    """Package names in a dependency field `a (>= 1) | b, c:any`, all alternatives."""
    return [match for part in re.split("[,|]", relations) for match in re.findall(r"^\s*([a-z0-9][a-z0-9+.-]*)", part)]
