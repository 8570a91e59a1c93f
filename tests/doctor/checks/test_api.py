"""The API server, the namespace and admission, as facts of broken ones."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.doctor.facts import API, CLUSTER, READY, SIGNINGS, WEBHOOKS
from longboat.doctor.values import AdmissionWebhook, ApiAnswer, Validity
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.surroundings import Quota
from tests.doctor.checks.judging import judged, status

NOW = 1_700_000_000.0
DAY = 86400.0


def answer(**more: Any) -> dict[Any, Any]:
    return {API: ApiAnswer(**{"server": "https://lab", "context": "lab", "took_s": 0.01, "now": NOW, **more})}


def cluster(**more: Any) -> dict[Any, Any]:
    return {CLUSTER: ClusterFacts(namespace="team", **more)}


def test_a_server() -> None:
    assert judged("api", answer()).detail == "https://lab (context lab), answers in 10 ms"
    assert status("api", answer(took_s=3.0)) == "warning"
    assert status("api health", {READY: ()}) == "ok"
    assert "etcd" in judged("api health", {READY: ("etcd",)}).detail
    assert status("api health", {READY: ("etcd",)}) == "broken"


@pytest.mark.parametrize(
    ("ends", "wanted"), [(NOW - 1, "broken"), (NOW + DAY, "warning"), (NOW + 90 * DAY, "ok"), (None, "skipped")]
)
def test_its_certificate(ends: float | None, wanted: str) -> None:
    validity = None if ends is None else Validity(begins=0.0, ends=ends)
    assert status("api certificate", answer(certificate=validity)) == wanted


def test_versions_and_namespaces() -> None:
    assert status("version", cluster(version="v1.36.4")) == "ok"
    assert status("version", cluster(version="v1.24.1-eks")) == "warning"
    assert status("version", cluster(version="")) == "skipped"
    assert status("namespace", cluster(has_namespace=True)) == "ok"
    assert status("namespace", cluster()) == "skipped"
    assert judged("namespace", cluster(has_namespace=False)).hint == "kubectl create namespace team"
    assert status("namespace", cluster(has_namespace=True, is_terminating=True)) == "broken"


def test_quotas() -> None:
    def quota(**used: str) -> dict[Any, Any]:
        hard = {"requests.cpu": "10", "requests.nvidia.com/gpu": "8"}
        return cluster(
            quotas=(Quota(name="team", hard=hard, used={key.replace("__", "."): used[key] for key in used}),)
        )

    assert status("quota", cluster()) == "skipped"
    assert status("quota", cluster(quotas=())) == "ok"
    assert status("quota", quota(requests__cpu="5")) == "ok"
    assert status("quota", quota(requests__cpu="9500m")) == "warning"


def test_webhooks() -> None:
    def hooks(*hooks: AdmissionWebhook) -> dict[Any, Any]:
        return {WEBHOOKS: list(hooks)}

    hook = AdmissionWebhook(name="policy", kind="ValidatingWebhookConfiguration", service="sys/policy", ready=0)
    assert status("webhooks", hooks()) == "ok"
    assert judged("webhooks", hooks(hook)).status == "broken"
    import msgspec

    assert status("webhooks", hooks(msgspec.structs.replace(hook, is_required=False))) == "warning"
    assert status("webhooks", hooks(msgspec.structs.replace(hook, ready=2))) == "ok"
    assert status("webhooks", hooks(msgspec.structs.replace(hook, ready=None))) == "skipped"
    assert status("webhooks", hooks(msgspec.structs.replace(hook, service=""))) == "ok"


def test_certificate_requests() -> None:
    request = {"metadata": {"name": "csr-1"}, "status": {}}
    approved = {"metadata": {"name": "csr-2"}, "status": {"conditions": [{"type": "Approved"}]}}
    assert "csr-1" in (judged("certificate requests", {SIGNINGS: [request]}).hint or "")
    assert status("certificate requests", {SIGNINGS: [approved]}) == "ok"
