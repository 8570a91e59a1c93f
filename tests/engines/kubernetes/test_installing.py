"""What is installed: no more rights than turns need, a pod that the restricted level accepts."""

from __future__ import annotations

import pytest

from longboat.engines.kubernetes import installing
from longboat.engines.kubernetes.installing import CLUSTER, ELECTION, RUNS, objects, served_namespace


def rules(only: str | None) -> list[dict[str, list[str]]]:
    found = objects(image="image", only=only, version="1")
    return [rule for body in found for rule in body.get("rules", ())]


@pytest.mark.parametrize("only", [None, "team"])
def test_no_wildcards_and_no_way_to_list_secrets(only: str | None) -> None:
    for rule in rules(only):
        assert not any("*" in value for values in rule.values() for value in values), rule
        if "secrets" in rule["resources"]:
            assert set(rule["verbs"]) == {"get", "create"}


def test_leases_of_others_cannot_be_changed() -> None:
    """Nodes keep Leases too: who could change those could make a node look dead."""
    for rule in (*RUNS, *CLUSTER, *ELECTION):
        if rule.resource == "leases" and set(rule.verbs) - {"create"}:
            assert rule.names


def test_for_one_namespace_nothing_is_written_elsewhere() -> None:
    found = objects(image="image", only="team", version="1")
    (wide,) = [body for body in found if body["kind"] == "ClusterRole"]
    assert {verb for rule in wide["rules"] for verb in rule["verbs"]} <= {"get", "list"}
    assert {resource for rule in wide["rules"] for resource in rule["resources"]} == {
        "nodes",
        "persistentvolumes",
        "pods",
    }
    (own,) = [body for body in found if body["kind"] == "Role" and body["metadata"]["namespace"] == "team"]
    assert own["rules"] == installing.rules_of(RUNS)


def test_the_deployment_says_what_it_serves() -> None:
    for only in (None, "team"):
        deployment = objects(image="image", only=only, version="1")[-1]
        assert deployment["kind"] == "Deployment" and served_namespace(deployment) == only


def test_what_is_bound_exists() -> None:
    found = objects(image="image", only="team", version="1")
    roles = {(body["kind"], body["metadata"].get("namespace"), body["metadata"]["name"]) for body in found}
    for body in found:
        if body["kind"].endswith("Binding"):
            reference = body["roleRef"]
            place = body["metadata"].get("namespace") if reference["kind"] == "Role" else None
            assert (reference["kind"], place, reference["name"]) in roles
