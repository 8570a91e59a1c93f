"""Slim views: what is missing or null is empty, what is unknown is skipped."""

from __future__ import annotations

import json

import pytest

from longboat.kubeapi.client import Client, read
from longboat.kubeapi.kinds import EVENT, NODE
from longboat.kubeapi.structs import ConfigMap, Event, JobObject, JobSet, NodeObject, PodObject


@pytest.mark.parametrize("view", [PodObject, NodeObject, JobObject, JobSet, ConfigMap, Event])
def test_every_field_is_optional(view: type) -> None:
    assert read(view, b"{}") == view()
    assert read(view, b'{"metadata": {}, "spec": {}, "status": {}}') == view()
    assert read(view, b'{"metadata": {"labels": null}, "spec": null, "status": {"conditions": null}}') == view()


def test_names_are_those_of_kubernetes() -> None:
    state = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "{}"}}
    told = {
        "metadata": {"name": "p", "resourceVersion": "7", "ownerReferences": [{"kind": "Job", "name": "j"}]},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "main", "env": [{"name": "A"}], "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
            "schedulingGates": [{"name": "wait"}],
            "affinity": {"nodeAffinity": {"x": 1}},
        },
        "status": {
            "phase": "Failed",
            "podIP": "10.0.0.1",
            "hostIP": "10.0.0.2",
            "containerStatuses": [{"name": "main", "imageID": "sha256:1", "state": state, "lastState": {}}],
        },
    }
    pod = read(PodObject, json.dumps(told).encode())
    assert (pod.metadata.resource_version, pod.metadata.owner_references[0].name) == ("7", "j")
    assert pod.spec.containers[0].resources.limits == {"nvidia.com/gpu": "8"}
    assert pod.spec.affinity == {"nodeAffinity": {"x": 1}}
    assert (pod.status.pod_ip, pod.status.host_ip) == ("10.0.0.1", "10.0.0.2")
    (status,) = pod.status.container_statuses
    assert status.image_id == "sha256:1"
    assert status.state.terminated is not None
    assert (status.state.terminated.exit_code, status.state.terminated.reason) == (137, "OOMKilled")
    assert read(NodeObject, b'{"spec": {"providerID": "aws:///i-1"}}').spec.provider_id == "aws:///i-1"


@pytest.mark.cluster
def test_real_objects_are_read(client: Client, kwok_nodes: object) -> None:
    names = kwok_nodes("1:h100x8")  # type: ignore[operator]
    node = client.get(NODE, names[0], into=NodeObject)
    assert node.status.allocatable["nvidia.com/gpu"] == "8"
    assert {one.type for one in node.status.conditions} >= {"Ready"}
    told = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": client.namespace},
        "reason": "FailedScheduling",
        "message": "no node fits",
        "type": "Warning",
    }
    client.create(told)
    (event,) = client.list(EVENT, fields="involvedObject.name=p", into=Event).items
    assert (event.reason, event.message, event.involved_object.name) == ("FailedScheduling", "no node fits", "p")
