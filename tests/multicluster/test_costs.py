"""GPU-hours and money as data: runs, samples and nodes in, rows out."""

from __future__ import annotations

import msgspec

from longboat.core.runs import Attempt, RunStatus
from longboat.core.times import format_time
from longboat.engines.lifecycle.budgets import Period
from longboat.metrics.values import RunMetrics
from longboat.multicluster.costs import (
    CostRow,
    all_pools,
    cost_of,
    grouped,
    mean_use,
    names_of,
    total,
)
from longboat.multicluster.spending import is_within, pools_of

HOUR = 3600.0
PERIOD = Period(start=100 * HOUR, end=110 * HOUR)
RUN = RunStatus(
    name="digits", uid="u", job="digits", phase="succeeded", engine="local", created=101 * HOUR, nodes=2, gpus=4,
    started=102 * HOUR, ended=105 * HOUR, user="anna", labels={"team": "vision", "stage": "test"},
)  # fmt: skip


def test_asked_held_used_and_paid() -> None:
    row = cost_of(RUN, "lab", PERIOD, 2.0, 0.25)
    assert row == CostRow(name="digits", on="lab", runs=1, asked=16.0, held=12.0, used=3.0, idle=9.0, cost=24.0)
    unknown = cost_of(RUN, "lab", PERIOD, None, None)
    assert (unknown.used, unknown.idle, unknown.cost) == (None, None, None)


def test_only_what_lies_in_the_period_counts_and_what_goes_on_goes_on() -> None:
    early = msgspec.structs.replace(RUN, created=90 * HOUR, started=95 * HOUR, ended=101 * HOUR)
    assert (cost_of(early, "", PERIOD, None, None).asked, cost_of(early, "", PERIOD, None, None).held) == (4.0, 4.0)
    running = msgspec.structs.replace(RUN, phase="running", ended=None)
    assert cost_of(running, "", PERIOD, None, None).held == 32.0
    waiting = msgspec.structs.replace(RUN, phase="pending", started=None, ended=None)
    assert (cost_of(waiting, "", PERIOD, None, None).asked, cost_of(waiting, "", PERIOD, None, None).held) == (36.0, 0)
    assert [is_within(run, PERIOD) for run in (early, running, msgspec.structs.replace(RUN, ended=99 * HOUR))] == [
        True, True, False,
    ]  # fmt: skip


def test_between_attempts_nothing_is_held() -> None:
    attempts = (
        Attempt(number=0, started=102 * HOUR, ended=103 * HOUR),
        Attempt(number=1, started=104.5 * HOUR, ended=105 * HOUR),
    )
    assert cost_of(msgspec.structs.replace(RUN, attempts=attempts), "", PERIOD, None, None).held == 6.0


def test_groups() -> None:
    other = msgspec.structs.replace(RUN, name="big", gpus=8, labels={"team": "speech"})
    rows = [(run, cost_of(run, "lab", PERIOD, 1.0, None)) for run in (RUN, other)]

    def by(what: str) -> dict[str, float]:
        return {row.name: row.held for row in grouped((name, row) for run, row in rows for name in names_of(run, what))}

    assert list(by("run")) == ["big", "digits"]  # the dearest first
    assert by("user") == {"anna": 36.0}
    assert by("label=team") == {"speech": 24.0, "vision": 12.0}
    assert by("label=stage") == {"(none)": 24.0, "test": 12.0}
    assert by("label") == {"team=speech": 24.0, "stage=test": 12.0, "team=vision": 12.0}
    assert total([row for _, row in rows], name="(all)").cost == 36.0


def test_the_use_of_gpus_is_the_mean_of_what_was_sampled() -> None:
    samples = {"0": {"gpu": ((1.0, 50.0), (2.0, float("nan")))}, "1": {"gpu": ((1.0, 100.0),), "cpu": ((1.0, 1.0),)}}
    assert mean_use(RunMetrics(run="digits", system=samples)) == 0.75
    assert mean_use(RunMetrics(run="digits")) is None


def test_pools_are_paid_whether_somebody_holds_them_or_not() -> None:
    def node(name: str, pool: str, made: float, **labels: str) -> dict[str, object]:
        meta = {
            "name": name,
            "creationTimestamp": format_time(made),
            "labels": {"longboat.dev/pool": pool, "node.kubernetes.io/instance-type": labels.get("type", "")},
        }
        return {"metadata": meta, "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "8"}}}

    nodes = [node("a", "big", 50 * HOUR), node("b", "big", 108 * HOUR), node("c", "rest", 105 * HOUR)]
    pools = pools_of(nodes, "lab", PERIOD, 0.5)
    assert [(row.name, row.paid, row.cost) for row in pools] == [("big", 96.0, 48.0), ("rest", 40.0, 20.0)]
    whole = all_pools(pools, [cost_of(RUN, "lab", PERIOD, 0.5, None)], "lab")[-1]
    assert (whole.name, whole.paid, whole.held, whole.idle, whole.cost) == ("(all)", 136.0, 12.0, 124.0, 68.0)
    (only, same) = all_pools(pools[:1], [cost_of(RUN, "lab", PERIOD, 0.5, None)], "lab")
    assert (only.name, only.runs, only.held, only.idle) == ("big", 1, same.held, same.idle), "its runs were in it"
    (unpriced,) = pools_of([node("a", "x", 100 * HOUR, type="nobody.knows")], "lab", PERIOD, None)
    assert (unpriced.paid, unpriced.cost) == (80.0, None)
    (priced,) = pools_of([node("a", "x", 109 * HOUR, type="p5.48xlarge")], "lab", PERIOD, None)
    assert priced.cost is not None and 20 < priced.cost < 200
