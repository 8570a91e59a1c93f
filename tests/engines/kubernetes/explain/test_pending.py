"""Why pods are not running, in plain words: pods that really wait, for every reason there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from longboat.engines.kubernetes.explain.containers import StartTrouble
from longboat.engines.kubernetes.explain.pending import PendingFacts, troubles
from longboat.kubeapi import kinds
from longboat.kubeapi.client import Client
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.broken import apply, indexed_job, opened, pod, see, trouble, until


@pytest.mark.cluster
class TestNodes:
    def test_each_node_says_why_not(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
    ) -> None:
        busy = kwok_nodes("2:t4x4")
        (cordoned,) = kwok_nodes("1:t4x4")
        plain = kwok_nodes("1:cpu")
        kubectl("cordon", cordoned)
        gpus = {"limits": {"nvidia.com/gpu": "3"}}
        holders = [pod(f"holder-{name}", resources=gpus, nodeName=name) for name in busy]
        apply(kubectl, *holders, pod("waiter", resources=gpus))
        with opened(cluster, namespace) as client:
            told = trouble(client, "waiter", "no node takes worker-0", "1 free of 4")
        assert f"nodes {', '.join(sorted(busy))}: not enough nvidia.com/gpu (1 free of 4, 3 wanted)" in told.what
        assert f"node {cordoned}: the node is cordoned" in told.what
        assert f"node {plain[0]}: no nvidia.com/gpu there" in told.what

    def test_many_nodes_are_counted_and_not_named(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
    ) -> None:
        kwok_nodes("5:cpu")
        apply(
            kubectl, pod("waiter", nodeSelector={"disk": "fast"}), pod("large", resources={"requests": {"cpu": "64"}})
        )
        with opened(cluster, namespace) as client:
            told = trouble(client, "waiter", "5 nodes: nodeSelector wants disk=fast")
            assert "has no label disk" in told.what
            assert "5 nodes: not enough cpu (32 free of 32, 64 wanted)" in trouble(client, "large", "5 nodes").what

    def test_taints(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
    ) -> None:
        (node,) = kwok_nodes("1:cpu")
        kubectl("taint", "node", node, "team=vision:NoSchedule")
        apply(kubectl, pod("waiter"))
        with opened(cluster, namespace) as client:
            assert "taint team=vision:NoSchedule is not tolerated" in trouble(client, "waiter", "taint").what

    def test_without_nodes_the_scheduler_is_quoted_in_words(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
    ) -> None:
        kwok_nodes("2:cpu")
        (tainted,) = kwok_nodes("1:cpu")
        kubectl("taint", "node", tainted, "team=vision:NoSchedule")
        apply(kubectl, pod("waiter", resources={"requests": {"cpu": "64"}}))
        with opened(cluster, namespace) as client:

            def told() -> str | None:
                sight = see(client, "waiter")
                found = troubles(PendingFacts(pods=sight.pods, events=sight.events, nodes_wanted=1))
                words = found[0].what if found else ""
                return words if "CPU" in words or "cpu" in words else None

            words = until("the scheduler has spoken", told)
        assert "2 nodes: not enough cpu" in words
        assert "1 node: a taint there is not tolerated" in words and "preemption" not in words

    def test_a_gang_at_the_gate(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
    ) -> None:
        """Its pods do not exist; its Jobs tell what they would ask for."""
        (node,) = kwok_nodes("1:t4x4")
        apply(kubectl, indexed_job("gang", nodes=2, suspend=True, resources={"limits": {"nvidia.com/gpu": "8"}}))
        with opened(cluster, namespace) as client:
            told = trouble(client, "gang", "no node takes the run", nodes=2, is_gated=True)
        assert f"node {node}: not enough nvidia.com/gpu (4 free of 4, 8 wanted)" in told.what

    def test_an_autoscaler_s_words(
        self, cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
    ) -> None:
        kwok_nodes("1:cpu")
        apply(kubectl, pod("waiter", resources={"requests": {"cpu": "64"}}))
        messages = {
            ("cluster-autoscaler", "TriggeredScaleUp"): "pod triggered scale-up: [{big 1->2 (max: 5)}]",
            ("cluster-autoscaler", "NotTriggerScaleUp"): "pod didn't trigger scale-up: 2 Insufficient cpu, "
            "1 max node group size reached",
            ("karpenter", "FailedScheduling"): "Failed to schedule pod, incompatible with nodepool gpu",
        }
        with opened(cluster, namespace) as client:
            uid = client.get(kinds.POD, "waiter")["metadata"]["uid"]
            about = {"kind": "Pod", "name": "waiter", "namespace": namespace, "uid": uid, "apiVersion": "v1"}
            for number, ((component, kind), message) in enumerate(messages.items()):
                event = {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": f"e{number}", "namespace": namespace},
                }
                said = {"involvedObject": about, "reason": kind, "message": message, "source": {"component": component}}
                client.create({**event, **said, "type": "Normal"})
            trouble(client, "waiter", "the autoscaler adds nodes: big from 1 to 2 (at most 5)")
            trouble(client, "waiter", "adds no node: 2 pools not enough cpu, 1 pool at its maximum size")
            trouble(client, "waiter", "karpenter adds no node: Failed to schedule pod")


@pytest.mark.cluster
class TestAdmission:
    """Jobs whose pods the API server does not let in."""

    def test_quota(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        kubectl("create", "quota", "small", "--hard=pods=1")
        apply(kubectl, indexed_job("pair", nodes=2))
        with opened(cluster, namespace) as client:
            told = trouble(client, "pair", "quota small does not allow it", nodes=2)
        assert "asked pods=1, used pods=1, allowed pods=1" in told.what and not told.is_final

    def test_a_quota_that_wants_everything_stated(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        kubectl("create", "quota", "strict", "--hard=requests.cpu=4,limits.memory=4Gi")
        apply(kubectl, indexed_job("vague"))
        with opened(cluster, namespace) as client:
            told = trouble(client, "vague", "quota strict lets only pods in that state")
        assert "`cpus`" in (told.hint or "") and "`memory`" in (told.hint or "")

    def test_limit_range(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        spec = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
        apply(kubectl, {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "sizes"}, "spec": spec})
        sizes = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
        apply(kubectl, indexed_job("large", resources=sizes))
        with opened(cluster, namespace) as client:
            told = trouble(client, "large", "a LimitRange of the namespace does not allow it")
        assert "maximum cpu usage per Container is 1" in told.what and told.is_final

    def test_pod_security(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
        apply(kubectl, indexed_job("rooted"))
        with opened(cluster, namespace) as client:
            told = trouble(client, "rooted", "Pod Security level restricted does not allow")
        assert "runAsNonRoot" in told.what and told.is_final

    def test_a_policy_refuses(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        group, name = "admissionregistration.k8s.io/v1", namespace
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "no pods on Sundays"}],
        }
        only = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": only}
        apply(
            kubectl,
            {"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
            {
                "apiVersion": group,
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": name},
                "spec": binding,
            },
        )
        try:
            with opened(cluster, namespace) as client:

                def told() -> StartTrouble | None:
                    # The policy holds some moments after it was made: pods of earlier Jobs may slip through.
                    run = f"on-sunday-{told_times.append(1) or len(told_times)}"
                    apply(kubectl, indexed_job(run))
                    found = until(
                        f"{run} has pods or says why not", lambda: troubles(see(client, run)) or see(client, run).pods
                    )
                    return next(
                        (one for one in found if isinstance(one, StartTrouble) and "admission policy" in one.what), None
                    )

                told_times: list[int] = []
                refused = until("the policy refuses a pod", told)
            assert refused.what == f"admission policy {name} refuses it: no pods on Sundays" and refused.is_final
        finally:
            kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", name)

    def test_a_webhook_that_does_not_answer(self, cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        hook = {
            "name": "gone.example.org",
            "clientConfig": {"url": "https://127.0.0.1:1/pods"},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 2,
        }
        kind = "ValidatingWebhookConfiguration"
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": namespace}}
        apply(kubectl, {**body, "webhooks": [hook]})
        try:
            with opened(cluster, namespace) as client:
                until("the webhook is in force", lambda: "webhook" in refusal(kubectl, pod("probe")))
                apply(kubectl, indexed_job("hooked"))
                told = trouble(client, "hooked", "admission webhook gone.example.org does not answer")
            assert not told.is_final
        finally:
            kubectl("delete", kind.lower(), namespace)


def refusal(kubectl: Kubectl, body: dict[str, Any]) -> str:
    """What the server says to a pod that is only tried."""
    import json
    import subprocess

    command = kubectl.command("create", "--dry-run=server", "-f", "-")
    return subprocess.run(command, input=json.dumps(body), capture_output=True, text=True, check=False).stderr


@pytest.mark.cluster
def test_claims_that_are_not_bound(
    cluster: Cluster, namespace: str, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
) -> None:
    kwok_nodes("1:cpu")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name, storage_class in (("nobody", ""), ("unknown", "no-such-class")):
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        apply(
            kubectl,
            {**body, "spec": {**spec, "storageClassName": storage_class}},
            pod(f"with-{name}", volumes=[volume]),
        )
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
    apply(kubectl, pod("with-missing", volumes=[volume]))
    with opened(cluster, namespace) as client:
        trouble(client, "with-nobody", "claim nobody is not bound: no persistent volumes available")
        trouble(
            client,
            "with-unknown",
            "claim unknown is not bound",
            'storageclass.storage.k8s.io "no-such-class" not found',
        )
        trouble(client, "with-missing", "there is no claim missing")


@pytest.mark.pods("controllers")
def test_what_the_queue_says(cluster: Cluster, namespace: str, kubectl: Kubectl) -> None:
    from testbed import kueue

    apply(kubectl, *kueue.queue(namespace, namespace, {"cpu": "1"}))
    try:
        sizes = {"requests": {"cpu": "1"}}
        sleep = ["python3", "-c", "import time; time.sleep(600)"]
        for name in ("first", "second", "third"):
            body = indexed_job(name, suspend=True, command=sleep, resources=sizes)
            body["metadata"]["labels"][kueue.QUEUE_LABEL] = namespace
            apply(kubectl, body)
            with opened(cluster, namespace) as client:
                until(f"{name} is in the queue", lambda: len(client.list(kinds.WORKLOAD).items) == len(names(client)))
        with opened(cluster, namespace) as client:

            def told(run: str, *words: str) -> StartTrouble:
                return trouble(client, run, *words, is_gated=True, workloads=tuple(client.list(kinds.WORKLOAD).items))

            until(
                "the first runs",
                lambda: client.find(kinds.JOB, "first") and not client.get(kinds.JOB, "first")["spec"]["suspend"],
            )
            told("second", f"waits for 1 CPU (0 free) in queue {namespace}", "first")
            told("third", f"in queue {namespace}", "1 run before it")
    finally:
        kubectl("delete", "jobs", "--all", "--wait=false")
        kubectl("delete", "localqueue", namespace)
        kubectl("delete", "clusterqueue,resourceflavor", namespace, "--wait=false")


def names(client: Client) -> list[str]:
    return [str(one["metadata"]["name"]) for one in client.list(kinds.JOB).items]
