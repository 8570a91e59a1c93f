"""Doctor: is everything in this cluster that runs need? `longboat doctor --on CONTEXT`. Observes only."""

from __future__ import annotations

import time

from longboat.core.errors import LongboatError
from longboat.core.plans import DoctorCheck
from longboat.core.resources import show_quantity
from longboat.core.words import counted
from longboat.engines.kubernetes.explain.explain import dns_addresses
from longboat.engines.kubernetes.install.install import absence, find_controller
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts, ContextChoices, observe
from longboat.engines.kubernetes.submit.facts.permissions import format_permissions, grant
from longboat.engines.kubernetes.submit.preflight import OLDEST, needed_denials, version_of
from longboat.fitting.model.quantities import CPU, MEMORY
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError


def examine(client: Client, settings: ContextChoices | None = None) -> list[DoctorCheck]:
    """All checks; only the first where the cluster cannot be reached."""
    began = time.monotonic()
    try:
        seen = observe(client, None, settings)
    except LongboatError as error:
        where = f"{client.server} (context {client.context})"
        return [DoctorCheck(name="cluster", ok=False, detail=f"{where}: {error.message}", hint=error.hint or _REACH)]
    took_s = time.monotonic() - began
    return [
        DoctorCheck(
            name="cluster", ok=True, detail=f"{client.server} (context {client.context}), seen in {took_s:.2f} s"
        ),
        _version(seen),
        _namespace(seen),
        _permissions(seen),
        _nodes(seen),
        _gpus(seen),
        _jobset(seen),
        _kueue(seen),
        _storage(seen),
        _dns(client),
        _growth(seen),
        _controller(client),
    ]


_REACH = "kubectl get nodes: does it work with the same kubeconfig and context?"


def _version(seen: ClusterFacts) -> DoctorCheck:
    version = version_of(seen.version)
    oldest = ".".join(map(str, OLDEST))
    if version is not None and version < OLDEST:
        hint = f"Longboat is tested with {oldest} and newer"
        return DoctorCheck(name="version", ok=None, detail=f"{seen.version} is older than {oldest}", hint=hint)
    return DoctorCheck(name="version", ok=True, detail=seen.version or "not told")


def _namespace(seen: ClusterFacts) -> DoctorCheck:
    if seen.has_namespace is False:
        hint = f"kubectl create namespace {seen.namespace}"
        return DoctorCheck(name="namespace", ok=False, detail=f"there is no namespace {seen.namespace}", hint=hint)
    if seen.is_terminating:
        hint = "name another one with --namespace"
        return DoctorCheck(name="namespace", ok=False, detail=f"{seen.namespace} is being deleted", hint=hint)
    detail = f"{seen.namespace}, Pod Security level {seen.security}"
    return DoctorCheck(name="namespace", ok=True, detail=detail)


def _permissions(seen: ClusterFacts) -> DoctorCheck:
    needed = needed_denials(seen)
    rest = [permission for permission in seen.denied if permission not in needed]
    if needed:
        detail = "may not " + format_permissions(needed)
        return DoctorCheck(
            name="permissions", ok=False, detail=detail, hint=f"ask for {grant(needed, namespace=seen.namespace)}"
        )
    if rest:
        detail = "all that runs need; may not " + format_permissions(rest)
        return DoctorCheck(
            name="permissions", ok=None, detail=detail, hint=f"ask for {grant(rest, namespace=seen.namespace)}"
        )
    return DoctorCheck(name="permissions", ok=True, detail="all that runs need")


def _nodes(seen: ClusterFacts) -> DoctorCheck:
    if seen.nodes is None:
        hint = "a ClusterRole with list on nodes lets Longboat say what fits, and why something waits"
        return DoctorCheck(name="nodes", ok=None, detail="may not be listed", hint=hint)
    ready = [use for use in seen.nodes if use.is_ready and not use.node.is_unschedulable]
    cpus = sum(use.node.has(CPU) for use in ready) / 1000
    memory = show_quantity(sum(use.node.has(MEMORY) for use in ready))
    detail = f"{len(ready)} of {len(seen.nodes)} ready: {counted(cpus, 'CPU')}, {memory} of memory"
    bad = [use.node.name for use in seen.nodes if use not in ready]
    look = f"kubectl describe node {bad[0]}" if bad else None
    return DoctorCheck(name="nodes", ok=bool(ready), detail=detail, hint=look)


