"""The archive of `longboat doctor --bundle` for a bug report: findings and what they were found in, without secrets.

Two lines of defence: only fields that are named here are taken out of objects (no environment, no annotations, no
Secrets, no logs), and every text is searched for secrets that are known and for what looks like one.
"""

from __future__ import annotations

import io
import os
import platform
import re
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from longboat import __version__
from longboat.core.errors import EngineError
from longboat.core.jobs import Secret
from longboat.doctor.examine import ClusterTarget, Diagnosis
from longboat.doctor.facts import CLAIMS, CLIENT, HOSTS, MACHINE, NODES, PODS, Fact, Seen
from longboat.engines.shared.home import Home
from longboat.engines.shared.secrets import list_secrets, read_secrets
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.kinds import EVENT

Object = Mapping[str, Any]
GONE = "[redacted]"
SHORTEST = 6
"""Shorter values are words of every text: 1, true, eth0."""
MOST_EVENTS = 500  # the newest: a crash loop of a large cluster makes thousands of the same
LABELS = ("kubernetes.io/", "nvidia.com/", "amd.com/", "longboat.dev/", "cloud.google.com/", "karpenter.", "eks.")
_SECRET_NAME = re.compile(r"token|secret|passw|credential|api_?key|private|access_?key|auth", re.IGNORECASE)
_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*){0,2}"),  # JSON web tokens
    re.compile(r"(?<=//)[^/@\s\"]*:[^\s\"]*(?=@(?!sha256:))"),  # user and password of an address, also with / and @
    re.compile(r"(?<=//)[^/@\s\"]+(?=@)"),
    re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"\\]+"),
    re.compile(
        r"(?i)(?:token|secret|passw(?:or)?d|credentials?|api[_-]?key|access[_-]?key)[\"']?\s*[=:]\s*[^\s,;}\]]+"
    ),
    re.compile(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b|\b(gh[opsu]|hf|glpat|xox[abp]|sk)[_-][A-Za-z0-9_-]{10,}"),
    re.compile(r"(?<![0-9a-fA-F])(?<!sha256:)(?<!sha512:)[0-9a-fA-F]{32,}"),  # keys, but no digests of images
    re.compile(r"(?![0-9a-f]{40,}\b)[A-Za-z0-9+/_-]{48,}={0,2}"),  # keys as base64
)


class Redactor:
    """Texts without secrets: those that are known, and what looks like one.

    Known ones are found by their beginning and length: a namespace has as many values as pods, and as many texts.
    """

    def __init__(self, known: Iterable[str]) -> None:
        self._known: dict[str, dict[int, set[str]]] = {}
        for value in {value for text in known for value in (text, text.strip()) if len(value) >= SHORTEST}:
            self._known.setdefault(value[:SHORTEST], {}).setdefault(len(value), set()).add(value)
        self._done: dict[str, str] = {}  # most texts are in every pod

    def text(self, text: str) -> str:
        if text not in self._done:
            redacted = self._without_known(text)
            for pattern in _PATTERNS:
                redacted = pattern.sub(GONE, redacted)
            self._done[text] = redacted
        return self._done[text]

    def _without_known(self, text: str) -> str:
        """All that any of them covers: they may overlap, and one be a part of another."""
        parts, end = [], 0
        for at in range(len(text) - SHORTEST + 1):
            sizes = self._known.get(text[at : at + SHORTEST])
            if sizes is None:
                continue
            size = max((size for size, values in sizes.items() if text[at : at + size] in values), default=0)
            if size and at >= end:
                parts += [text[end:at], GONE]
            end = max(end, at + size) if size else end
        return "".join([*parts, text[end:]])

    def value(self, value: Any) -> Any:
        """The same of every text in plain data, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, (list, tuple)) else value


def known_secrets(target: ClusterTarget | None, seen: Seen, environment: Mapping[str, str]) -> Iterable[str]:
    """Values that must not be in the archive, wherever they are told."""
    yield from (value for name, value in environment.items() if _SECRET_NAME.search(name))
    home = Home(environment=environment)
    yield from read_secrets(home, [Secret(name=name, store=name) for name in list_secrets(home)], {}).values()
    if target is not None:
        yield from _texts({key: value for key, value in target.client.transport.access.user.items() if key != "exec"})
        yield from _env_values(target.settings.pod.get("spec") or {})
    for pod in seen.values.get(PODS, ()):
        yield from _env_values(pod.get("spec") or {})


def _env_values(spec: Object) -> Iterable[str]:
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or ():
            yield from (str(entry["value"]) for entry in container.get("env") or () if entry.get("value"))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _texts(item)


def contents(target: ClusterTarget | None, diagnosis: Diagnosis, environment: Mapping[str, str]) -> dict[str, Any]:
    """File name -> plain data without secrets."""
    seen: Seen = diagnosis.seen
    files: dict[str, Any] = {"findings.json": diagnosis.findings, "versions.json": versions()}
    files |= {name: seen.values[fact] for name, fact in WHOLE.items() if fact in seen.values}
    for name, (fact, read) in SUMMARIES.items():
        if fact in seen.values:
            files[name] = [read(body) for body in seen.values[fact]]
    if target is not None:
        files["settings.json"] = settings_summary(target)
        files["events.json"] = events(target)
    redactor = Redactor(known_secrets(target, seen, environment))
    return {name: redactor.value(msgspec.to_builtins(data)) for name, data in files.items()}


def versions() -> dict[str, str]:
    return {"longboat": __version__, "python": sys.version.split()[0], "system": platform.platform()}


def node_summary(node: Object) -> Object:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    labels = {key: text for key, text in (meta.get("labels") or {}).items() if any(part in key for part in LABELS)}
    return {
        "name": meta["name"],
        "labels": labels,
        "taints": spec.get("taints"),
        "unschedulable": spec.get("unschedulable"),
        "podCIDR": spec.get("podCIDR"),
        "conditions": status.get("conditions"),
        "capacity": status.get("capacity"),
        "allocatable": status.get("allocatable"),
        "nodeInfo": {
            key: text for key, text in (status.get("nodeInfo") or {}).items() if not key.endswith(("ID", "UUID"))
        },
    }


def pod_summary(pod: Object) -> Object:
    """Names of variables, none of their values; no commands, which may hold some."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    containers = [
        {
            "name": container.get("name"),
            "image": container.get("image"),
            "resources": container.get("resources"),
            "env": [entry.get("name") for entry in container.get("env") or ()],
        }
        for container in spec.get("containers") or ()
    ]
    states = [
        {key: each.get(key) for key in ("name", "ready", "restartCount", "state")}
        for each in status.get("containerStatuses") or ()
    ]
    for state in states:  # a termination message is the training's own
        for part in (state["state"] or {}).values():
            if "exitCode" in part:
                part.pop("message", None)
    labels = {key: text for key, text in (meta.get("labels") or {}).items() if key.startswith("longboat.dev/")}
    return {
        "name": meta["name"],
        "labels": labels,
        "node": spec.get("nodeName"),
        "phase": status.get("phase"),
        "reason": status.get("reason"),
        "conditions": status.get("conditions"),
        "containers": containers,
        "states": states,
    }


