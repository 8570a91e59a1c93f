"""Facts that are missing or empty never read ok: who saw nothing cannot say that all is well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from longboat.clusters.observe.facts import HostFacts
from longboat.core.errors import EngineError
from longboat.doctor import facts
from longboat.doctor.catalog import CLUSTER_CHECKS, HOST_CHECKS, MACHINE_CHECKS
from longboat.doctor.checks.hosts import PROBLEMS
from longboat.doctor.examination import Examination, judge
from longboat.doctor.facts import Fact, Seen
from longboat.doctor.probes.outcomes import NetworkProbe, PodOutcome, PodReport, StorageProbe, TrainProbe
from longboat.doctor.values import ApiAnswer, ClientFacts, HostReport, LeaseTimes, Leftovers, MachineFacts
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.local.queue.machine import LocalMachine

CHECKS = (*MACHINE_CHECKS, *CLUSTER_CHECKS, *HOST_CHECKS)
FACTS: tuple[Fact[Any], ...] = tuple(value for value in vars(facts).values() if isinstance(value, Fact))
SILENT = PodOutcome()
EMPTY: dict[Fact[Any], Any] = {
    facts.MACHINE: MachineFacts(
        machine=LocalMachine(cpus=0.0, memory=0, shm=None, disk=0, gpus=()), python="", executable="", home=""
    ),
    facts.CLIENT: ClientFacts(context="", namespace="", server=""),
    facts.API: ApiAnswer(server="", context="", took_s=0.0),
    facts.READY: (),
    facts.CLUSTER: ClusterFacts(namespace="team"),
    facts.NODES: [],
    facts.LEASES: LeaseTimes(now=0.0, renewed=()),
    facts.WEBHOOKS: [],
    facts.SIGNINGS: [],
    facts.DNS: 0,
    facts.POLICIES: [],
    facts.CLAIMS: [],
    facts.PLUGINS: [],
    facts.OPERATORS: [],
    facts.CONTROLLER: None,
    facts.AUTOSCALER: None,
    facts.PODS: [],
    facts.LEFTOVERS: Leftovers(),
    facts.NETWORK_PROBE: NetworkProbe(server=SILENT, client=SILENT, image=""),
    facts.STORAGE_PROBE: StorageProbe(),
    facts.TRAIN_PROBE: TrainProbe(),
    facts.HOSTS: [],
}
LISTED = "an empty list is the whole answer; one that may not be listed is Forbidden"
ANSWERED = "the observer raises where the server does not answer"
MAY_BE_OK = {
    "python": "the interpreter that runs this",
    "home": "an error is told where it cannot be written",
    "loopback": "both answers are fine",
    "processes": "the fact is yes or no",
    "shared memory": "None: this system has no /dev/shm, which is fine",
    "gpu isolation": "no device files: nothing to isolate",
    "kubeconfig": "the context was found, or nothing is examined",
    "clock": ANSWERED,
    "api": ANSWERED,
    "api health": ANSWERED,
    "webhooks": LISTED,
    "certificate requests": LISTED,
    "network policies": LISTED,
    "claims": LISTED,
    "device plugins": LISTED,
    "stuck pods": LISTED,
    "leftovers": LISTED,
    "controller": "None says that it is there",
    "autoscaler": "a cluster without one is fine",
    "gpus": "this machine has no device file of a GPU",
}


def ok_names(checks: Iterable[Any], seen: Seen) -> set[str]:
    return {finding.name for finding in judge(checks, seen) if finding.status == "ok"}


def test_every_fact_has_an_empty_one() -> None:
    assert set(EMPTY) == set(FACTS)


def test_facts_that_failed() -> None:
    def fail(_: Examination) -> None:
        raise EngineError("no way")

    assert ok_names(CHECKS, Examination(dict.fromkeys(FACTS, fail)).seen()) == set()
    assert ok_names(CHECKS, Seen({})) == set()


def test_facts_that_are_empty() -> None:
    assert ok_names(CHECKS, Seen(EMPTY)) == set(MAY_BE_OK)


@pytest.mark.parametrize(
    "report",
    [
        HostReport(name="a", error="connection refused"),
        HostReport(name="a", facts=HostFacts(name="a", sudo="asks")),
        HostReport(name="a", facts=HostFacts(name="a", sudo="root"), is_member=True),
        HostReport(name="a", facts=HostFacts(name="a", sudo="root"), is_member=True, look_error=""),
    ],
)
def test_hosts_that_say_nothing(report: HostReport) -> None:
    own = {f"host {kind}" for kind in PROBLEMS}  # judged by `find_problems`, from facts that are whole or an error
    without_gpus = {"host driver match", "host nvidia-smi", "host cdi"}  # no driver: there is nothing to look at
    names = ok_names(HOST_CHECKS, Seen({facts.HOSTS: [report]})) - own - {"host login", "host membership"}
    assert names <= without_gpus


def test_pods_that_say_nothing() -> None:
    outcome = PodOutcome(node="a", report=PodReport())
    probe = NetworkProbe(server=outcome, client=outcome, image="python")
    names = ok_names(CLUSTER_CHECKS, Seen({facts.NETWORK_PROBE: probe}))
    assert names == {"pod start", "image pull"}  # it ran on a node: that is seen
