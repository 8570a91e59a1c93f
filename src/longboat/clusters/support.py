"""What a cluster file may ask for and `up` does not make yet: refused before a host is touched, never passed over."""

from __future__ import annotations

from longboat.clusters.addons.catalog import MAKERS
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import Refused


def unsupported(spec: ClusterSpec) -> list[str]:
    """Fields and values that are not implemented yet, in the order of the file."""
    missing = [f"addons: {addon}" for addon in spec.addons if addon not in MAKERS]
    if spec.kind == "existing":
        return missing
    if spec.network.kind == "flannel":
        missing.append("network: flannel")
    return missing


def check_supported(spec: ClusterSpec) -> None:
    missing = unsupported(spec)
    if missing:
        raise Refused(
            f"up does not make this yet: {', '.join(missing)}",
            hint="network: {kind: manifest, manifest: FILE} takes any network; kubectl installs other add-ons after up",
        )
