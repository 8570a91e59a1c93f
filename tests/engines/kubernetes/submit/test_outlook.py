"""Outlooks as data: what the gate foresees and what can be added in, the answer out."""

from __future__ import annotations

import json

import pytest

from longboat.engines.kubernetes.gate.decide import Prospect
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.surroundings import Autoscaler, own_autoscaler
from longboat.engines.kubernetes.submit.outlook import BOOT_S, judge

NOW = 1000.0
FULL = Prospect(reason="waits for 8 GPUs: 0 free of 8")
SOON = Prospect(reason="waits for 8 GPUs: 0 free of 8", start=NOW + 60)
GROWS = Autoscaler(name="longboat", can_grow=True, detail="gpu 1 of at most 4")


@pytest.mark.parametrize(
    ("prospect", "autoscaler", "answer", "wait_s"),
    [
        (Prospect(starts=True), None, "now", None),
        (Prospect(starts=True), GROWS, "now", None),
        (FULL, None, "waits", None),
        (SOON, None, "waits", 60.0),
        (FULL, GROWS, "buys", BOOT_S),
        (SOON, GROWS, "waits", 60.0),  # what ends before a machine has come is waited for
        (Prospect(start=NOW + 900), GROWS, "buys", BOOT_S),
        (FULL, Autoscaler(name="longboat", can_grow=True, boot_s=90.0), "buys", 90.0),
        (FULL, Autoscaler(name="longboat", can_grow=False), "waits", None),
        (FULL, Autoscaler(name="cluster-autoscaler"), "buys", BOOT_S),  # it does not tell: it may grow
    ],
)
def test_answers(prospect: Prospect, autoscaler: Autoscaler | None, answer: str, wait_s: float | None) -> None:
    outlook = judge(prospect, ClusterFacts(namespace="default", autoscaler=autoscaler), NOW, queue=None)
    assert (outlook.answer, outlook.wait_s) == (answer, wait_s)


def test_reasons() -> None:
    facts = ClusterFacts(namespace="default", autoscaler=GROWS)
    text = "waits for 8 GPUs: 0 free of 8; longboat may add machines (gpu 1 of at most 4)"
    assert judge(FULL, facts, NOW, queue=None).reason == text
    assert judge(Prospect(starts=True), facts, NOW, queue="team").reason == "queue team of Kueue decides when"


def test_what_our_own_autoscaler_can_add_has_a_price_and_a_time() -> None:
    """Of pools that are not at their maximum, those with GPUs."""
    pools = [
        {"note": {"pool": "full", "size": 2}, "max": 2, "gpus": 8, "price": 1.0, "boot_s": 10.0},
        {"note": {"pool": "cpu", "size": 0}, "max": 2, "gpus": 0, "price": 0.1, "boot_s": 20.0},
        {"note": {"pool": "big", "size": 0}, "max": 2, "gpus": 8, "price": 32.0, "boot_s": 240.0},
        {"note": {"pool": "free", "size": 0}, "max": 2, "gpus": 1},
    ]
    seen = own_autoscaler({"data": {"report": json.dumps({"at": NOW, "pools": pools})}}, NOW)
    assert seen is not None and (seen.gpu_hour, seen.boot_s) == (4.0, 240.0)
