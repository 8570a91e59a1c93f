"""A pod of a gang that is taken away while it runs: its Job makes another one, and the others keep theirs."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from longboat.core.runs import RunStatus
from longboat.engines.shared.explanations import restart_words
from testbed import api
from tests.engines.kubernetes.faults.grounds import Ground
from tests.engines.kubernetes.faults.losses import unfinished
from tests.engines.kubernetes.faults.test_restarts import lines_of, pods_of
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
while sum(row.startswith(f"{attempt} ") for row in open("/book/signed")) < 3:
    time.sleep(0.02)
if attempt == 0:
    time.sleep(600)
"""


def begun(ground: Ground, **fields: Any) -> dict[str, str]:
    """uid -> name of the pods of a run of three nodes whose ranks have started."""
    ground.submit(code=TRAINS, nodes=3, setup="echo prepared", grace="2s", **fields)
    ground.until_started(ranks=3)
    pods = pods_of(ground)
    assert len(pods) == 3
    return pods


def take_away(ground: Ground, pods: dict[str, str], index: int) -> str:
    name = next(name for name in pods.values() if f"-{index}-" in name)
    ground.api.delete(api.path_of("Pod", "v1", ground.namespace, name))
    return name


def is_waited_for(status: RunStatus) -> bool:
    return status.phase == "recovering" and status.attempt == 1


def test_a_pod_that_is_deleted_is_replaced_alone(ground: Ground) -> None:
    before = begun(ground, retries={"count": 2, "backoff": "0s"})
    gone = take_away(ground, before, 1)
    ended = ground.wait()
    assert (ended.phase, ended.exit_code, ended.attempt) == ("succeeded", 0, 1), ended.reason
    after = pods_of(ground)
    assert before.keys() - after.keys() == {uid for uid, name in before.items() if name == gone}, "the others stayed"
    assert len(after) == 3
    first, second = ended.attempts
    assert first.failure is not None and (first.failure.cause, first.failure.exit_code) == ("preemption", 208)
    assert (second.restart, second.replaced, (second.resumed_from or "").rpartition("/")[2]) == (
        "in-place",
        ("worker-1",),
        "step-3",
    )
    words = restart_words(second, ended.attempts)
    assert words.startswith("worker-1 replaced, the others restarted in place ") and words.endswith("after the failure")
    assert lines_of(ground, 0) == [f"rank {rank} attempt 0 from ''\n" for rank in range(3)], (
        "also of the pod that is gone"
    )
    assert lines_of(ground, 1) == [f"rank {rank} attempt 1 from 'step-3'\n" for rank in range(3)]
    facts = ground.engine.explain("job").facts
    assert any("worker-1 replaced" in fact for fact in facts), facts
    ground.remove()


def test_a_stop_while_the_others_wait_for_it(ground: Ground) -> None:
    """For ten seconds its Job makes no other one."""
    before = begun(ground, retries={"count": 2, "backoff": "0s"})
    take_away(ground, before, 2)
    ground.until(lambda: is_waited_for(ground.engine.status("job")), "the others wait")
    ground.engine.stop("job")
    ended = ground.wait()
    assert (ended.phase, ended.attempt) == ("stopped", 0), ended.reason
    ground.remove()


def test_node_0_that_is_deleted_has_all_made_anew(ground: Ground) -> None:
    before = begun(ground, retries={"count": 2, "backoff": "0s"})
    take_away(ground, before, 0)
    ended = ground.wait()
    assert (ended.phase, ended.exit_code, ended.attempt) == ("succeeded", 0, 1), ended.reason
    assert ended.attempts[1].restart == "new" and not any(
        name.startswith("job-a0") and uid not in before for uid, name in pods_of(ground).items()
    )
    ground.remove()


def kill_launcher(uid: str, index: int) -> None:
    """The nodes share this machine: the launcher is the parent of its rank, and the first process of its container."""
    wanted = {f"LONGBOAT_RUN_UID={uid}".encode(), f"RANK={index}".encode()}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if b"launcher.pyz" in Path(f"/proc/{parent}/cmdline").read_bytes():
                    os.kill(parent, signal.SIGKILL)
                    return
    raise AssertionError(f"no launcher of rank {index}")


def test_a_launcher_that_is_killed_is_replaced_alone(ground: Ground) -> None:
    before = begun(ground, retries={"count": 2, "backoff": "0s"})
    kill_launcher(ground.engine.status("job").uid, 1)
    ended = ground.wait()
    assert (ended.phase, ended.exit_code, ended.attempt) == ("succeeded", 0, 1), ended.reason
    after = pods_of(ground)
    (new,) = after.keys() - before.keys()
    assert "-1-" in after[new] and before.keys() <= after.keys(), "the one that was killed stays, with its log"
    first, second = ended.attempts
    assert first.failure is not None and (first.failure.cause, first.failure.exit_code) == ("lost", 208)
    assert "worker-1 was killed" in first.failure.message
    assert (second.restart, second.replaced) == ("in-place", ("worker-1",))
    assert lines_of(ground, 0) == [f"rank {rank} attempt 0 from ''\n" for rank in range(3)]
    assert lines_of(ground, 1) == [f"rank {rank} attempt 1 from 'step-3'\n" for rank in range(3)]
    ground.remove()


def test_a_launcher_that_is_killed_where_nothing_is_restarted_in_place(ground: Ground) -> None:
    """The others are told once: what is told again while it ends counts as out of reach, and its pod is deleted."""
    before = begun(ground, retries={"count": 2, "backoff": "0s", "restart": "new"})
    kill_launcher(ground.engine.status("job").uid, 1)
    ended = ground.wait()
    assert (ended.phase, ended.exit_code, ended.attempt) == ("succeeded", 0, 1), ended.reason
    first, second = ended.attempts
    assert second.restart == "new" and first.failure is not None
    assert (first.failure.cause, first.failure.exit_code) == ("lost", 208) and "worker-1" in first.failure.message
    assert before.keys() <= pods_of(ground).keys(), "with their logs"
    assert lines_of(ground, 0) == [f"rank {rank} attempt 0 from ''\n" for rank in range(3)]
    assert lines_of(ground, 1) == [f"rank {rank} attempt 1 from 'step-3'\n" for rank in range(3)]
    ground.remove()


def test_a_launcher_of_node_0_that_is_killed_has_all_made_anew(ground: Ground) -> None:
    """And the pod that its Job makes all the same takes no part."""
    begun(ground, retries={"count": 2, "backoff": "0s"})
    kill_launcher(ground.engine.status("job").uid, 0)
    ended = ground.wait()
    assert (ended.phase, ended.exit_code, ended.attempt) == ("succeeded", 0, 1), ended.reason
    first, second = ended.attempts
    assert second.restart == "new" and first.failure is not None and first.failure.cause == "lost"
    assert "worker-0" in first.failure.message
    ground.until(lambda: not unfinished(ground, 0), "a second pod of node 0 is gone")
    assert lines_of(ground, 1) == [f"rank {rank} attempt 1 from 'step-3'\n" for rank in range(3)]
    ground.remove()
