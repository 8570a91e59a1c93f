"""What other tools call the fields of a job file: whoever writes such a name is told ours. Values only."""

from __future__ import annotations

from collections.abc import Container

OTHER_NAMES = {
    "run": ("command", "commands", "cmd", "script", "entrypoint", "args"),
    "image": ("image_id", "container", "docker"),
    "env": ("environment", "variables"),
    "nodes": ("num_nodes", "nnodes", "replicas", "workers"),
    "procs": ("nproc_per_node", "num_processes", "ntasks_per_node"),
    "gpus": ("accelerators", "num_gpus", "gpus_per_node", "resources"),
    "workdir": ("working_dir", "cwd"),
    "volumes": ("mounts", "file_mounts"),
    "url": ("from", "source", "src", "uri"),
}


def our_name(name: str, known: Container[str]) -> str | None:
    """The field among these that is called so elsewhere."""
    plain = name.lower().replace("-", "_")
    return next((ours for ours, others in OTHER_NAMES.items() if ours in known and plain in others), None)


def is_named(field: str, written: Container[str]) -> bool:
    """Whether a mapping has the field under another tool's name: that it is unknown is said already."""
    return any(other in written for other in OTHER_NAMES.get(field, ()))
