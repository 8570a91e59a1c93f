"""Objects of the cluster as the doctor reads them, one function for each fact. Forbidden is raised: it is a finding."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from longboat.autoscaler.report.status import read_report
from longboat.core.times import parse_time
from longboat.doctor.values import AdmissionWebhook, AutoscalerReport, LeaseTimes, Leftovers, Rollout
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.explain.explain import SLICE
from longboat.engines.kubernetes.explain.network_policies import BlockedTraffic, blocking_policies
from longboat.engines.kubernetes.install.install import absence, find_controller, lease_namespace
from longboat.engines.kubernetes.record_store import RUN_RECORDS
from longboat.kubeapi import kinds
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Unreachable, answer_or_none
from longboat.kubeapi.kinds import Kind

Object = dict[str, Any]
DOCTOR = "doctor"
"""Label longboat.dev/kind of the doctor's pods and claims."""
HELPERS = f"{names.MANAGED_BY}=longboat,{names.KIND} in (helper,aide,{DOCTOR})"
SIGNING = Kind("CertificateSigningRequest", "certificates.k8s.io/v1", "certificatesigningrequests", False)
HOOKS = (
    Kind("ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", False),
    Kind("MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", False),
)
OLD_S = 900.0
"""No examination takes so long: what is older was left by one that was killed."""
_PLUGIN = re.compile(r"device-plugin|gpu-feature-discovery|dcgm-exporter|nvidia-.*toolkit|rdma|network-operator")
_FAILING = re.compile(r"\[-\](\S+)")


def failing_checks(client: Client) -> tuple[str, ...]:
    """Names of the API server's own checks that fail. Raises Forbidden."""
    try:
        # Its own checks, that of etcd above all, wait for seconds before they fail.
        client.request("GET", "/readyz", query={"verbose": "true"}, timeout_s=15.0, may_repeat=False)
    except Unreachable as error:
        if error.status != 500:
            raise
        return tuple(_FAILING.findall(error.message)) or (error.message,)
    return ()


def nodes(client: Client) -> list[Object]:
    return client.list(kinds.NODE).items


def lease_times(client: Client) -> LeaseTimes:
    leases = client.list(kinds.LEASE, namespace="kube-node-lease").items
    renewed = [(str(body["metadata"]["name"]), parse_time(body["spec"].get("renewTime"))) for body in leases]
    lasts = [int(body["spec"].get("leaseDurationSeconds") or 0) for body in leases]
    return LeaseTimes(
        now=client.now(),
        renewed=tuple((name, moment) for name, moment in renewed if moment is not None),
        lasts_s=float(max(lasts, default=40) or 40),
    )


def webhooks(client: Client) -> list[AdmissionWebhook]:
    hooks = [(kind, body) for kind in HOOKS for body in client.list(kind).items]
    services: dict[str, int | None] = {}
    result = []
    for kind, body in hooks:
        for hook in body.get("webhooks") or ():
            service = (hook.get("clientConfig") or {}).get("service") or {}
            place = f"{service.get('namespace')}/{service.get('name')}" if service else ""
            if place and place not in services:
                services[place] = answer_or_none(lambda place=place: _endpoints(client, *place.split("/")))  # type: ignore[misc]
            result.append(
                AdmissionWebhook(
                    name=str(body["metadata"]["name"]),
                    kind=kind.kind,
                    service=place,
                    is_required=hook.get("failurePolicy", "Fail") == "Fail",
                    ready=services.get(place),
                )
            )
    return result


def _endpoints(client: Client, namespace: str, service: str) -> int:
    slices = client.list(SLICE, namespace=namespace, labels=f"kubernetes.io/service-name={service}").items
    endpoints = [endpoint for body in slices for endpoint in body.get("endpoints") or ()]
    return sum((endpoint.get("conditions") or {}).get("ready") is not False for endpoint in endpoints)


def dns_endpoints(client: Client) -> int:
    return _endpoints(client, "kube-system", "kube-dns")


