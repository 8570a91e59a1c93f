"""Each policy on traces small enough to compute by hand; then what must hold on any trace."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.autoscaler.model.snapshot import AutoscalerSettings
from longboat.simulator.entities import SimulatedMachine
from longboat.simulator.generators import generate
from longboat.simulator.policies import MODELS, NAMES
from longboat.simulator.policies.oracle import lower_bound
from longboat.simulator.results import PolicyOutcome
from longboat.simulator.scheduler import RANKINGS, Scheduler
from longboat.simulator.traces import Trace
from longboat.simulator.world import USUAL, WITH_LONGBOAT, Conditions, World
from tests.simulator.worlds import hours, pool, run, trace

ONE = trace((0, 1000, 1))
TWO = trace((0, 1000, 1), (4000, 100, 1))


@pytest.mark.parametrize(
    ("policy", "wait", "machine_seconds"),
    [
        ("longboat", 300.0, 1300),  # ordered in the first loop, 5 minutes of boot
        ("cluster-autoscaler", 330.0, 1300),  # 30 s until a GPU pod counts
        ("karpenter", 301.0, 1300),  # a batch is over after 1 s
        ("ec2-autoscaler", 300.0, 4 * 1300),  # 1 + 5 on top, of which the pool gives 4
        ("static", 0.0, 4 * 1000),
        ("oracle", 0.0, 1000),
    ],
)
def test_one_job(policy: str, wait: float, machine_seconds: float) -> None:
    found = run(policy, ONE).figures
    assert found.wait_p50_s == found.wait_p99_s == wait
    assert found.gpu_hours_provisioned == hours(8 * machine_seconds)
    assert found.gpu_hours_requested == hours(1000)
    assert found.cost == round(8.0 * machine_seconds / 3600, 2)
    assert found.gang_wait_p99_s is None
    assert (found.jobs_finished, found.evictions, found.flaps) == (1, 0, 0)


@pytest.mark.parametrize(
    ("policy", "machine_seconds"),
    [
        # Idle from 1300, cordoned at 1900, deleted at 1910; ordered again at 4000.
        ("longboat", 1910 + 400),
        # Ordered at 30, not removable at 1230, looked at again at 1530, unneeded for 10 minutes; again at 4030.
        ("cluster-autoscaler", 2100 + 400),
        # Ordered at 1, empty from 1301, validated for 15 s; again at 4001.
        ("karpenter", 1315 + 400),
        # Kept: spare machines of the type stay for a week. The second job finds one.
        ("ec2-autoscaler", 4 * 4100),
        ("static", 4 * 4100),
        ("oracle", 1100),
    ],
)
def test_an_idle_machine_goes(policy: str, machine_seconds: float) -> None:
    assert run(policy, TWO).figures.gpu_hours_provisioned == hours(8 * machine_seconds)


def test_a_machine_ordered_again_at_once_is_a_flap() -> None:
    jobs = trace((0, 1000, 1), (2000, 100, 1))
    assert run("longboat", jobs).figures.flaps == 1
    assert run("longboat", jobs, settings=AutoscalerSettings(idle_s=900)).figures.flaps == 0


# Two machines; after 100 s only one GPU of each is in use.
SPREAD = trace((0, 100, 8), (0, 10_000, 1), (431, 10_000, 1))
PLAIN = Conditions(is_protected=False)


def test_cluster_autoscaler_moves_a_training() -> None:
    found = run("cluster-autoscaler", SPREAD, conditions=PLAIN).figures
    # The first is unneeded since it was empty at 430: one pod that fits elsewhere changes nothing. Drained at 1030.
    assert (found.training_evictions, found.evictions) == (1, 1)
    assert found.gpu_hours_lost == hours(1030 - 431)
    assert found.jobs_finished == 3


def test_a_checkpoint_saves_work() -> None:
    found = run("cluster-autoscaler", SPREAD, conditions=Conditions(checkpoint_s=300, is_protected=False)).figures
    assert found.gpu_hours_lost == hours(599 - 300)
    never = Conditions(checkpoint_s=0, is_protected=False)
    assert run("cluster-autoscaler", SPREAD, conditions=never).figures.gpu_hours_lost == hours(599)


def test_karpenter_moves_a_training_at_once() -> None:
    """Empty at 401, no longer at the validation at 416; consolidated instead, validated at 431."""
    found = run("karpenter", trace((0, 100, 8), (0, 10_000, 1), (405, 10_000, 1)), conditions=PLAIN).figures
    assert found.training_evictions == 1
    assert found.gpu_hours_lost == hours(431 - 405)
    assert found.jobs_finished == 3


@pytest.mark.parametrize("policy", ["longboat", "static"])
def test_no_training_is_moved(policy: str) -> None:
    assert run(policy, SPREAD, conditions=PLAIN).figures.evictions == 0


@pytest.mark.parametrize("policy", ["cluster-autoscaler", "karpenter"])
def test_protected_trainings_are_left_alone_by_models_too(policy: str) -> None:
    assert (
        run(
            policy,
            SPREAD,
        ).figures.evictions
        == 0
    )


def test_half_a_gang_holds_gpus_for_nothing() -> None:
    """One machine is taken by another job for 1000 s; half of the gang sits on the other meanwhile."""
    jobs = trace((0, 1000, 8), (0, 100, 16))
    found = run("cluster-autoscaler", jobs, pool(max=2)).figures
    assert found.gpu_hours_held_by_partial_gangs == hours(8 * 1000)
    assert found.gang_wait_p99_s == 1330.0
    ours = run("longboat", jobs, pool(max=2))
    assert ours.figures.gpu_hours_held_by_partial_gangs == 0
    assert ours.unfinished == 0


@pytest.mark.parametrize(("machines", "waits"), [(1, [0, 990, 1080]), (2, [0, 0, 0])])
def test_jobs_pass_each_other_as_at_the_real_gate(machines: int, waits: list[int]) -> None:
    """Eight GPUs wait until the five have ended; one would delay them on the only machine, and does not beside it."""
    jobs = trace((0, 1000, 5), (10, 100, 8), (20, 10, 1))
    world = World([pool(max=machines, min=machines)], USUAL, WITH_LONGBOAT, start=0.0)
    moments = sorted({job.submitted for job in jobs.jobs} | {1000.0, 1100.0, 1110.0})
    for now in moments:
        if world.process_due(now):
            world.schedule(now)
        for job in jobs.jobs:
            if job.submitted == now:
                world.submit(job, now)
    assert sorted(world.tally.waits) == waits


def test_small_jobs_do_not_wait_for_the_machines_of_large_ones() -> None:
    """The median of a team's two waves is at once, and the longest wait is the boot."""
    found = run("longboat", generate("waves", seed=1, jobs=72), pool(max=40, boot_s=300.0)).figures
    assert found.wait_p50_s == 0.0 and (found.wait_p99_s or 0.0) < 320.0
    peer = run("cluster-autoscaler", generate("waves", seed=1, jobs=72), pool(max=40, boot_s=300.0)).figures
    assert found.gpu_hours_provisioned < peer.gpu_hours_provisioned


