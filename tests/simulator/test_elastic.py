"""Elastic jobs in the simulated world: they start with what fits, grow at a checkpoint, and do all of their work."""

from __future__ import annotations

import pytest

from longboat.simulator.entities import SimulatedJob, elastic_sizes, growth_of
from longboat.simulator.traces import TraceJob
from longboat.simulator.world import Conditions
from tests.simulator.worlds import hours, pool, run, trace

ELASTIC = Conditions(elastic=1.0, checkpoint_s=600.0)


@pytest.mark.parametrize(
    ("gpus", "share", "chance", "sizes"),
    [(1, 1.0, 0.0, (1,)), (8, 0.5, 0.6, (8,)), (8, 0.5, 0.4, (2, 4, 8)), (2, 1.0, 0.0, (1, 2)), (3, 1.0, 0.0, (1, 3))],
)
def test_which_jobs_are_elastic(gpus: int, share: float, chance: float, sizes: tuple[int, ...]) -> None:
    assert elastic_sizes(gpus, share, chance) == sizes


def test_a_job_starts_with_what_fits_and_grows_when_there_is_room() -> None:
    """Beside a job of 6 GPUs for 1,000 s it has 2 of its 8; at its checkpoint at 1,200 s it takes all of them."""
    jobs = trace((0.0, 1000.0, 6), (10.0, 3600.0, 8))
    machine = pool(max=1, min=1)
    rigid = run("static", jobs, machine)
    elastic = run("static", jobs, machine, conditions=ELASTIC)
    assert (rigid.figures.jobs_finished, elastic.figures.jobs_finished) == (2, 2)
    assert rigid.longest_wait_s == pytest.approx(990.0) and elastic.longest_wait_s == 0.0
    # A quarter of the speed for 1,200 s, a restart of a minute, then the rest at full speed.
    ends = elastic.points[-1].moment
    assert ends == pytest.approx(10.0 + 1200.0 + 60.0 + 3600.0 - 1200.0 / 4)
    assert elastic.figures.gpu_hours_requested == hours(6 * 1000.0 + 8 * 3600.0)


def test_nobody_grows_while_somebody_waits() -> None:
    jobs = trace((0.0, 1000.0, 6), (10.0, 3600.0, 8), (20.0, 2000.0, 8))
    elastic = run("static", jobs, pool(max=1, min=1), conditions=ELASTIC)
    assert elastic.figures.jobs_finished == 3


def test_without_a_share_all_is_as_ever() -> None:
    jobs = trace(*((60.0 * n, 500.0 + 37 * n, 1 + n % 9) for n in range(40)))
    plain, none = (run("longboat", jobs, pool(), conditions=each) for each in (Conditions(), Conditions(elastic=0.0)))
    assert plain.points == none.points


def test_machines_are_bought_for_growth_where_a_pool_says_so() -> None:
    """It has 2 of its 8 GPUs beside a job of 6; a machine of the other pool is there at its checkpoint at 610 s."""
    jobs = trace((0.0, 4000.0, 6), (10.0, 3600.0, 8))
    first = pool(max=1, min=1, priority=1)
    without = run("longboat", jobs, first, pool("spot", price=1.0), conditions=ELASTIC)
    bought = run("longboat", jobs, first, pool("spot", price=1.0, growth_s=1800.0), conditions=ELASTIC)
    assert without.figures.gpu_hours_provisioned < bought.figures.gpu_hours_provisioned
    # A quarter of the speed for 600 s, a restart of a minute, then the rest at full speed.
    full = 600.0 + 60.0 + 3600.0 - 600.0 / 4
    assert bought.figures.turnaround_mean_s == pytest.approx((4000.0 + full) / 2, abs=0.01)
    # Else it has the rest of the first machine at its checkpoint at 4,210 s, after 1,050 s worth of work.
    assert without.points[-1].moment == pytest.approx(4210.0 + 60.0 + 3600.0 - 4200.0 / 4)
    assert bought.points[-1].capacity == 16 and max(point.capacity for point in bought.points) == 16


def test_a_machine_that_was_bought_for_growth_and_not_taken_goes_and_is_not_bought_again() -> None:
    """It never comes to a checkpoint: half an hour of waiting, then the machine goes, for good."""
    jobs = trace((0.0, 20_000.0, 6), (10.0, 20_000.0, 8))
    never = Conditions(elastic=1.0, checkpoint_s=50_000.0)
    first = pool(max=1, min=1, priority=1)
    bought = run("longboat", jobs, first, pool("spot", price=1.0, growth_s=1800.0), conditions=never)
    changes = [(point.moment, point.capacity) for point in bought.points if point.moment < 19_000.0]
    capacities = list(dict.fromkeys(capacity for _, capacity in changes))
    gone = next(moment for moment, capacity in changes if moment > 1000.0 and capacity == 8)
    assert capacities == [8, 16] and 2100.0 <= gone <= 2200.0
    assert not any(capacity == 16 for moment, capacity in changes if moment > gone)


def test_what_a_larger_size_has_besides() -> None:
    job = SimulatedJob(TraceJob(name="j", submitted=0.0, duration=1.0, gpus=20), "j", 8, (5, 10, 20))
    assert growth_of(job, 8) == [6, 7, 7]
    job.resize(20, 8)
    assert growth_of(job, 8) == []
    half = SimulatedJob(TraceJob(name="h", submitted=0.0, duration=1.0, gpus=16), "h", 8, (8, 16))
    assert growth_of(half, 8) == [8]
