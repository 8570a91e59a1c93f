"""Clusters that were made from this machine, by name: what `up` was asked for; `status` and `down` need no file.

Hints, not truth: what a cluster is like is read from its hosts.
"""

from __future__ import annotations

import re
from pathlib import Path

from longboat.clusters.spec import ClusterSpec
from longboat.engines.shared.files import disk, read_value, write_value
from longboat.engines.shared.home import Home
from longboat.specs.fields.rules import NAME


def save_spec(spec: ClusterSpec, home: Home) -> None:
    home.folder("clusters")
    write_value(file_of(spec.name, home), spec, is_durable=True)


def load_spec(name: str, home: Home) -> ClusterSpec | None:
    """The spec stored by the last `up`; None: no cluster of this name was made from here."""
    return read_value(file_of(name, home), ClusterSpec) if re.fullmatch(NAME, name) else None


def forget_spec(name: str, home: Home) -> None:
    with disk(f"forget the cluster {name}"):
        file_of(name, home).unlink(missing_ok=True)


def known_clusters(home: Home) -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in (home.root / "clusters").glob("*.json")))


def file_of(name: str, home: Home) -> Path:
    """Where the spec of this cluster is stored, if one is."""
    return home.root / "clusters" / f"{name}.json"
