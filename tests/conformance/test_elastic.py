"""Elastic runs: they start with what fits, take more at a checkpoint, and give it back to who comes first."""

from __future__ import annotations

import pytest

from longboat.core.errors import Refused
from tests.conformance.conftest import Jobs

TRAINS = """
import longboat, os, sys, time
resumed = longboat.resume_from()
step = int(open(os.path.join(resumed, "n")).read()) if resumed else 0
world, rank = longboat.world_size(), longboat.rank()
assert os.environ["LONGBOAT_NODES"] == os.environ["LONGBOAT_WORLD_SIZE"] == os.environ["WORLD_SIZE"]
changed = os.environ.get("LONGBOAT_WORLD_SIZE_CHANGED", "-")
print(f"rank {rank} of {world}, before {changed}, batch {longboat.batch_size(8)}, from {step}", flush=True)
ends = [int(world) for world in sys.argv[1:]]
while not longboat.should_stop():
    time.sleep(0.1)
    step += 1
    longboat.step(step)
    if step % 5 == 0:
        with longboat.checkpoint(step) as folder:
            open(os.path.join(folder, "n"), "w").write(str(step))
    if world in ends and step > 20: break
"""
HOLDS = "import time; print('holds', flush=True); time.sleep(600)"
EACH = {"gpus": 1, "cpus": None, "procs": 1}


@pytest.fixture(autouse=True)
def _own_gate(jobs: Jobs) -> None:
    if not jobs.place.has_own_gate:
        with pytest.raises(Refused, match="admits one size"):
            jobs.submit(TRAINS, nodes="1-2")
        pytest.skip("Kueue admits one size: an elastic job is refused")


def ranks(jobs: Jobs, run: str, world: int) -> list[str]:
    """What ranks of attempts of this size said first, each once."""
    return sorted({line for line in jobs.text(run).splitlines() if f" of {world}," in line})


def test_it_starts_with_what_fits(jobs: Jobs) -> None:
    environment = jobs.place.with_gpus("a", "b", "c")
    submitted = jobs.submission(
        TRAINS, nodes={"min": 2, "max": 5}, gpus=1, batch="global", run=["python", "train.py", "3"],
        environment=environment,
    )  # fmt: skip
    run = jobs.wait(jobs.engine.submit(submitted).name)
    assert run.phase == "succeeded", run.reason
    assert (run.nodes, run.size, run.retries) == (3, "3 of 2-5 nodes", 0)
    shares = {0: 3, 1: 3, 2: 2}
    wanted = [f"rank {rank} of 3, before -, batch {share}, from 0" for rank, share in shares.items()]
    assert jobs.text(run.name).splitlines() and ranks(jobs, run.name, 3) == wanted
    assert [(each.size, each.gpus, each.resized) for each in run.attempts] == [(3, 3, "")]


def test_it_waits_for_its_smallest_size_and_is_refused_where_that_never_fits(jobs: Jobs) -> None:
    environment = jobs.place.with_gpus("a", "b")
    with pytest.raises(Refused, match="3"):
        jobs.engine.submit(jobs.submission(TRAINS, nodes="3-4", gpus=1, environment=environment))
    holder = jobs.engine.submit(jobs.submission(HOLDS, name="holder", gpus=1, environment=environment))
    jobs.until_said(holder.name, "holds")
    run = jobs.engine.submit(
        jobs.submission(TRAINS, nodes="2-4", gpus=1, run=["python", "train.py", "2"], environment=environment)
    )
    jobs.until(lambda: "2 GPUs" in jobs.engine.status(run.name).reason, "it waits for two GPUs")
    assert jobs.engine.status(run.name).phase == "pending"
    jobs.engine.stop(holder.name, grace_s=0)
    ended = jobs.wait(run.name)
    assert (ended.phase, ended.size) == ("succeeded", "2 of 2-4 nodes"), ended.reason


