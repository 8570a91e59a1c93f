"""A way from outside to the server of a run in a cluster: a Service, an Ingress, and what a NetworkPolicy must allow.

They belong to the run's record and go with it. Not the usual way, which is a port-forward (`forwarding`).
"""

from __future__ import annotations

from typing import Any

from longboat.core.errors import UsageError
from longboat.core.jobs import Job, Value
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.creation import create_object
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.manifests.objects import MANAGER, Owner, owner_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden
from longboat.kubeapi.kinds import CONFIG_MAP, INGRESS, NETWORK_POLICY, NODE, POD, SERVICE
from longboat.workbench.jobs import OPEN

Object = dict[str, Any]

HTTP = 80


class Exposure(Value, frozen=True):
    """How a server is to be reached beside the port-forward."""

    port: int  # that the server listens on, in a pod of its own
    node_port: bool = False
    ingress: str | None = None  # host name


def exposure_objects(run: str, namespace: str, owner: Owner, exposure: Exposure, *, has_policy: bool) -> list[Object]:
    """What leads to the pods of a run. Pure. `has_policy`: the run's own keeps everybody else out."""
    name = f"{run}-open"
    labels = {names.MANAGED_BY: MANAGER, names.RUN: run}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner]}
    pods = {names.RUN: run}
    port = {"name": "http", "port": HTTP, "targetPort": exposure.port}
    kind = "NodePort" if exposure.node_port else "ClusterIP"
    made: list[Object] = []
    if has_policy:
        allowed = {"ports": [{"port": exposure.port, "protocol": "TCP"}]}
        rule = {"podSelector": {"matchLabels": pods}, "policyTypes": ["Ingress"], "ingress": [allowed]}
        made.append(_object(NETWORK_POLICY, metadata, rule))
    made.append(_object(SERVICE, metadata, {"type": kind, "selector": pods, "ports": [port]}))
    if exposure.ingress is not None:
        backend = {"service": {"name": name, "port": {"number": HTTP}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        made.append(_object(INGRESS, metadata, {"rules": [{"host": exposure.ingress, "http": {"paths": paths}}]}))
    return made


def _object(kind: Any, metadata: Object, spec: Object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def check_open(job: Job, run: str) -> None:
    """Raises UsageError for a server that is open already and listens for its own pod alone."""
    if OPEN not in str(job.roles[0].run).split():
        raise UsageError(
            f"{run} is open already, and listens inside of its pod only", hint=f"longboat stop {run}, then again"
        )


def expose(engine: KubernetesEngine, run: str, exposure: Exposure) -> None:
    """Make what leads to the run, or find it made. Raises LongboatError."""
    client = engine.client
    owner = owner_of(client.get(CONFIG_MAP, run))
    has_policy = engine.settings.network_policy
    for body in exposure_objects(run, client.namespace, owner, exposure, has_policy=has_policy):
        create_object(client, body, owner=owner["uid"])


def address_of(client: Client, run: str, exposure: Exposure) -> str:
    """Host and port under which the run's server is reached from outside, once its pod runs."""
    if exposure.ingress is not None:
        return exposure.ingress
    number = client.get(SERVICE, f"{run}-open")["spec"]["ports"][0]["nodePort"]
    host = _node_address(client, run)
    return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"


def _node_address(client: Client, run: str) -> str:
    """An address of the node of the run's pod: one that is reached from outside where it has one."""
    (pod, *_) = client.list(POD, labels=names.pods_of(run)).items
    inside = str(pod["status"]["hostIP"])
    try:
        node = client.find(NODE, str(pod["spec"]["nodeName"])) or {}
    except Forbidden:
        return inside
    addresses = (node.get("status") or {}).get("addresses") or ()
    return next((str(each["address"]) for each in addresses if each.get("type") == "ExternalIP"), inside)