def claim_summary(claim: Object) -> Object:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    return {
        "name": claim["metadata"]["name"],
        "class": spec.get("storageClassName"),
        "modes": spec.get("accessModes"),
        "phase": status.get("phase"),
        "capacity": status.get("capacity"),
    }


def host_summary(report: Any) -> Object:
    data: dict[str, Any] = msgspec.to_builtins(report)
    for key in ("machine_id", "product_uuid", "proxies", "journal", "done"):
        (data.get("facts") or {}).pop(key, None)
    return data


def settings_summary(target: ClusterTarget) -> Object:
    settings = target.settings
    return {
        "image": settings.image,
        "storage": settings.storage.place if settings.storage else None,
        "queue": settings.queue,
        "gpu_resource": settings.gpu_resource,
        "network_policy": settings.network_policy,
        "overlay": sorted(settings.pod.get("spec") or {}),
    }


def events(target: ClusterTarget) -> Sequence[Object]:
    """Of the namespace, as far as they may be listed."""
    try:
        items = target.client.list(EVENT).items
    except ApiError:
        return []
    rows = [
        {
            "reason": body.get("reason"),
            "message": body.get("message"),
            "count": body.get("count"),
            "at": body.get("lastTimestamp") or body.get("eventTime"),
            "object": "/".join(str((body.get("involvedObject") or {}).get(key)) for key in ("kind", "name")),
        }
        for body in items
    ]
    return rows[-MOST_EVENTS:]


WHOLE: dict[str, Fact[Any]] = {"client.json": CLIENT, "machine.json": MACHINE}
SUMMARIES: dict[str, tuple[Fact[Any], Callable[[Any], Object]]] = {
    "nodes.json": (NODES, node_summary),
    "pods.json": (PODS, pod_summary),
    "claims.json": (CLAIMS, claim_summary),
    "hosts.json": (HOSTS, host_summary),
}


def write_bundle(path: Path, files: Mapping[str, Any]) -> None:
    """A new archive that only its owner can read; whole or not at all. Raises EngineError."""
    if path.exists() and not path.is_file():  # renamed onto by root, /dev/null would be a file
        raise EngineError(f"{path}: not a file", hint="name another file: --bundle FILE")
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, data in files.items():
                content = msgspec.json.format(msgspec.json.encode(data), indent=2)
                entry = tarfile.TarInfo(f"longboat-doctor/{name}")
                entry.size, entry.mode = len(content), 0o600
                archive.addfile(entry, io.BytesIO(content))
        os.replace(scratch, path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise EngineError(f"{path}: {error.strerror or error}", hint="name another file: --bundle FILE") from None
