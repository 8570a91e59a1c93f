"""Scaling a service of a cluster by load: a HorizontalPodAutoscaler, where the cluster can have one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from longboat.core.jobs import Serve
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden, ObjectNotFound
from longboat.kubeapi.kinds import HPA
from longboat.serving.kubernetes import apply
from longboat.serving.kubernetes.manifests import NAME, autoscaler_object

Object = Mapping[str, Any]

METRICS = "/apis/metrics.k8s.io"


def scale_by_load(client: Client, deployment: Object, serve: Serve, notice: Callable[[str], None]) -> None:
    """Make, change or remove the HorizontalPodAutoscaler; say so where there can be none."""
    name = deployment["metadata"]["name"]
    if serve.most > serve.replicas:
        reason = _unscalable(client, serve)
        if reason is None:
            apply.put_owned(client, deployment, autoscaler_object(name, client.namespace, serve))
            return
        notice(f"{name} stays at {serve.replicas} replicas: {reason}")
    apply.remove_owned(client, deployment, HPA)


def _unscalable(client: Client, serve: Serve) -> str | None:
    if serve.resources.cpus is None:
        return "a cluster scales by the share of `cpus` in use, and the service asks for none (--cpus)"
    try:
        client.request("GET", METRICS)
    except (ObjectNotFound, Forbidden):
        return "the cluster has no metrics (metrics-server) to scale by"
    return None


def owned_autoscaler(client: Client, deployment: Object) -> Object | None:
    name = deployment["metadata"]["name"]
    with contextlib.suppress(Forbidden):
        there = client.find(HPA, name)
        if there is not None and (there["metadata"].get("labels") or {}).get(NAME) == name:
            return there
    return None
