"""What is installed: no more rights than turns need, where it serves only; a pod that the restricted level accepts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from longboat.engines.kubernetes.install import controller_manifests
from longboat.engines.kubernetes.install.controller_manifests import (
    CLUSTER,
    ELECTION,
    HOME,
    RUNS,
    RUNS_ROLE,
    objects,
    served_namespaces,
)
from longboat.engines.kubernetes.install.install import absence
from longboat.kubeapi.leases import CONTROLLER

SCOPES = [None, ["team"], ["one", "two"]]


def rules(only: Sequence[str] | None) -> list[dict[str, list[str]]]:
    found = objects(image="image", only=only, version="1")
    return [rule for body in found for rule in body.get("rules", ())]


@pytest.mark.parametrize("only", SCOPES)
def test_no_wildcards_and_no_way_to_list_secrets(only: list[str] | None) -> None:
    for rule in rules(only):
        assert not any("*" in value for values in rule.values() for value in values), rule
        if "secrets" in rule["resources"]:
            assert set(rule["verbs"]) == {"get", "create"}


def test_leases_of_others_cannot_be_changed() -> None:
    """Nodes keep Leases too: who could change those could make a node look dead."""
    for rule in (*RUNS, *CLUSTER, *ELECTION):
        if rule.resource == "leases" and set(rule.verbs) - {"create"}:
            assert rule.names


def bindings(only: list[str] | None, kind: str) -> dict[str | None, list[str]]:
    """Namespace (None: the cluster) -> roles that the controller has there by bindings of this kind."""
    found: dict[str | None, list[str]] = {}
    for body in objects(image="image", only=only, version="1"):
        if body["kind"] == kind and body["subjects"][0]["name"] == CONTROLLER:
            found.setdefault(body["metadata"].get("namespace"), []).append(body["roleRef"]["name"])
    return found


@pytest.mark.parametrize("only", [["team"], ["one", "two"]])
def test_rights_over_runs_are_bound_in_the_namespaces_that_it_serves(only: list[str]) -> None:
    assert bindings(only, "ClusterRoleBinding") == {None: [CONTROLLER]}
    assert bindings(only, "RoleBinding") == {HOME: [CONTROLLER], **{name: [RUNS_ROLE] for name in only}}
    roles = {
        body["metadata"]["name"]: body["rules"]
        for body in objects(image="image", only=only, version="1")[:-1]
        if body["kind"] == "ClusterRole"
    }
    assert {verb for rule in roles[CONTROLLER] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert {what for rule in roles[CONTROLLER] for what in rule["resources"]} == {"nodes", "persistentvolumes", "pods"}
    assert roles[RUNS_ROLE] == controller_manifests.rules_of(RUNS)


def test_all_namespaces_are_served_only_when_asked() -> None:
    assert bindings(None, "ClusterRoleBinding") == {None: [CONTROLLER, RUNS_ROLE]}
    assert bindings(None, "RoleBinding") == {HOME: [CONTROLLER]}


def test_the_deployment_says_what_it_serves() -> None:
    for only in SCOPES:
        deployment = objects(image="image", only=only, version="1")[-1]
        assert deployment["kind"] == "Deployment"
        assert served_namespaces(deployment) == (None if only is None else tuple(only))


@pytest.mark.parametrize("only", SCOPES)
def test_what_is_bound_exists(only: list[str] | None) -> None:
    found = objects(image="image", only=only, version="1")
    roles = {(body["kind"], body["metadata"].get("namespace"), body["metadata"]["name"]) for body in found}
    for body in found:
        if body["kind"].endswith("Binding"):
            reference = body["roleRef"]
            place = body["metadata"].get("namespace") if reference["kind"] == "Role" else None
            assert (reference["kind"], place, reference["name"]) in roles


def test_why_a_controller_does_not_serve_a_namespace() -> None:
    """What `run -d` says of a run that nobody will look after."""
    deployment = next(
        one for one in objects(image="image", only=("a", "b"), version="1") if one["kind"] == "Deployment"
    )
    deployment["metadata"]["generation"] = 1
    assert "has no controller" in str(absence(None, "a"))
    assert "is not ready" in str(absence(deployment, "a"))
    deployment["status"] = {"observedGeneration": 1, "availableReplicas": 1, "updatedReplicas": 1}
    assert absence(deployment, "a") is None
    found = absence(deployment, "c")
    assert found is not None and "does not serve namespace c" in found[0] and "--only a,b,c" in found[1]
