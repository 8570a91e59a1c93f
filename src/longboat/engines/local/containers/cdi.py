"""GPUs in containers by CDI: the devices that the specifications of this machine name. It only reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where podman and docker look, too."""


def device_names(folders: Iterable[Path] = FOLDERS) -> frozenset[str]:
    """KIND=NAME of every device that any specification describes; a damaged file describes none."""
    names: set[str] = set()
    for folder in folders:
        for path in sorted(folder.glob("*.*")) if folder.is_dir() else ():
            names |= _names_in(path)
    return frozenset(names)


def _names_in(path: Path) -> set[str]:
    try:
        data = path.read_bytes()
        raw = json.loads(data) if path.suffix == ".json" else _yaml(data) if path.suffix in (".yaml", ".yml") else {}
        return {f"{raw['kind']}={device['name']}" for device in raw.get("devices") or ()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def _yaml(data: bytes) -> Any:
    from longboat.specs.yaml.yaml12 import parse_bytes
    from longboat.specs.yaml.yaml_tree import Mistakes, plain

    node = parse_bytes(data, file="", mistakes=Mistakes())
    return plain(node) if node is not None else {}
