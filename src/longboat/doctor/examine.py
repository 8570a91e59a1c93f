"""Examinations: of this machine, and of a cluster from the client to a pod that trains."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from longboat.clusters.hosts.pool import Hosts
from longboat.clusters.spec import ClusterSpec
from longboat.core.jobs import Gpus, Value
from longboat.doctor import catalog, facts
from longboat.doctor.examination import Examination, judge
from longboat.doctor.facts import Fact, Seen
from longboat.doctor.findings import Finding, broken
from longboat.doctor.observe import client as observe_client
from longboat.doctor.observe import cluster as observe_cluster
from longboat.doctor.observe.hosts import host_reports
from longboat.doctor.observe.machine import machine_facts
from longboat.doctor.probes.outcomes import StorageProbe
from longboat.doctor.probes.pods import PodSettings, ProbePods
from longboat.doctor.probes.probe import NO_CLASS, network_probe, storage_probe, train_probe
from longboat.engines.kubernetes.manifests.pod_template import DRA
from longboat.engines.kubernetes.settings import DEFAULT_IMAGE, ClusterSettings
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts, observe
from longboat.engines.local.settings import LocalSettings
from longboat.engines.shared.home import Home
from longboat.kubeapi import kinds
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError

REACH = "kubectl get nodes: does it work with the same kubeconfig and context?"


class Diagnosis(Value, frozen=True):
    """Findings, and what they were found in."""

    findings: tuple[Finding, ...]
    seen: Any = None
    """The facts (Seen); a bundle tells some of them."""


class ClusterTarget:
    """A cluster that is examined, as one user in one namespace."""

    def __init__(self, client: Client, settings: ClusterSettings, environment: Mapping[str, str]) -> None:
        self.client, self.settings, self.environment = client, settings, environment

    def pod_settings(self, cluster: ClusterFacts | None) -> PodSettings:
        return PodSettings(
            image=self.settings.image or DEFAULT_IMAGE,
            security=cluster.security if cluster is not None else "baseline",
            pull_secrets=self.settings.pull_secrets,
            service_account=self.settings.service_account,
            overlay=self.settings.pod,
        )


def examine_machine(home: Home, environment: Mapping[str, str], settings: LocalSettings) -> Diagnosis:
    seen = Examination({facts.MACHINE: lambda _: machine_facts(home, environment, settings)}).seen()
    return Diagnosis(findings=tuple(judge(catalog.MACHINE_CHECKS, seen)), seen=seen)


def examine_hosts(spec: ClusterSpec, hosts: Hosts, kept: ClusterSpec | None) -> Diagnosis:
    """Nothing where the file names an existing cluster. `kept`: what is stored of a cluster of this name."""
    seen = Examination({facts.HOSTS: lambda _: host_reports(spec, hosts, kept)}).seen()
    return Diagnosis(findings=tuple(judge(catalog.HOST_CHECKS, seen)) if spec.hosts else (), seen=seen)


def examine_cluster(
    target: ClusterTarget, *, with_pods: bool, notice: Callable[[str], None] = lambda _: None
) -> Diagnosis:
    """`notice` is told of pods that could not be removed."""
    first = Examination(_first_observers(target)).seen()
    if facts.API not in first.values:
        return Diagnosis(findings=tuple(_unreached(target, first)), seen=first)
    seen = joined_facts(first, Examination(_observers(target)).seen())
    checks = catalog.CLUSTER_CHECKS
    if with_pods:
        seen = joined_facts(seen, _probe(target, seen, notice))
    else:
        checks = tuple(check for check in checks if check not in catalog.POD_CHECKS)
    return Diagnosis(findings=tuple(judge(checks, seen)), seen=seen)


def _first_observers(target: ClusterTarget) -> dict[Fact[Any], Callable[[Examination], Any]]:
    client = target.client
    return {
        facts.CLIENT: lambda _: observe_client.client_facts(client.transport.access, target.environment),
        facts.API: lambda _: observe_client.api_answer(client),
    }


def _unreached(target: ClusterTarget, seen: Seen) -> list[Finding]:
    problem = seen.problems[facts.API]
    where = f"{target.client.server} (context {target.client.context})"
    message = problem.detail.removeprefix(f"{facts.API.name}: ")
    seen.problems[facts.API] = broken(f"{where}: {message}", problem.hint or REACH)
    return judge([check for check in catalog.CLUSTER_CHECKS if check.name in catalog.UNREACHED], seen)


def _observers(target: ClusterTarget) -> dict[Fact[Any], Callable[[Examination], Any]]:
    client = target.client
    return {
        facts.READY: lambda _: observe_cluster.failing_checks(client),
        facts.CLUSTER: lambda _: observe(client, None, target.settings),
        facts.NODES: lambda _: observe_cluster.nodes(client),
        facts.LEASES: lambda _: observe_cluster.lease_times(client),
        facts.WEBHOOKS: lambda _: observe_cluster.webhooks(client),
        facts.SIGNINGS: lambda _: client.list(observe_cluster.SIGNING).items,
        facts.DNS: lambda _: observe_cluster.dns_endpoints(client),
        facts.POLICIES: lambda _: observe_cluster.blocked_traffic(client),
        facts.CLAIMS: lambda _: client.list(kinds.PVC).items,
        facts.PLUGINS: lambda _: observe_cluster.plugin_rollouts(client),
        facts.OPERATORS: lambda _: observe_cluster.operators(client),
        facts.CONTROLLER: lambda _: observe_cluster.missing_controller(client),
        facts.AUTOSCALER: lambda _: observe_cluster.autoscaler_report(client),
        facts.PODS: lambda _: client.list(kinds.POD).items,
        facts.LEFTOVERS: lambda _: observe_cluster.leftovers(client),
    }


def _probe(target: ClusterTarget, seen: Seen, notice: Callable[[str], None]) -> Seen:
    """Pods that look around; all are removed, also when somebody interrupts."""
    cluster: ClusterFacts | None = seen.values.get(facts.CLUSTER)
    with with_probe_pods(target, cluster, notice) as pods:
        return Examination(
            {
                facts.NETWORK_PROBE: lambda _: network_probe(pods, wanted_interface(target.settings.pod)),
                facts.STORAGE_PROBE: lambda _: _write_storage(target, pods, cluster),
                facts.TRAIN_PROBE: lambda _: train_probe(pods, gpu_resource(target, cluster), 1),
            }
        ).seen()


@contextlib.contextmanager
def with_probe_pods(
    target: ClusterTarget, cluster: ClusterFacts | None, notice: Callable[[str], None] = lambda _: None
) -> Iterator[ProbePods]:
    """Pods and claims that are gone afterwards, also when somebody interrupts."""
    pods = ProbePods(target.client, target.pod_settings(cluster))
    try:
        yield pods
    finally:
        try:
            pods.close()
        except ApiError as error:
            notice(f"pods of the doctor may be left: {error.message}; they end by themselves, --fix removes them")


def _write_storage(target: ClusterTarget, pods: ProbePods, cluster: ClusterFacts | None) -> StorageProbe:
    classes = cluster.storage_classes if cluster is not None else None
    if target.settings.storage is None and classes is not None and not any(each.is_default for each in classes):
        return NO_CLASS
    return storage_probe(pods, target.settings.storage, None)


def gpu_resource(target: ClusterTarget, cluster: ClusterFacts | None) -> str:
    """The resource that a pod asks for to get a GPU; empty where there is none, or only by DRA."""
    if cluster is None or not cluster.offers:
        return ""
    resource = target.settings.gpu_resource or cluster.gpu_resource(Gpus(count=1)) or ""
    return "" if resource.startswith(DRA) else resource


def wanted_interface(overlay: Mapping[str, Any]) -> str:
    """NCCL_SOCKET_IFNAME of what the settings lay over every pod."""
    containers = (overlay.get("spec") or {}).get("containers") or ()
    variables = [entry for container in containers for entry in container.get("env") or ()]
    return next((str(entry.get("value") or "") for entry in variables if entry.get("name") == "NCCL_SOCKET_IFNAME"), "")


def joined_facts(first: Seen, second: Seen) -> Seen:
    return Seen({**first.values, **second.values}, {**first.problems, **second.problems})


def with_new(before: Diagnosis, after: Diagnosis, names: set[str]) -> Diagnosis:
    """Findings of the first, those of these checks from the second."""
    new = {finding.name: finding for finding in after.findings if finding.name in names}
    return msgspec.structs.replace(
        before, findings=tuple(new.get(finding.name, finding) for finding in before.findings)
    )


def joined(hosts: Diagnosis, cluster: Diagnosis) -> Diagnosis:
    """Of a cluster and its hosts, the hosts first."""
    return Diagnosis(findings=(*hosts.findings, *cluster.findings), seen=joined_facts(hosts.seen, cluster.seen))
