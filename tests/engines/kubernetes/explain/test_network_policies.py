"""NetworkPolicies as data: which keep the nodes of a run from each other."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.engines.kubernetes.explain.network_policies import blocking_policies

LABELS = {"longboat.dev/run": "r"}
NAMESPACE = {"metadata": {"labels": {"kubernetes.io/metadata.name": "team"}}}
EVERYBODY: dict[str, Any] = {"podSelector": {}}
BLOCKING = [
    ("deny all", {**EVERYBODY, "policyTypes": ["Ingress", "Egress"]}, ["ingress", "egress to the other", "DNS"]),
    (
        "ingress of others",
        {**EVERYBODY, "ingress": [{"from": [{"podSelector": {"matchLabels": {"a": "b"}}}]}]},
        ["ingress"],
    ),
    ("other ports", {**EVERYBODY, "ingress": [{"ports": [{"port": 80}]}]}, ["TCP 29499, 29500"]),
    ("one port", {**EVERYBODY, "ingress": [{"ports": [{"port": 29500}]}]}, ["(TCP 29499)"]),
    (
        "other namespaces",
        {**EVERYBODY, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"x": "y"}}}]}]},
        ["ingress"],
    ),
    (
        "no dns",
        {**EVERYBODY, "policyTypes": ["Egress"], "egress": [{"ports": [{"port": 1024, "endPort": 65535}]}]},
        ["DNS"],
    ),
    ("allow all", {**EVERYBODY, "ingress": [{}]}, []),
    ("allow the run", {**EVERYBODY, "ingress": [{"from": [{"podSelector": {"matchLabels": LABELS}}]}]}, []),
    (
        "allow the namespace",
        {**EVERYBODY, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": NAMESPACE["metadata"]["labels"]}}]}]},
        [],
    ),
    ("others' pods", {"podSelector": {"matchLabels": {"a": "b"}}}, []),
]


@pytest.mark.parametrize(("spec", "words"), [row[1:] for row in BLOCKING], ids=[row[0] for row in BLOCKING])
def test_policies_that_keep_nodes_from_each_other(spec: dict[str, Any], words: list[str]) -> None:
    found = blocking_policies([{"metadata": {"name": "p"}, "spec": spec}], LABELS, NAMESPACE)
    assert len(found) == len(words)
    for one, word in zip(found, words):
        assert word in one.what and one.policies == ("p",)


def test_one_policy_may_open_what_another_closes() -> None:
    closed = {"metadata": {"name": "closed"}, "spec": EVERYBODY}
    opening = {"metadata": {"name": "open"}, "spec": {**EVERYBODY, "ingress": [{}]}}
    assert blocking_policies([closed, opening], LABELS, NAMESPACE) == []
    assert blocking_policies([closed], LABELS, NAMESPACE)[0].policies == ("closed",)
