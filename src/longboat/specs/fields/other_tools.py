"""Recognizes a file of another tool, or of another command, that was given as a job file. Pure: no field is translated
here, and a file that may be a job file with mistakes is none of theirs.
"""

from __future__ import annotations

from typing import NamedTuple

from longboat.specs.fields.job_fields import JOB
from longboat.specs.yaml.yaml_tree import YamlNode

SKYPILOT_FIELDS = frozenset(
    "name workdir num_nodes resources envs secrets volumes file_mounts storage_mounts setup run service pool config "
    "event_callback inputs outputs file_mounts_mapping experimental".split()
)
_DSTACK = frozenset({"task", "service", "dev-environment", "fleet", "volume", "gateway"})
_SHARED_NAME = "resources"
"""Alone it is somebody's guess at a field of ours, and is told as that."""


class OtherFile(NamedTuple):
    message: str
    hint: str


def other_file(root: YamlNode | None, file: str) -> OtherFile | None:
    """What the file is, by its fields, and what to do with it. `root`: the mapping in it; None: it is a script."""
    if root is None:
        command = f"{'python' if file.endswith('.py') else 'sh'} {file}"
        return OtherFile("this is a script, not a job file", f"a job runs it: `run: {command}`")
    fields = root.value if isinstance(root.value, dict) else {}
    keys = set(fields)
    foreign = keys - {field.name for field in JOB.fields}
    if {"apiVersion", "kind"} <= keys:
        kind = _text(fields["kind"]) or "?"
        hint = "kubectl apply -f creates it; a job file of its command begins like this: `run: python train.py`"
        return OtherFile(f"this is an object of Kubernetes (kind: {kind[:40]}), not a job file", hint)
    if "type" in foreign and _text(fields["type"]) in _DSTACK:
        return _importable("dstack", file)
    if foreign - {_SHARED_NAME} and keys <= SKYPILOT_FIELDS:
        return _importable("SkyPilot", file)
    if "hosts" in foreign:
        return OtherFile("this is a cluster file, not a job file", f"longboat cluster check {file}")
    if "pools" in foreign:
        return OtherFile("this is a pools file, not a job file", f"longboat autoscaler plan --pools {file}")
    return None


def _importable(tool: str, file: str) -> OtherFile:
    return OtherFile(f"this is a file of {tool}, not a job file", f"longboat import {file} -o job.yaml translates it")


def _text(node: YamlNode) -> str:
    return node.value if isinstance(node.value, str) else ""
