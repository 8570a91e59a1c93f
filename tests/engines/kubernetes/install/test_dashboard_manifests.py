"""What `install --ui` makes: a reader of some namespaces, which may act as the people that were named alone."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.cli.admin.install import dashboard_of
from longboat.core.errors import UsageError
from longboat.engines.kubernetes.install.controller_manifests import HOME
from longboat.engines.kubernetes.install.dashboard_manifests import DASHBOARD, DashboardSetup, dashboard_objects

URL = "https://lab.example"


def made(**setup: Any) -> list[dict[str, Any]]:
    return dashboard_objects(image="image", setup=DashboardSetup(namespaces=("one", "two"), **setup), version="1")


def words(objects: list[dict[str, Any]]) -> list[str]:
    command: list[str] = objects[-1]["spec"]["template"]["spec"]["containers"][0]["command"]
    return command


def test_by_itself_it_reads_and_changes_nothing() -> None:
    objects = made()
    rules = [rule for each in objects for rule in each.get("rules", ())]
    assert {verb for rule in rules for verb in rule["verbs"]} <= {"get", "list", "watch"}
    resources = {what for rule in rules for what in rule["resources"]}
    assert not resources & {"secrets", "pods/exec", "nodes", "users", "groups", "serviceaccounts"}
    assert "ClusterRoleBinding" not in {each["kind"] for each in objects}
    bindings = [each["metadata"]["namespace"] for each in objects if each["kind"] == "RoleBinding"]
    assert bindings == ["one", "two"]
    assert "--read-only" in words(objects) and "--users-from-proxy" not in words(objects)


def test_it_may_be_those_alone_who_were_named() -> None:
    objects = made(public_url=URL, users=("alice", "bob"), groups=("ml",))
    (role,) = [each for each in objects if each["kind"] == "ClusterRole" and each["metadata"]["name"] != DASHBOARD]
    named = {rule["resources"][0]: (rule["verbs"], rule["resourceNames"]) for rule in role["rules"]}
    assert named == {"users": (["impersonate"], ["alice", "bob"]), "groups": (["impersonate"], ["ml"])}
    assert "--read-only" not in words(objects) and "--users-from-proxy" in words(objects)
    assert words(objects)[-2:] == ["--group", "ml"]


def test_its_token_is_in_a_secret_and_in_no_manifest() -> None:
    objects = made()
    assert "Secret" not in {each["kind"] for each in objects}
    spec = objects[-1]["spec"]["template"]["spec"]
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsUser"], "it may read the token"
    assert {"name": "token", "secret": {"secretName": DASHBOARD, "defaultMode": 0o440}} in spec["volumes"]
    assert spec["serviceAccountName"] == DASHBOARD and objects[-1]["metadata"]["namespace"] == HOME
    container = spec["containers"][0]
    assert container["readinessProbe"]["httpGet"]["path"] == container["livenessProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize(
    ("served", "options", "message"),
    [
        (None, {"ui": True}, "--all-namespaces"),
        (["team"], {"ui": True, "users": ["alice"]}, "--public-url"),
        (["team"], {"ui": True, "groups": ["ml"]}, "--ui-user"),
        (["team"], {"ui": True, "users": ["system:admin"], "public_url": URL}, "system:admin"),
        (["team"], {"ui": True, "users": ["a\nb"], "public_url": URL}, "not the name"),
        (["team"], {"ui": True, "public_url": "http://lab.example"}, "TLS"),
        (["team"], {"users": ["alice"]}, "dashboard"),
    ],
)
def test_what_would_let_in_nobody_or_anybody_is_refused(
    served: list[str] | None, options: dict[str, Any], message: str
) -> None:
    given = {"ui": False, "users": [], "groups": [], "public_url": None, **options}
    with pytest.raises(UsageError, match=message):
        dashboard_of("image", served, **given)
