"""The kubeconfig, the login and clocks, as facts of broken ones."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.doctor.facts import API, CLIENT, CLUSTER
from longboat.doctor.values import ApiAnswer, ClientFacts, Validity
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS
from tests.doctor.checks.judging import judged, status

NOW = 1_700_000_000.0
DAY = 86400.0


def client(**more: Any) -> dict[Any, Any]:
    return {CLIENT: ClientFacts(context="lab", namespace="team", server="https://lab:6443", now=NOW, **more)}


def test_kubeconfigs() -> None:
    assert status("kubeconfig", client(files=(("/home/a/.kube/config", 0o600),))) == "ok"
    assert status("kubeconfig", client(skips_verification=True)) == "warning"
    assert status("kubeconfig mode", client(files=(("config", 0o600),))) == "ok"
    open_file = judged("kubeconfig mode", client(files=(("config", 0o644),)))
    assert open_file.status == "warning" and open_file.hint == "chmod 600 config" and open_file.fix
    shared = judged("kubeconfig mode", client(files=(("config", 0o640),)))
    assert shared.status == "warning" and shared.hint == "chmod 600 config, unless its group shares it"


@pytest.mark.parametrize(
    ("facts", "wanted", "words"),
    [
        ({"plugin": "aws-login"}, "broken", "aws-login, is not on PATH"),
        ({"plugin": "aws-login", "plugin_path": "/bin/aws-login", "login": "exec"}, "ok", "/bin/aws-login"),
        ({"certificate": Validity(begins=0, ends=NOW - DAY)}, "broken", "ended 1d ago"),
        ({"certificate": Validity(begins=0, ends=NOW + 3 * DAY)}, "warning", "ends in 3d"),
        ({"certificate": Validity(begins=NOW + DAY, ends=NOW + 300 * DAY)}, "broken", "valid only in 1d"),
        ({"certificate": Validity(begins=0, ends=NOW + 300 * DAY)}, "ok", "valid for 300d"),
        ({"token_ends": NOW - 60}, "broken", "your token ended 1m ago"),
        ({"token_ends": NOW + 60}, "warning", "ends in 1m"),
        ({"token_ends": NOW + DAY}, "ok", "valid for 1d"),
        ({"login": "token"}, "ok", "without an end"),
        ({"login": "token", "is_token_unread": True}, "skipped", "your token could not be read"),
        ({"login": "certificate"}, "skipped", "your certificate could not be read"),
        ({}, "skipped", "neither certificate"),
    ],
)
def test_logins(facts: dict[str, Any], wanted: str, words: str) -> None:
    finding = judged("credentials", client(**facts))
    assert finding.status == wanted and words in finding.detail


@pytest.mark.parametrize(("skew_s", "wanted"), [(0.0, "ok"), (-4.0, "ok"), (20.0, "warning"), (-300.0, "broken")])
def test_clocks(skew_s: float, wanted: str) -> None:
    finding = judged("clock", {API: ApiAnswer(server="s", context="c", took_s=0.1, skew_s=skew_s)})
    assert finding.status == wanted
    if skew_s == -300.0:
        assert "300 s ahead of the API server's" in finding.detail


def test_rights() -> None:
    needed = next(each for each in PERMISSIONS if each.need == "always")
    nice = next(each for each in PERMISSIONS if each.need == "optional")
    for denied, wanted in (((), "ok"), ((nice,), "warning"), ((nice, needed), "broken")):
        finding = judged("permissions", {CLUSTER: ClusterFacts(namespace="team", knows_rights=True, denied=denied)})
        assert finding.status == wanted
    assert "a role in namespace team with" in (finding.hint or "")
    assert status("permissions", {CLUSTER: ClusterFacts(namespace="team")}) == "skipped"


def test_accounts_of_pods() -> None:
    def facts(**more: Any) -> dict[Any, Any]:
        return {CLUSTER: ClusterFacts(namespace="team", **more)}

    assert status("service account", facts()) == "skipped"
    assert status("service account", facts(has_service_account=False)) == "broken"
    lost = facts(has_service_account=True, pull_secrets=("a", "b"), lost_secrets=("b",))
    assert judged("service account", lost).detail.endswith(": b")
    assert status("service account", facts(has_service_account=True, pull_secrets=("a",))) == "ok"
