"""What `explain` and `plan -o json` say about pools that are not asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longboat.autoscaler.decide.decide import decide
from longboat.autoscaler.decide.explain import explain
from longboat.autoscaler.report.plan_json import plain_plan
from tests.autoscaler.tables import NOW, make

TABLE: dict[str, Any] = {
    "pools": {"a100": {"zones": ["a", "b"]}, "spot": {}},
    "failures": [
        {"pool": "a100", "zone": "a", "ago": "1m", "count": 2},
        {"pool": "spot", "kind": "auth", "ago": "9d", "message": "AccessDenied"},
    ],
    "orders": [{"pool": "a100", "machine": "m1", "ago": "1m", "zone": "b"}],
}


def facts(name: str, folder: Path) -> list[str]:
    snapshot, settings = make(TABLE, folder)
    found = explain(name, decide(snapshot, settings, NOW), snapshot, settings, NOW)
    assert found is not None and found.kind == "pool"
    return [found.headline, *found.facts]


def test_a_zone_in_back_off_and_an_order_are_told_of(tmp_path: Path) -> None:
    head, *rest = facts("a100", tmp_path)
    assert "zone a: stockout, not asked again before 2026-11-15T12:29:00Z" in head
    assert "in zone a, asked again at 2026-11-15T12:29:00Z (in 29m; stockout, 2 in a row)" in rest
    assert "1 ordered and not joined yet" in rest


def test_a_pool_that_is_off_says_what_would_change_that(tmp_path: Path) -> None:
    head, *rest = facts("spot", tmp_path)
    assert "does not grow: off because of auth (AccessDenied)" in head
    assert any(text.startswith("not asked (auth): ") and "longboat autoscaler retry spot" in text for text in rest)


def test_the_plan_as_data_has_them_too(tmp_path: Path) -> None:
    snapshot, settings = make(TABLE, tmp_path)
    pools = {one["pool"]: one for one in plain_plan(decide(snapshot, settings, NOW))["pools"]}
    (stockout,) = pools["a100"]["backoffs"]
    assert {**stockout, "reason": ""} == {
        "kind": "stockout",
        "zone": "a",
        "count": 2,
        "until": "2026-11-15T12:29:00Z",
        "reason": "",
    }
    (auth,) = pools["spot"]["backoffs"]
    assert auth["kind"] == "auth" and "until" not in auth and "blocked_until" not in pools["spot"]
    assert pools["a100"]["ordered"] == 1


def test_a_pod_whose_do_not_disrupt_is_over_may_be_moved(tmp_path: Path) -> None:
    annotation = {"karpenter.sh/do-not-disrupt": "30m"}
    pods = {
        "early": {"gpus": 1, "on": "n", "age": "1h", "owner": "ReplicaSet/x", "annotations": annotation},
        "late": {"gpus": 1, "on": "n", "age": "10m", "owner": "ReplicaSet/x", "annotations": annotation},
    }
    snapshot, settings = make({"nodes": {"n": {}}, "pods": pods}, tmp_path)
    found = explain("n", decide(snapshot, settings, NOW), snapshot, settings, NOW)
    assert found is not None
    early, late = (next(text for text in found.facts if name in text) for name in pods)
    assert "may be moved: the annotation karpenter.sh/do-not-disrupt is 30m, and that is over" in early
    assert "do-not-disrupt is 30m until 2026-11-15T12:20:00Z" in late and "may be moved" not in late
