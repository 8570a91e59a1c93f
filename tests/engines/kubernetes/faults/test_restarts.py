"""Ranks that fail in pods that live: restarted in place; and made anew where that does not come together."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from longboat.core.errors import LongboatError
from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.exec.pod_exec import Remote
from longboat.engines.kubernetes.manifests import gang_file
from longboat.engines.kubernetes.manifests.volumes import NODE
from longboat.engines.shared.explanations import restart_words
from testbed import api
from tests.engines.kubernetes.faults.grounds import Ground
from tests.engines.kubernetes.flavours import FLAVOURS

pytestmark = [pytest.mark.pods, pytest.mark.parametrize("flavour", FLAVOURS)]

TRAINS = """
import os, sys, time
import longboat
rank, attempt = os.environ["RANK"], int(os.environ["LONGBOAT_ATTEMPT"])
print(f"rank {rank} attempt {attempt} from {os.path.basename(longboat.resume_from() or '')!r}", flush=True)
if rank == "0" and attempt == 0:
    with longboat.checkpoint(3) as folder:
        open(folder + "/weights", "w").close()
with open("/book/signed", "a") as book:
    book.write(f"{attempt} {rank} start\\n")
while sum(row.startswith(f"{attempt} ") for row in open("/book/signed")) < 2:
    time.sleep(0.02)
if attempt == 0:
    os.kill(os.getpid(), 9) if rank == "1" else time.sleep(600)
"""


def pods_of(ground: Ground) -> dict[str, str]:
    """uid -> name of the run's pods."""
    items: list[dict[str, Any]] = ground.api.items(api.path_of("Pod", "v1", ground.namespace))
    return {one["metadata"]["uid"]: one["metadata"]["name"] for one in items}


def has_begun_again(ground: Ground, pod: str) -> bool:
    """Whether the launcher of this pod has put the files of the first attempt aside."""
    try:
        return "0" in Remote(ground.engine.client, ground.namespace, pod).names(f"{NODE}/attempts")
    except LongboatError:
        return False


def lines_of(ground: Ground, attempt: int) -> list[str]:
    query = LogQuery(attempt=attempt)
    return sorted(line.data.decode() for line in ground.engine.logs("job", query) if line.rank >= 0)


def test_a_killed_rank_is_restarted_in_the_same_pods(ground: Ground) -> None:
    """With its number, checkpoint, log lines and exit code; the run ends with the last attempt's."""
    ground.submit(code=TRAINS + "sys.exit(7)", nodes=2, setup="echo once", retries={"count": 1, "backoff": "0s"})
    ended = ground.wait()
    assert (ended.phase, ended.exit_code, ended.attempt) == ("failed", 7, 1), ended.reason
    assert len(pods_of(ground)) == 2, "no other pods"
    first, second = ended.attempts
    assert first.failure is not None and (first.failure.exit_code, first.failure.cause) == (137, "signal")
    assert first.failure.rank is not None and (first.failure.rank.rank, first.failure.rank.node) == (1, "worker-1")
    assert second.failure is not None and second.failure.exit_code == 7
    assert (second.restart, (second.resumed_from or "").rpartition("/")[2]) == ("in-place", "step-3")
    assert restart_words(second, ended.attempts).startswith("restarted in place ")
    assert lines_of(ground, 0) == [f"rank {rank} attempt 0 from ''\n" for rank in range(2)]
    assert lines_of(ground, 1) == [f"rank {rank} attempt 1 from 'step-3'\n" for rank in range(2)]
    everything = list(ground.engine.logs("job", LogQuery()))
    assert [line.data for line in everything if line.stream == "setup"] == [b"once\n"] * 2
    assert len([line for line in everything if line.rank >= 0]) == 4, "each line once"
    facts = ground.engine.explain("job").facts
    assert any("attempt 2: exit, restarted in place" in fact for fact in facts), facts
    ground.remove()


def test_a_pod_that_goes_meanwhile_has_all_made_anew_and_costs_no_retry(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_file, "IN_PLACE_WITHIN_S", 600.0)  # time to take a pod away
    ground.submit(code=TRAINS, nodes=2, retries={"count": 1, "backoff": "60s"})
    ground.until_started(ranks=2)
    before = pods_of(ground)
    assert len(before) == 2
    ground.until(lambda: all(map(partial(has_begun_again, ground), before.values())), "it waits to be restarted")
    gone = next(name for name in before.values() if "-1-" in name)
    ground.api.delete(api.path_of("Pod", "v1", ground.namespace, gone))
    ended = ground.wait()
    assert (ended.phase, ended.exit_code, ended.attempt) == ("succeeded", 0, 1), ended.reason
    assert [(each.number, each.restart) for each in ended.attempts] == [(0, ""), (1, "new")]
    assert len(pods_of(ground).keys() - before.keys()) == 2
    assert lines_of(ground, 1) == [f"rank {rank} attempt 1 from 'step-3'\n" for rank in range(2)]
    ground.remove()