def _gpus(seen: ClusterFacts) -> DoctorCheck:
    offers = seen.offers
    if offers:
        return DoctorCheck(name="gpus", ok=True, detail=", ".join(f"{offer} as {offer.resource}" for offer in offers))
    if seen.device_classes:
        return DoctorCheck(name="gpus", ok=True, detail="by DRA: " + ", ".join(seen.device_classes))
    if seen.nodes is None:
        return DoctorCheck(name="gpus", ok=None, detail="not known: nodes may not be listed")
    hint = "with GPUs in the machines: is their device plugin running? kubectl get pods -A | grep device-plugin"
    return DoctorCheck(name="gpus", ok=None, detail="no node offers any", hint=hint)


def _jobset(seen: ClusterFacts) -> DoctorCheck:
    if seen.has_jobset:
        return DoctorCheck(
            name="jobset",
            ok=True,
            detail="served: runs are JobSets (without a storage or a queue, several roles are Jobs)",
        )
    return DoctorCheck(name="jobset", ok=None, detail="not here: runs are plain Jobs, which do the same")


def _kueue(seen: ClusterFacts) -> DoctorCheck:
    if not seen.has_kueue:
        return DoctorCheck(name="kueue", ok=None, detail="not here: Longboat's own gate lets gangs in")
    if seen.queues is None:
        return DoctorCheck(name="kueue", ok=None, detail="served; queues may not be listed")
    names = ", ".join(f"{queue.name}{'' if queue.is_active is not False else ' (not active)'}" for queue in seen.queues)
    hint = None if names else "create a LocalQueue in this namespace to use it"
    return DoctorCheck(
        name="kueue", ok=True if names else None, detail=f"queues: {names or 'none in this namespace'}", hint=hint
    )


def _storage(seen: ClusterFacts) -> DoctorCheck:
    if seen.storage_classes is None:
        return DoctorCheck(name="storage", ok=None, detail="storage classes may not be listed")
    default = next((storage_class.name for storage_class in seen.storage_classes if storage_class.is_default), None)
    names = ", ".join(storage_class.name for storage_class in seen.storage_classes) or "none"
    if default is None:
        hint = "claims must name a class, or be made by hand; checkpoints need a claim, NFS or a folder of the nodes"
        return DoctorCheck(name="storage", ok=None, detail=f"no default storage class (classes: {names})", hint=hint)
    return DoctorCheck(name="storage", ok=True, detail=f"default storage class {default} (classes: {names})")


def _dns(client: Client) -> DoctorCheck:
    try:
        count = dns_addresses(client)
    except ApiError:
        return DoctorCheck(name="dns", ok=None, detail="may not be looked at")
    if count:
        return DoctorCheck(name="dns", ok=True, detail=f"{count} ready")
    hint = "runs with several nodes need it: kubectl -n kube-system get pods -l k8s-app=kube-dns"
    return DoctorCheck(name="dns", ok=None, detail="no ready pod behind service kube-dns in kube-system", hint=hint)


def _growth(seen: ClusterFacts) -> DoctorCheck:
    if seen.autoscaler is None:
        return DoctorCheck(name="autoscaler", ok=None, detail="none seen: the cluster has the nodes it has")
    detail = seen.autoscaler.name + (f": {seen.autoscaler.detail}" if seen.autoscaler.detail else "")
    return DoctorCheck(name="autoscaler", ok=True, detail=detail)


def _controller(client: Client) -> DoctorCheck:
    try:
        lacking = absence(find_controller(client), client.namespace)
    except ApiError:
        return DoctorCheck(name="controller", ok=None, detail="may not be looked at")
    if lacking is None:
        return DoctorCheck(name="controller", ok=True, detail="looks after runs of this namespace that nobody watches")
    why, remedy = lacking
    detail = f"{why}: waiting runs are admitted, and failed ones restarted, only while a command watches them"
    return DoctorCheck(name="controller", ok=None, detail=detail, hint=remedy)
