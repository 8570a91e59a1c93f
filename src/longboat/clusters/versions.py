"""Tested combinations of versions: a cluster is made of one of these."""

from __future__ import annotations

from longboat.clusters.spec import Versions

TESTED = (
    Versions(kubernetes="1.36.4", containerd="2.4.2", flannel="0.28.0", pause="3.10.2"),
    Versions(kubernetes="1.35.8", containerd="2.4.2", flannel="0.28.0", pause="3.10.1"),
)
"""Newest first. The test cluster is built of these very releases."""


def combination(*, kubernetes: str = "", containerd: str = "", flannel: str = "") -> Versions | None:
    """The newest tested combination of these versions; `1.36` matches any patch release. None: there is none."""
    wanted = {"kubernetes": kubernetes, "containerd": containerd, "flannel": flannel}
    for tested in TESTED:
        if all(_is_version(getattr(tested, name), text) for name, text in wanted.items()):
            return tested
    return None


def _is_version(version: str, wanted: str) -> bool:
    return not wanted or version == wanted or version.startswith(f"{wanted}.")


def tested_lines() -> str:
    """All tested combinations as text, for hints."""
    return "; ".join(
        f"kubernetes {each.kubernetes}, containerd {each.containerd}, flannel {each.flannel}" for each in TESTED
    )
