"""What is installed of the autoscaler: the documented rights and no others, the pools file, a restricted pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from longboat.engines.kubernetes.install.autoscaler_manifests import (
    AUTOSCALER,
    CLUSTER,
    KWOK_CLUSTER,
    KWOK_LEASES,
    KWOK_OWN,
    OWN,
    POOLS,
    STATUS,
    autoscaler_objects,
)
from longboat.engines.kubernetes.install.controller_manifests import HOME

DOCS = Path(__file__).resolve().parents[4] / "docs" / "autoscaler.md"


def made(simulates: bool = False, pools: str = "pools: []\n") -> list[dict[str, Any]]:
    return autoscaler_objects(image="image", pools=pools, version="1", simulates=simulates)


def rights(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_rights_are_those_that_the_documentation_names() -> None:
    text = next(block for block in DOCS.read_text().split("```yaml\n") if "kind: ClusterRole" in block)
    documented = rights(yaml.safe_load(text.partition("```")[0])["rules"])
    assert documented == {(rule.group, rule.resource, verb) for rule in (*CLUSTER, *OWN) for verb in rule.verbs}


@pytest.mark.parametrize("simulates", [True, False])
def test_no_wildcards_no_secrets_and_nothing_of_others_is_written(simulates: bool) -> None:
    for body in made(simulates):
        for rule in body.get("rules", ()):
            assert not any("*" in value for values in rule.values() for value in values), rule
            assert "secrets" not in rule["resources"]
            if body["kind"] == "ClusterRole" and set(rule["resources"]) & {"configmaps", "leases"}:
                assert rule["verbs"] == ["get"]
    for rule in (*OWN, *KWOK_OWN):
        if set(rule.verbs) & {"update", "patch", "delete"}:
            assert rule.names


def test_only_who_simulates_may_make_nodes() -> None:
    assert ("", "nodes", "create") not in {key for body in made() for key in rights(body.get("rules", []))}
    (wide,) = [body for body in made(True) if body["kind"] == "ClusterRole"]
    assert ("", "nodes", "create") in rights(wide["rules"])
    assert {body["metadata"].get("namespace", HOME) for body in made()} == {HOME}
    assert KWOK_CLUSTER and KWOK_LEASES


def test_what_is_bound_exists_and_is_bound_to_its_own_account() -> None:
    found = made(True)
    there = {(body["kind"], body["metadata"].get("namespace"), body["metadata"]["name"]) for body in found}
    for body in found:
        if body["kind"].endswith("Binding"):
            reference = body["roleRef"]
            place = body["metadata"].get("namespace") if reference["kind"] == "Role" else None
            assert (reference["kind"], place, reference["name"]) in there
            (subject,) = body["subjects"]
            if subject["kind"] == "Group":
                assert body["metadata"]["name"] == f"{AUTOSCALER}-seen"
            else:
                assert (subject["name"], subject["namespace"]) == (AUTOSCALER, HOME)


def test_everybody_may_see_the_status_and_nothing_else() -> None:
    (seen,) = [body for body in made() if body["metadata"]["name"] == f"{AUTOSCALER}-seen" and body["kind"] == "Role"]
    (rule,) = seen["rules"]
    assert (rule["resources"], rule["verbs"], rule["resourceNames"]) == (["configmaps"], ["get"], [STATUS])


def test_another_pools_file_is_another_pod() -> None:
    (file,) = [body for body in made(pools="pools: [1]\n") if body["kind"] == "ConfigMap"]
    assert file["metadata"]["name"] == POOLS and file["data"] == {"pools.yaml": "pools: [1]\n"}
    marks = [made(pools=text)[-1]["spec"]["template"]["metadata"]["annotations"] for text in ("a", "a", "b")]
    assert marks[0] == marks[1] != marks[2]


def test_the_pod_is_restricted_and_reads_its_pools() -> None:
    deployment = made()[-1]
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    words = container["command"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert words[:3] == ["longboat", "autoscaler", "run"]
    assert str(Path(words[words.index("--pools") + 1]).parent) in mounts
    assert words[words.index("--home") + 1] == HOME
