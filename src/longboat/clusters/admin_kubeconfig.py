"""The administrator's kubeconfig of a cluster, read from one of its control planes.

Root of a control plane may write anything into it. Taken are an https address and certificates: a command to log in
with, a file of this machine or a proxy would run here, or send what is here, in the name of whoever reads it.
"""

from __future__ import annotations

import re
from typing import Any

from longboat.clusters.hosts.connection import CommandFailed, HostConnection, check
from longboat.clusters.hosts.pool import connect
from longboat.clusters.hosts.settings import LoginSettings
from longboat.clusters.plan.kubeadm import ADMIN
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import EngineError, LongboatError, UsageError

_SERVER = r"https://[A-Za-z0-9.:\[\]-]{1,260}"
_BASE64 = r"[A-Za-z0-9+/=\s]{1,65536}"
_FIELDS = {
    "clusters": {"server": _SERVER, "certificate-authority-data": _BASE64},
    "users": {"client-certificate-data": _BASE64, "client-key-data": _BASE64},
}


def read_admin_kubeconfig(spec: ClusterSpec, settings: LoginSettings) -> str:
    """Read the admin kubeconfig from the first control plane that has it; else raises the first one's error."""
    if not spec.control_planes:
        hint = f"longboat run --on {spec.context}"
        raise UsageError(f"{spec.name} is an existing cluster: its context is in your kubeconfig", hint=hint)
    errors: list[LongboatError] = []
    with connect(spec.control_planes, settings) as hosts:
        for host in spec.control_planes:
            try:
                return admin_kubeconfig_of(hosts[host.name])
            except CommandFailed as error:
                hint = "longboat cluster up makes the cluster"
                errors.append(EngineError(f"{host.name} is no control plane yet: {error.last_lines[-1]}", hint=hint))
            except LongboatError as error:
                errors.append(error)
    raise errors[0]


def admin_kubeconfig_of(host: HostConnection) -> str:
    """Read a control plane's own. Raises CommandFailed where there is none."""
    return with_certificates_alone(host.name, check(host, f"cat {ADMIN}"))


def with_certificates_alone(host: str, text: str) -> str:
    """A kubeconfig of the only fields that kubeadm writes, each of them checked."""
    import yaml

    try:
        content = yaml.safe_load(text)
        name = content["current-context"]
        context = _entry(content, "contexts", name)
        bodies = {plural: _entry(content, plural, context[plural[:-1]]) for plural in _FIELDS}
        if any(set(body) != set(_FIELDS[plural]) for plural, body in bodies.items()):
            raise ValueError
        for plural, body in bodies.items():
            if not all(re.fullmatch(pattern, body[field]) for field, pattern in _FIELDS[plural].items()):
                raise ValueError
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError):
        raise EngineError(
            f"{host}: {ADMIN} is not what kubeadm writes, an address with certificates",
            hint="look who has root there; cluster kubeconfig NAME --from FILE takes one that you trust",
        ) from None
    entries = {plural: [{"name": "cluster", plural[:-1]: body}] for plural, body in bodies.items()}
    contexts = [{"name": "cluster", "context": {"cluster": "cluster", "user": "cluster"}}]
    head = {"apiVersion": "v1", "kind": "Config", "current-context": "cluster"}
    return str(yaml.safe_dump({**head, **entries, "contexts": contexts}, sort_keys=False))


def _entry(content: Any, plural: str, name: Any) -> dict[str, Any]:
    body: dict[str, Any] = next(entry for entry in content[plural] if entry["name"] == name)[plural[:-1]]
    return body