def blocked_traffic(client: Client) -> list[BlockedTraffic]:
    policies = client.list(kinds.NETWORK_POLICY).items
    namespace = answer_or_none(lambda: client.find(kinds.NAMESPACE, client.namespace)) or {}
    own = [body for body in policies if names.RUN not in (body["metadata"].get("labels") or {})]
    labels = {names.RUN: "doctor", names.ROLE: "worker", names.MANAGED_BY: "longboat"}
    return blocking_policies(own, labels, namespace)


def plugin_rollouts(client: Client) -> list[Rollout]:
    sets = client.list(kinds.DAEMON_SET, everywhere=True).items
    return [_rollout(body) for body in sets if _PLUGIN.search(str(body["metadata"]["name"]))]


def operators(client: Client) -> list[Rollout]:
    """Deployments of JobSet and Kueue, by the labels of their manifests and charts."""
    bodies = client.list(kinds.DEPLOYMENT, everywhere=True, labels="app.kubernetes.io/name in (jobset,kueue)").items
    return [_rollout(body) for body in bodies]


def _rollout(body: Object) -> Rollout:
    meta, status = body["metadata"], body.get("status") or {}
    if body.get("kind", "") == "DaemonSet" or "desiredNumberScheduled" in status:
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    else:
        wanted, ready = (body.get("spec") or {}).get("replicas", 1), status.get("readyReplicas", 0)
    return Rollout(name=meta["name"], namespace=meta["namespace"], wanted=int(wanted), ready=int(ready or 0))


def missing_controller(client: Client) -> tuple[str, str] | None:
    return absence(find_controller(client), client.namespace)


def autoscaler_report(client: Client) -> AutoscalerReport | None:
    report = read_report(client, lease_namespace(client))
    if report is None:
        return None
    warnings = ((report.trouble,) if report.trouble else ()) + report.warnings
    return AutoscalerReport(age_s=client.now() - report.at, warnings=warnings)


def leftovers(client: Client) -> Leftovers:
    helpers = client.list(kinds.POD, labels=HELPERS).items
    claims = answer_or_none(lambda: client.list(kinds.PVC, labels=HELPERS).items) or []
    return Leftovers(
        helper_pods=tuple(_name(pod) for pod in helpers if _has_ended(pod) or _is_old(pod, client.now())),
        claims=tuple(_name(claim) for claim in claims if _is_old(claim, client.now())),
        orphans=tuple(_orphans(client)),
    )


def _orphans(client: Client) -> Iterable[str]:
    """Jobs and pods that no record owns any more; Kubernetes removes them itself unless their owner was cut off."""
    records = {_name(body) for body in client.list(kinds.CONFIG_MAP, labels=RUN_RECORDS).items}
    for kind in (kinds.JOB, kinds.POD):
        for body in client.list(kind, labels=f"{names.MANAGED_BY}=longboat,{names.RUN}").items:
            run = (body["metadata"].get("labels") or {}).get(names.RUN)
            is_going = "deletionTimestamp" in body["metadata"] or bool(body["metadata"].get("ownerReferences"))
            if run not in records and names.expired_name(str(run)) not in records and not is_going:
                yield f"{kind.kind.lower()} {_name(body)}"


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _is_old(body: Object, now: float) -> bool:
    meta = body["metadata"]
    is_doctors = (meta.get("labels") or {}).get(names.KIND) == DOCTOR
    return is_doctors and now - (parse_time(meta.get("creationTimestamp")) or now) > OLD_S


def _name(body: Object) -> str:
    return str(body["metadata"]["name"])


def remove_leftovers(client: Client, left: Leftovers) -> None:
    """What is gone already is fine."""
    for kind, own in ((kinds.POD, left.helper_pods), (kinds.PVC, left.claims)):
        for name in own:
            client.delete(kind, name, grace_s=0 if kind is kinds.POD else None)