def test_cluster_autoscaler_scatters_pods_over_the_machines_that_boot() -> None:
    """Two machines boot for eight and eight; two singles are counted on one each, and a third machine is bought."""
    jobs = trace((0, 100, 1), (1, 100, 8), (2, 100, 1), (3, 100, 8))
    assert max(point.capacity for point in run("cluster-autoscaler", jobs).points) > 8 * 3


def test_packing_decides_how_many_machines_stay() -> None:
    """Three GPUs of the one and one of the other are in use when a pod for one GPU comes."""
    jobs = trace((0, 100, 5), (0, 9000, 3), (0, 9000, 1), (0, 100, 7), (500, 9000, 1), (5000, 10, 1))
    spread = run("longboat", jobs, conditions=Conditions(ranking="least-allocated"))
    packed = run("longboat", jobs)
    assert spread.unfinished == packed.unfinished == 0
    told = run("longboat", jobs, conditions=Conditions(ranking="packed"))
    assert packed.points == told.points
    assert packed.figures.gpu_hours_provisioned < spread.figures.gpu_hours_provisioned


def test_pods_of_longboat_go_where_most_gpus_are_in_use() -> None:
    """Two of the small machine's four are in use, three of the large one's eight; `most-allocated` takes the small."""
    chosen = {}
    for ranking in ("packed", "most-allocated", "least-allocated"):
        scheduler = Scheduler(ranking)  # type: ignore[arg-type]
        for name, gpus, used in (("small", 4, 2), ("large", 8, 3)):
            machine = SimulatedMachine(name, pool(name, gpus), 0.0)
            machine.free -= used
            scheduler.open(machine)
        found = scheduler.find(1)
        assert found is not None
        chosen[ranking] = found.name
    assert chosen == {"packed": "large", "most-allocated": "small", "least-allocated": "large"}


