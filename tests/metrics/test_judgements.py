"""What is noticed about a run, from figures of its ranks alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.core.runs import Attempt, RankStatus, RankUsage, RunStatus
from longboat.metrics.judgements import findings, gpu_hours, with_figures
from tests.metrics.test_values import status


def rank(number: int, role: str = "worker", alive: bool = True, step: int = 100, **usage: Any) -> RankStatus:
    return RankStatus(rank=number, role=role, node=f"{role}-{number}", alive=alive, step=step, usage=RankUsage(**usage))


def run(*ranks: RankStatus, **fields: Any) -> RunStatus:
    return status(ranks=ranks, **fields)


def test_a_run_that_is_well_has_no_findings() -> None:
    ranks = [rank(n, steps_per_s=10 + n / 10, pace_steps=500, gpu=95.0, gpu_throttled_s=3.0) for n in range(8)]
    assert findings(run(*ranks)) == ()
    assert findings(run()) == ()


def test_a_straggler_is_named_with_its_pace_and_the_median() -> None:
    ranks = [rank(n, steps_per_s=2.0, pace_steps=240) for n in range(7)]
    slow = rank(7, steps_per_s=1.2, pace_steps=144)
    (finding,) = findings(run(*ranks, slow))
    assert finding == "rank 7 on worker-7 is slow: 1.2 steps/s over 144 steps, the median is 2"


def test_few_steps_other_roles_and_one_rank_are_no_stragglers() -> None:
    ranks = [rank(n, steps_per_s=2.0, pace_steps=240) for n in range(3)]
    assert findings(run(*ranks, rank(3, steps_per_s=0.5, pace_steps=5))) == ()
    assert findings(run(*ranks, rank(3, role="ps", steps_per_s=0.5, pace_steps=500))) == ()
    assert findings(run(*ranks, rank(3, alive=False, steps_per_s=0.5, pace_steps=500))) == ()


def test_many_stragglers_are_counted() -> None:
    ranks = [rank(n, steps_per_s=2.0 if n < 9 else 1.0, pace_steps=100) for n in range(16)]
    told = findings(run(*ranks))
    assert len(told) == 5 and told[-1] == "and 3 more slow ranks"


def test_gpus_that_compute_nothing() -> None:
    busy = rank(0, gpu=97.0)
    assert findings(run(busy, rank(1, gpu=0.0, gpu_idle_s=200.0))) == ()
    (finding,) = findings(run(busy, rank(1, gpu=0.0, gpu_idle_s=720.0, gpu_memory=40 << 30)))
    assert finding == "the GPUs of rank 1 compute nothing for 12m, with 40Gi of their memory in use"
    (finding,) = findings(run(rank(0, gpu_idle_s=400.0), rank(1, gpu_idle_s=500.0)))
    assert "2 ranks of 2 (ranks 0, 1)" in finding and "8m20s" in finding


def test_gpus_that_slow_themselves_down() -> None:
    (finding,) = findings(run(rank(2, gpu=99.0, gpu_throttled_s=95.0, gpu_temperature=87.0)))
    assert "GPUs of rank 2 slowed themselves down" in finding and "1m35s" in finding and "87 degrees" in finding


def test_gpus_that_wait_for_data() -> None:
    (finding,) = findings(run(rank(0, gpu=12.0, cpu=3.96, pace_steps=200, steps_per_s=1.0)))
    assert "12 % used, with 4.0 cores busy" in finding and "data loader" in finding
    assert findings(run(rank(0, gpu=12.0, pace_steps=10, steps_per_s=1.0))) == ()


def test_a_loss_that_is_no_number_is_told_with_its_first_step_also_after_the_end() -> None:
    ranks = (rank(0, not_finite={"loss": 310}), rank(1, alive=False, not_finite={"loss": 300}))
    for phase in ("running", "failed", "succeeded"):
        assert findings(run(*ranks, phase=phase)) == ("loss was not a finite number at step 300 (rank 1)",)


def test_pace_and_gpu_hours() -> None:
    attempts = (Attempt(number=0, started=0.0, ended=3600.0), Attempt(number=1, started=4000.0))
    told = with_figures(
        run(rank(0, step=5, steps_per_s=4.0), rank(1, step=9, steps_per_s=2.0), gpus=4, attempts=attempts), 7600.0
    )
    assert (told.steps_per_s, told.step_s, told.gpu_hours) == (2.0, 0.5, 8.0)
    assert gpu_hours(run(gpus=0, attempts=attempts), 9.0) is None
    assert with_figures(run(), 1.0).steps_per_s is None


def test_the_share_of_data_where_ranks_report_it() -> None:
    def loading(number: int, seconds: float, **usage: Any) -> RankStatus:
        return msgspec.structs.replace(rank(number, **usage), metrics={"data_s": seconds})

    paced = {"steps_per_s": 10.0, "pace_steps": 500}
    assert with_figures(run(rank(0, **paced)), 0.0).data_share is None
    well = run(loading(0, 0.01, **paced), loading(1, 0.01, **paced), rank(2, **paced))
    assert with_figures(well, 0.0).data_share == pytest.approx(0.1) and findings(well) == ()
    late = run(loading(0, 0.05, **paced), loading(1, 0.03, **paced))
    (finding,) = findings(late)
    assert finding.startswith("40% of the time per step is spent waiting for data")
    begun = run(loading(0, 0.05, steps_per_s=10.0, pace_steps=5))
    assert findings(begun) == (), "the first batches are always late"
    assert with_figures(run(loading(0, 7.0, **paced)), 0.0).data_share == 1.0
