"""A member of a gang is lost while a spare waits: that plays its node, and the pod that comes is the next spare."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.core.runs import LogQuery
from longboat.engines.shared.explanations import restart_words
from tests.engines.kubernetes.faults.grounds import Ground
from tests.engines.kubernetes.faults.losses import unfinished
from tests.engines.kubernetes.faults.test_replaced import TRAINS, kill_launcher, take_away
from tests.engines.kubernetes.faults.test_restarts import lines_of, pods_of

pytestmark = [pytest.mark.pods, pytest.mark.parametrize("flavour", ["job"])]

GOES_ON = TRAINS.replace(
    "if attempt == 0:", "while not os.path.exists('/book/over'): time.sleep(0.02)\nif attempt == 0:"
)
FIRST = [f"rank {rank} attempt 0 from ''\n" for rank in range(3)]
SECOND = [f"rank {rank} attempt 1 from 'step-3'\n" for rank in range(3)]


def begun(ground: Ground, **fields: Any) -> dict[str, str]:
    """uid -> name of the pods of a run of three nodes whose ranks have started, and whose spare waits."""
    ground.submit(code=GOES_ON, nodes=3, spares=1, setup="echo prepared", grace="2s", **fields)
    ground.until_started(ranks=3)
    ground.until(lambda: ready_spares(ground) == ["worker-3"], "the spare waits")
    return pods_of(ground)


def ready_spares(ground: Ground) -> list[str]:
    return [spare.node for spare in ground.engine.status("job").spares if spare.is_ready]


@pytest.mark.parametrize("how", ["deleted", "killed"])
def test_a_spare_takes_the_place_of_a_lost_pod(ground: Ground, how: str) -> None:
    before = begun(ground, retries={"count": 2, "backoff": "0s"})
    assert len(before) == 4
    run = ground.engine.status("job")
    assert (run.nodes, len(run.ranks), run.attempt) == (3, 3, 0)
    if how == "deleted":
        take_away(ground, before, 1)
    else:
        kill_launcher(run.uid, 1)
    ground.until_started(ranks=3, attempt=1)
    ground.until(lambda: ready_spares(ground) == ["worker-3"], "the pod that was made for it is the next spare")
    status = ground.engine.status("job")
    assert (status.phase, status.attempt) == ("running", 1), status.reason
    assert [(rank.rank, rank.node, rank.alive) for rank in status.ranks] == [
        (rank, f"worker-{rank}", True) for rank in range(3)
    ]
    (spare,) = status.spares
    assert "-1-" in spare.pod and spare.pod not in before.values()
    (ground.book / "over").touch()
    ended = ground.wait()
    assert (ended.phase, ended.exit_code, ended.attempt) == ("succeeded", 0, 1), ended.reason
    first, second = ended.attempts
    cause = "preemption" if how == "deleted" else "lost"
    assert first.failure is not None and (first.failure.cause, first.failure.exit_code) == (cause, 208)
    assert (second.restart, second.spares) == ("in-place", {"worker-1": "worker-3"})
    assert (second.resumed_from or "").endswith("step-3")
    words = restart_words(second, ended.attempts)
    assert words.startswith("the spare worker-3 in the place of worker-1, the others restarted in place "), words
    assert any("the spare worker-3" in fact for fact in ground.engine.explain("job").facts)
    assert (lines_of(ground, 0), lines_of(ground, 1)) == (FIRST, SECOND)
    query = LogQuery(attempt=1, ranks=(1,))
    assert [line.node for line in ground.engine.logs("job", query) if line.rank >= 0] == ["worker-1"]
    ground.until(lambda: not unfinished(ground, 0), "no pod is left that runs")
    ground.remove()
