"""Elastic jobs in the simulated world: they start with what fits, grow at a checkpoint, and do all of their work."""

from __future__ import annotations

import pytest

from longboat.simulator.entities import elastic_sizes
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
