"""The NetworkPolicy of a run: whom it selects, who gets one, and that the API server takes it.

The test cluster's network enforces no policies: what is tested is the object, not the enforcement.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.explain.network_policies import blocking_policies
from longboat.engines.kubernetes.manifests import objects as manifests
from longboat.engines.kubernetes.manifests.dropped_fields import dropped_fields
from longboat.engines.kubernetes.manifests.network_policy import network_policy
from longboat.engines.kubernetes.manifests.objects import AttemptStart
from longboat.engines.kubernetes.settings import read_settings, write_setting
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS, role_for
from longboat.fitting.model.selectors import matches_labels, term_of_pods
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import NETWORK_POLICY, POD
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.broken import user_config
from tests.engines.kubernetes.manifest_samples import job, record, role

START = AttemptStart(token="secret", suspended=False)
SERVED = {"networking.k8s.io": ("v1",)}


def pod_templates(name: str, attempt: int = 0) -> list[dict[str, Any]]:
    what = record(job(role("worker", nodes=2), role("ps"), name=name))
    objects = manifests.attempt_objects(what, attempt, START)
    return [each["spec"]["template"] for each in objects if each["kind"] == "Job"]


def test_it_selects_every_pod_of_the_run_and_of_no_other() -> None:
    spec = network_policy(record(job(name="train")))["spec"]
    (rule,) = spec["ingress"]
    for selector in (spec["podSelector"], rule["from"][0]["podSelector"]):
        term = term_of_pods(selector)
        for attempt in (0, 3):
            assert all(matches_labels(term, each["metadata"]["labels"]) for each in pod_templates("train", attempt))
        for other in ("train-2", "tra", "other"):
            assert not any(matches_labels(term, each["metadata"]["labels"]) for each in pod_templates(other))
    assert spec["policyTypes"] == ["Ingress"] and "ports" not in rule


def test_labels_of_a_job_cannot_make_its_pods_members_of_another_run() -> None:
    what = record(job(name="mine", labels={names.RUN: "theirs"}))
    labels = manifests.attempt_objects(what, 0, START)[-1]["spec"]["template"]["metadata"]["labels"]
    assert labels[names.RUN] == "mine"


def test_it_is_one_of_the_runs_objects_and_has_its_owner() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "train", "uid": "u"}
    made = manifests.run_objects(record(network_policy=True), {}, owner=owner)
    (policy,) = [each for each in made if each["kind"] == "NetworkPolicy"]
    assert policy["metadata"]["ownerReferences"] == [owner]
    assert policy["metadata"]["labels"][names.RUN] == "train"
    assert not [each for each in manifests.run_objects(record(), {}) if each["kind"] == "NetworkPolicy"]


def test_our_network_policy_is_never_named_as_blocking() -> None:
    """Alone it is in nobody's way; beside a policy that lets nothing in, it is what lets the nodes meet."""
    own, labels = network_policy(record()), {names.RUN: "train"}
    closed = {"metadata": {"name": "closed"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}
    assert blocking_policies([own], labels, {}) == []
    assert [each.policies for each in blocking_policies([closed], labels, {})] == [("closed",)]
    assert blocking_policies([own, closed], labels, {}) == []
    other = network_policy(record(job(name="other")))
    assert blocking_policies([other], labels, {}) == []


def test_without_permission_no_network_policy_is_made() -> None:
    right = next(one for one in PERMISSIONS if str(one) == "create networkpolicies.networking.k8s.io")
    assert ClusterFacts(namespace="n", groups=SERVED).can_isolate
    assert not ClusterFacts(namespace="n", groups=SERVED, denied=(right,)).can_isolate
    assert not ClusterFacts(namespace="n").can_isolate


def test_network_policies_can_be_switched_off_by_setting(tmp_path: Path) -> None:
    environment = {"LONGBOAT_HOME": str(tmp_path)}
    assert read_settings(environment).cluster().network_policy is True
    write_setting(environment, "contexts.lab.network_policy", "false")
    assert read_settings(environment).cluster("lab").network_policy is False
    assert read_settings(environment).cluster("other").network_policy is True


@pytest.mark.cluster
def test_the_server_takes_it_whole_and_finds_the_same_pods(client: Client, namespace: str) -> None:
    what = record(job(name="train"), namespace=namespace, network_policy=True)
    (body,) = [each for each in manifests.run_objects(what, {}) if each["kind"] == "NetworkPolicy"]
    assert dropped_fields(body, client.create(body)) == []
    for run in ("train", "train-2"):
        for number, template in enumerate(pod_templates(run)):
            labels = template["metadata"]["labels"]
            container = {"name": "c", "image": "longboat.test/python:latest"}
            spec = {"containers": [container], "schedulerName": "nobody", "automountServiceAccountToken": False}
            metadata = {"name": f"{run}-{number}", "namespace": namespace, "labels": labels}
            client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    kept = client.get(NETWORK_POLICY, body["metadata"]["name"])["spec"]
    pairs = list(kept["podSelector"]["matchLabels"].items())
    found = {each["metadata"]["name"] for each in client.list(POD, labels=names.selector(pairs)).items}
    assert found == {"train-0", "train-1"}


@pytest.mark.pods
def test_runs_have_one_unless_it_is_off_and_it_goes_with_them(bench: Bench) -> None:
    def policies() -> list[str]:
        return [each["metadata"]["name"] for each in bench.engine.client.list(NETWORK_POLICY).items]

    run = bench.engine.submit(bench.submission("print(1)", nodes=2))
    assert policies() == [f"{run.name}-{run.uid[:8]}"]
    assert bench.engine.wait(run.name, timeout_s=120).phase == "succeeded"
    bench.engine.delete(run.name)
    assert policies() == []
    write_setting(bench.environment, "kubernetes.network_policy", "false")
    bench.engine.close()
    bench.engine = bench.open()
    run = bench.engine.submit(bench.submission("print(1)"))
    assert policies() == []
    assert bench.engine.wait(run.name, timeout_s=120).phase == "succeeded"


@pytest.mark.pods
def test_without_the_right_to_create_one_the_run_goes_on_and_says_so(
    cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    given = [one for one in PERMISSIONS if one.resource != NETWORK_POLICY.plural]
    rules: Any = role_for(given, namespace=namespace)["rules"]
    config = user_config(cluster, kubectl, namespace, tmp_path, rules)
    bench = Bench(cluster, namespace, tmp_path / "limited", kubeconfig=config)
    try:
        run = bench.engine.submit(bench.submission("print(1)"))
        assert bench.engine.wait(run.name, timeout_s=120).phase == "succeeded"
        assert [text for text in bench.notices if "networkpolicies" in text and "keeping other pods away" in text]
        bench.engine.delete(run.name)
    finally:
        bench.close()