def test_a_gang_larger_than_everything_never_runs_and_the_replay_ends() -> None:
    for policy in ("longboat", *MODELS, "static"):
        found = run(policy, trace((0, 100, 64), (0, 100, 1)), pool(max=2))
        assert found.unfinished >= 1
        assert found.figures.jobs_finished <= 1
    assert run("longboat", trace((0, 100, 64), (0, 100, 1)), pool(max=2)).unfinished == 1


@pytest.mark.parametrize("policy", ["longboat", *MODELS])
def test_failures_are_survived(policy: str) -> None:
    jobs = trace(*[(60.0 * n, 900, 1 + n % 8) for n in range(40)])
    found = run(policy, jobs, pool(max=30), conditions=Conditions(stockouts=0.3, never_join=0.2, seed=3))
    assert found.unfinished == 0
    assert found.figures.gpu_hours_provisioned > found.figures.gpu_hours_requested


def test_with_no_machine_to_be_had_the_replay_ends() -> None:
    for policy in ("longboat", *MODELS):
        assert run(policy, ONE, conditions=Conditions(stockouts=1.0)).unfinished == 1


def test_the_next_pool_is_taken_when_one_has_none() -> None:
    """Half of all orders are refused: two pools serve what one would keep waiting."""
    jobs = trace(*[(700.0 * n, 600, 8) for n in range(30)])
    bad = Conditions(stockouts=0.5, seed=1)
    alone = run("longboat", jobs, pool(max=8), conditions=bad).figures
    both = run("longboat", jobs, pool(max=8), pool("b100", max=8, price=9.0), conditions=bad).figures
    assert (both.wait_p99_s or 0) < (alone.wait_p99_s or 0)


def test_machines_of_min_are_there_from_the_beginning() -> None:
    assert run("longboat", ONE, pool(min=1)).figures.wait_p99_s == 0
    assert run("cluster-autoscaler", ONE, pool(min=1)).figures.gpu_hours_provisioned == hours(8 * 1000)


def test_spare_machines_cost_and_save_waiting() -> None:
    jobs = trace((0, 5000, 8), (1000, 5000, 8), (2000, 5000, 8))
    plain, spare = run("longboat", jobs).figures, run("longboat", jobs, settings=AutoscalerSettings(spare=1)).figures
    assert (plain.wait_p50_s, spare.wait_p50_s) == (300.0, 0.0)
    assert spare.gpu_hours_provisioned > plain.gpu_hours_provisioned


def without_time(outcome: PolicyOutcome) -> PolicyOutcome:
    return msgspec.structs.replace(outcome, figures=msgspec.structs.replace(outcome.figures, decide_cpu_s=0.0))


TRACES = st.lists(
    st.tuples(
        st.integers(0, 6000).map(float),
        st.integers(1, 4000).map(float),
        st.sampled_from([1, 1, 1, 2, 3, 4, 5, 8, 8, 12, 16, 24]),
    ),
    min_size=1,
    max_size=14,
).map(lambda jobs: trace(*jobs))


@settings(max_examples=40, deadline=None)
@given(TRACES, st.sampled_from(NAMES), st.sampled_from(RANKINGS))
def test_what_holds_on_any_trace(jobs: Trace, policy: str, ranking: str) -> None:
    pools = (pool(max=60),)
    conditions = Conditions(ranking=ranking)  # type: ignore[arg-type]
    found = run(policy, jobs, *pools, conditions=conditions)
    figures = found.figures
    assert found.unfinished == 0
    assert figures.jobs_finished == len(jobs.jobs)
    assert figures.gpu_hours_provisioned >= figures.gpu_hours_requested - 0.001
    if not figures.evictions:
        assert figures.gpu_hours_provisioned >= lower_bound(jobs, pools, found.longest_wait_s) - 0.001
    if policy in ("longboat", "static", "oracle"):
        assert figures.evictions == 0
        assert figures.gpu_hours_held_by_partial_gangs == 0
    assert without_time(found) == without_time(run(policy, jobs, *pools, conditions=conditions))


@settings(max_examples=40, deadline=None)
@given(TRACES)
def test_the_oracle_is_the_bound_for_those_who_let_nobody_wait(jobs: Trace) -> None:
    pools = (pool(max=60),)
    bound = run("oracle", jobs, *pools).figures.gpu_hours_provisioned
    assert bound == pytest.approx(lower_bound(jobs, pools, 0.0), abs=0.001)
    assert bound <= run("static", jobs, *pools).figures.gpu_hours_provisioned + 0.001
