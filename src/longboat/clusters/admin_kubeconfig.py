"""The administrator's kubeconfig of a cluster, read from one of its control planes."""

from __future__ import annotations

from longboat.clusters.hosts.connection import CommandFailed, check
from longboat.clusters.hosts.pool import connect
from longboat.clusters.hosts.settings import LoginSettings
from longboat.clusters.plan.kubeadm import ADMIN
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import EngineError, LongboatError, UsageError


def read_admin_kubeconfig(spec: ClusterSpec, settings: LoginSettings) -> str:
    """Read the admin kubeconfig from the first control plane that has it; else raises the first one's error."""
    if not spec.control_planes:
        hint = f"longboat run --on {spec.context}"
        raise UsageError(f"{spec.name} is an existing cluster: its context is in your kubeconfig", hint=hint)
    errors: list[LongboatError] = []
    with connect(spec.control_planes, settings) as hosts:
        for host in spec.control_planes:
            try:
                return check(hosts[host.name], f"cat {ADMIN}")
            except CommandFailed as error:
                hint = "longboat cluster up makes the cluster"
                errors.append(EngineError(f"{host.name} is no control plane yet: {error.last_lines[-1]}", hint=hint))
            except LongboatError as error:
                errors.append(error)
    raise errors[0]