def test_it_grows_at_a_checkpoint_when_there_is_room(jobs: Jobs) -> None:
    environment = jobs.place.with_gpus("a", "b", "c")
    holder = jobs.engine.submit(jobs.submission(HOLDS, name="holder", gpus=1, environment=environment))
    jobs.until_said(holder.name, "holds")
    run = jobs.engine.submit(
        jobs.submission(
            TRAINS, nodes="1-3", gpus=1, batch="global", run=["python", "train.py", "3"], environment=environment
        )
    )
    jobs.until_said(run.name, "rank 0 of 2, before -")
    jobs.engine.stop(holder.name, grace_s=0)
    ended = jobs.wait(run.name)
    assert ended.phase == "succeeded", ended.reason
    assert (ended.nodes, ended.retries, ended.exit_code) == (3, 0, 0)
    first, last = ended.attempts[0], ended.attempts[-1]
    assert (first.size, last.size) == (2, 3) and first.resized == "grows from 2 to 3 nodes"
    assert first.failure is None and last.resumed_from
    begun = ranks(jobs, run.name, 3)
    assert [line.split(", from")[0] for line in begun] == [
        "rank 0 of 3, before 2, batch 3",
        "rank 1 of 3, before 2, batch 3",
        "rank 2 of 3, before 2, batch 2",
    ]
    assert {int(line.rpartition(" ")[2]) for line in begun} != {0}


def test_it_gives_nodes_back_to_who_comes_first(jobs: Jobs) -> None:
    environment = jobs.place.with_gpus("a", "b", "c")
    run = jobs.engine.submit(
        jobs.submission(TRAINS, nodes="1-3", gpus=1, run=["python", "train.py", "1"], environment=environment)
    )
    jobs.until_said(run.name, "rank 0 of 3")
    first = jobs.engine.submit(
        jobs.submission(HOLDS, name="urgent", nodes=2, gpus=1, priority=5, environment=environment)
    )
    # In a cluster without the controller its turns are taken by whoever looks at it.
    jobs.until(lambda: jobs.engine.status(run.name) and jobs.text(first.name).count("holds") == 2, "it starts")
    ended = jobs.wait(run.name)
    assert ended.phase == "succeeded", ended.reason
    assert [each.size for each in ended.attempts] == [3, 1] and ended.retries == 0
    assert ended.attempts[0].resized == f"goes from 3 to 1 node for {first.name}"
    (line,) = ranks(jobs, run.name, 1)
    assert line.startswith("rank 0 of 1, before 3") and not line.endswith("from 0")


def test_who_comes_later_gets_nothing_of_it_and_never_means_never(jobs: Jobs) -> None:
    environment = jobs.place.with_gpus("a", "b")
    holder = jobs.engine.submit(jobs.submission(HOLDS, name="holder", gpus=1, environment=environment))
    jobs.until_said(holder.name, "holds")
    run = jobs.engine.submit(
        jobs.submission(
            TRAINS, nodes="1-2", gpus=1, grow="never", run=["python", "train.py", "1"], environment=environment
        )
    )
    jobs.until_said(run.name, "rank 0 of 1")
    jobs.engine.stop(holder.name, grace_s=0)
    ended = jobs.wait(run.name)
    assert (ended.phase, [each.size for each in ended.attempts]) == ("succeeded", [1]), ended.reason


def test_a_failure_costs_a_retry_and_another_size_does_not(jobs: Jobs) -> None:
    environment = jobs.place.with_gpus("a", "b")
    holder = jobs.engine.submit(jobs.submission(HOLDS, name="holder", gpus=1, environment=environment))
    jobs.until_said(holder.name, "holds")
    fails = TRAINS + "if world == 2 and not os.path.exists(os.path.join(resumed, 'failed')):\n"
    fails += "    open(os.path.join(resumed, 'failed'), 'x').close()\n    sys.exit(7)\n"
    run = jobs.engine.submit(
        jobs.submission(
            fails, nodes="1-2", gpus=1, retries={"count": 1, "backoff": "0s"}, run=["python", "train.py", "2"],
            environment=environment,
        )
    )  # fmt: skip
    jobs.until_said(run.name, "rank 0 of 1")
    jobs.engine.stop(holder.name, grace_s=0)
    ended = jobs.wait(run.name)
    codes = [each.failure and each.failure.exit_code for each in ended.attempts]
    assert ended.exit_code == 7 or codes[1] == 7, ended.reason
    assert [each.size for each in ended.attempts][:2] == [1, 2] and bool(ended.attempts[0].resized)
    assert len(ended.attempts) == 3
