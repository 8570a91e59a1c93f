"""Whether what an add-on deployed works, of what the cluster says of it."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.clusters.addons.observe import addon_statuses, condition_fault, is_spread, labelled_objects, pod_labels
from longboat.clusters.spec import ADDON_LABEL
from longboat.kubeapi.client import ObjectList
from longboat.kubeapi.kinds import (
    API_SERVICE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    DEPLOYMENT,
    MUTATING_WEBHOOKS,
    NAMESPACE,
    Kind,
)


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ([], "not Available"),
        ([{"type": "Other", "status": "True"}], "not Available"),
        ([{"type": "Available", "status": "True", "message": "all checks passed"}], ""),
        ([{"type": "Available", "status": "False", "message": "no endpoints"}], "not Available: no endpoints"),
        ([{"type": "Available", "status": "Unknown", "reason": "Waiting"}], "not Available: Waiting"),
    ],
)
def test_conditions(conditions: list[dict[str, str]], reason: str) -> None:
    assert condition_fault({"status": {"conditions": conditions}}, "Available") == reason


def test_an_object_without_a_status_does_not_work_yet() -> None:
    assert condition_fault({}, "Established") == "not Established"
    assert not is_spread({"metadata": {"generation": 1}})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"numberAvailable": 1}, False),
        ({"updatedNumberScheduled": 1}, False),
        ({"observedGeneration": 1}, False),
        ({"desiredNumberScheduled": 0, "numberAvailable": 0, "updatedNumberScheduled": 0}, True),
    ],
)
def test_a_daemon_set_is_ready_on_every_node(changes: dict[str, Any], expected: bool) -> None:
    status = {"observedGeneration": 2, "desiredNumberScheduled": 2, "numberAvailable": 2, "updatedNumberScheduled": 2}
    assert is_spread({"metadata": {"generation": 2}, "status": {**status, **changes}}) is expected


class ListedCluster:
    """An API server that only lists."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.bodies = bodies

    def list(self, kind: Kind, **_: Any) -> ObjectList[dict[str, Any]]:
        return ObjectList([body for body in self.bodies if body["kind"] == kind.kind], "1")


def placed(kind: Kind, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    meta = {"name": name, "uid": "u", "labels": {ADDON_LABEL: "kueue"}} | (
        {"namespace": namespace} if namespace else {}
    )
    return {"kind": kind.kind, "metadata": meta, **fields}


def test_labels_in_a_namespace_of_somebody_else_make_nothing_ours() -> None:
    """Nor do they break `status` and `down`."""
    stranger = placed(DEPLOYMENT, "x", "team", spec={"selector": {"matchExpressions": []}})
    client: Any = ListedCluster(stranger, placed(CONFIG_MAP, "y", "team"))
    assert labelled_objects(client) == [] and addon_statuses(client) == []


def test_namespaces_of_an_add_on_are_those_that_administrators_made_for_it() -> None:
    hook = {"clientConfig": {"service": {"namespace": "hooks", "name": "x"}}}
    client: Any = ListedCluster(
        placed(NAMESPACE, "queues"),
        placed(CLUSTER_ROLE_BINDING, "b", subjects=[{"kind": "ServiceAccount", "name": "a", "namespace": "accounts"}]),
        placed(MUTATING_WEBHOOKS, "w", webhooks=[hook, {"clientConfig": {"url": "https://x"}}]),
        placed(API_SERVICE, "s", spec={"service": {"namespace": "served"}}),
        *(placed(CONFIG_MAP, "c", space) for space in ("queues", "accounts", "hooks", "served", "kube-system", "team")),
    )
    spaces = [body["metadata"]["namespace"] for body in labelled_objects(client) if body["kind"] == CONFIG_MAP.kind]
    assert spaces == ["queues", "accounts", "hooks", "served", "kube-system"]


def test_a_workload_without_match_labels_is_no_crash() -> None:
    assert pod_labels(placed(DEPLOYMENT, "x", "team", spec={"selector": {"matchExpressions": []}})) == ""
    assert pod_labels(placed(DEPLOYMENT, "x", "team", spec={"selector": {"matchLabels": {"a": "b"}}})) == "a=b"
