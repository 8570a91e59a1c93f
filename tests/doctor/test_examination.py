"""Facts are observed side by side within their time; what cannot be seen is a finding, never a hang or a traceback."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from longboat.core.errors import EngineError
from longboat.doctor import catalog
from longboat.doctor.examination import Examination, judge
from longboat.doctor.facts import Fact, Seen
from longboat.doctor.findings import Check, Judgement, ok
from longboat.kubeapi.errors import Forbidden

FAST: Fact[int] = Fact("fast")
SLOW: Fact[int] = Fact("slow", limit_s=0.1)
BAD: Fact[int] = Fact("bad")
CLOSED: Fact[int] = Fact("closed")


def failing(error: Exception) -> Any:
    def observe(_: Examination) -> int:
        raise error

    return observe


def judgements(seen: Seen) -> dict[str, Judgement]:
    checks = [
        Check(fact.name, "api", "", lambda seen, fact=fact: ok(str(seen[fact]))) for fact in (FAST, SLOW, BAD, CLOSED)
    ]
    return {each.name: Judgement(each.status, each.detail, each.hint) for each in judge(checks, seen)}


def test_a_hanging_observer_keeps_nobody_waiting() -> None:
    release = threading.Event()
    message = 'nodes is forbidden: User "a" cannot list resource "nodes" in API group "" at the cluster scope'
    seen = Examination(
        {
            FAST: lambda _: 7,
            SLOW: lambda _: release.wait(),
            BAD: failing(EngineError("no way", hint="another way")),
            CLOSED: failing(Forbidden(message, status=403)),
        }
    ).seen()
    found = judgements(seen)
    release.set()
    assert found["fast"] == Judgement("ok", "7")
    assert found["slow"].status == "broken" and "no answer within" in found["slow"].detail
    assert found["bad"] == Judgement("skipped", "bad: no way", "another way")
    assert found["closed"].status == "skipped" and found["closed"].detail == "no right to list nodes"


def test_groups_are_named_and_other_refusals_told_whole() -> None:
    group = 'x is forbidden: User "a" cannot watch resource "leases" in API group "coordination.k8s.io"'
    seen = Examination(
        {FAST: failing(Forbidden(group, status=403)), BAD: failing(Forbidden("exceeded quota: q", status=403))}
    ).seen()
    assert judgements(seen)["fast"].detail == "no right to watch leases.coordination.k8s.io"
    assert judgements(seen)["bad"].detail == "exceeded quota: q"


def test_an_observer_waits_for_facts_of_another() -> None:
    seen = Examination({SLOW: lambda exam: exam.get(FAST) + 1, FAST: lambda _: 1}).seen()
    assert seen[SLOW] == 2


def test_a_bug_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        Examination({FAST: lambda _: 1 // 0}).seen()


def test_a_fact_that_nobody_looked_at() -> None:
    assert judgements(Seen({}))["fast"].status == "skipped"


def test_the_catalog() -> None:
    assert len(catalog.MACHINE_CHECKS) + len(catalog.CLUSTER_CHECKS) >= 40
    cluster = [check.name for check in catalog.CLUSTER_CHECKS]
    assert len(cluster) == len(set(cluster)) and set(catalog.UNREACHED) <= set(cluster)
