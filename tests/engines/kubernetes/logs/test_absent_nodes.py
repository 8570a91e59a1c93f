"""Which logs no pod has any more, of runs whose nodes had one pod after another."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.core.jobs import Job, Retries, Role
from longboat.core.runs import Attempt
from longboat.engines.kubernetes.logs.absent_nodes import absent_nodes
from longboat.engines.kubernetes.observe.snapshot import PodView, pod_view
from longboat.engines.kubernetes.observe.termination import EarlierEnd, NodeEnd, PodEnd
from longboat.engines.kubernetes.records import Record, State
from tests.engines.kubernetes.run_samples import NOW, gone_by, record, retried, running

RECORD = record(retried(3))


def attempts(*replaced: tuple[str, ...] | None) -> tuple[Attempt, ...]:
    """One for each; with the nodes that got other pods, None: all did."""
    return tuple(
        Attempt(number=number, started=NOW + number, restart="" if not number else "new")
        if names is None
        else Attempt(number=number, started=NOW + number, restart="in-place", replaced=names)
        for number, names in enumerate(replaced)
    )


def state_with(*known: Attempt, **fields: Any) -> State:
    first = max(each.number for each in known if each.restart != "in-place")
    return State(**{"phase": "succeeded", "started": NOW, "attempt": first, "attempts": known, **fields})


def over(index: int, last: int, *, successor: int = 0, started: float | None = NOW, **fields: Any) -> PodView:
    """A pod that ended in this attempt with its launcher's word."""
    restarts = tuple(EarlierEnd(attempt=number) for number in range(last))
    said = NodeEnd(attempt=last, exit_code=0, started=started, restarts=restarts)
    return named(gone_by(index, PodEnd(exit_code=0, said=said)), successor, **fields)


def killed(index: int, last: int = 0, *, successor: int = 0, **fields: Any) -> PodView:
    """A pod whose launcher was killed: only one that was restarted in place has left a word."""
    restarts = tuple(EarlierEnd(attempt=number) for number in range(last))
    going = NodeEnd(attempt=last, restarts=restarts) if last else None
    end = PodEnd(exit_code=208, cause="lost", going=going)
    return named(gone_by(index, end, is_killed=True), successor, **fields)


def named(pod: PodView, successor: int, **fields: Any) -> PodView:
    own = {"uid": f"{pod.uid}-{successor}", "successor": successor, "created": NOW + successor}
    return msgspec.structs.replace(pod, **own, **fields)


def absent(run: Record, state: State, *pods: PodView, unread: tuple[PodView, ...] = ()) -> list[tuple[int, str]]:
    found = absent_nodes(run, state, pods, {pod.uid for pod in unread})
    return [(each.number, each.node) for each in found]


REPLACED = state_with(*attempts(None, ("worker-1",), ()))
"""A launcher killed in attempt 0, its pod made anew, and two restarts in place."""


def test_of_a_node_with_two_pods_each_has_its_attempts() -> None:
    first, second = killed(1), over(1, 2, successor=1)
    assert absent(RECORD, REPLACED, over(0, 2), first, second) == []
    assert absent(RECORD, REPLACED, over(0, 2), first) == [(1, "worker-1"), (2, "worker-1")], "the second is gone"
    assert absent(RECORD, REPLACED, over(0, 2), second) == [(0, "worker-1")], "the first is gone"
    both = [(0, "worker-1"), (1, "worker-1"), (2, "worker-1")]
    assert absent(RECORD, REPLACED, over(0, 2)) == both
    assert absent(RECORD, REPLACED, over(0, 2), first, second, unread=(first, second)) == both
    assert len(absent(RECORD, REPLACED)) == 6


def test_seed_801850888() -> None:
    """And then node 0's launcher killed: nobody but it says that there were restarts, and it has a late second pod."""
    state = state_with(*attempts(None, ("worker-1",), (), None), attempt=3)
    anew = [msgspec.structs.replace(over(index, 3), attempt=3, uid=f"anew-{index}") for index in range(2)]
    late = over(0, 0, successor=1, started=None)
    pods = (killed(0, 2), killed(1), *anew)
    assert absent(RECORD, state, *pods, late) == [(1, "worker-1"), (2, "worker-1")]
    assert absent(RECORD, state, *pods, late, unread=(late,)) == [(1, "worker-1"), (2, "worker-1")], "it took no part"
    assert absent(RECORD, state, *pods, over(1, 2, successor=1)) == []


def test_a_pod_that_came_too_late_has_the_log_of_no_attempt() -> None:
    state = state_with(*attempts(None, ()))
    assert absent(RECORD, state, over(0, 1), over(1, 0, successor=1, started=None)) == [
        (0, "worker-1"),
        (1, "worker-1"),
    ]
    took_part = over(1, 0, successor=1)
    assert absent(RECORD, state_with(*attempts(None)), over(0, 0), took_part) == [], "before the ranks had started"


def test_of_an_attempt_that_goes_on_only_pods_that_are_there_are_looked_for() -> None:
    state = State(phase="running", started=NOW, attempts=attempts(None))
    first, second = running(0), running(1)
    assert absent(RECORD, state, first) == []
    assert absent(RECORD, state, first, second, unread=(second,)) == [(0, "worker-1")]
    assert absent(RECORD, msgspec.structs.replace(state, started=None), first, second, unread=(second,)) != []
    later = State(phase="running", started=NOW, attempt=1, attempts=attempts(None, None))
    assert absent(RECORD, later, first) == [(0, "worker-1")]
    assert absent(RECORD, State(phase="stopped")) == [], "no launcher ever spoke"


def test_of_each_node_that_a_pod_was_lost_for() -> None:
    state = state_with(*attempts(None, ("worker-1",), ("worker-1", "worker-9")))
    pods = over(0, 2), killed(1), killed(1, 1, successor=1), over(1, 2, successor=2)
    assert absent(RECORD, state, *pods) == []
    for missing, number in ((1, 0), (2, 1), (3, 2)):
        rest = [pod for at, pod in enumerate(pods) if at != missing]
        assert absent(RECORD, state, *rest) == [(number, "worker-1")]


def test_names_that_are_none_of_the_job_s_do_not_count() -> None:
    state = state_with(*attempts(None, ("../../../secret-0", "worker-9", "")))
    assert absent(RECORD, state, over(0, 1), over(1, 1)) == []
    assert {node for _, node in absent(RECORD, state)} == {"worker-0", "worker-1"}


def test_spares_have_the_nodes_that_they_took() -> None:
    roles = (Role(name="worker", run="x", nodes=2, spares=1),)
    run = record(Job(name="train", roles=roles, ends=("worker",), retries=Retries(count=3)))
    taken = Attempt(number=1, started=NOW, restart="in-place", replaced=("worker-1",), spares={"worker-1": "worker-2"})
    state = state_with(Attempt(number=0, started=NOW), taken)
    first, spare, successor = killed(1), over(2, 1), over(1, 1, successor=1)
    assert absent(run, state, over(0, 1), first, spare, successor) == []
    assert absent(run, state, over(0, 1), first, spare) == []
    assert absent(run, state, over(0, 1), first, successor) == [(1, "worker-1")], "the spare is gone"
    assert absent(run, state, over(0, 1), spare, successor) == [(0, "worker-1")], "who had the node before is gone"


@pytest.mark.parametrize(("notes", "successor"), [({}, 0), ({"batch.kubernetes.io/job-index-failure-count": "2"}, 2)])
def test_how_many_pods_were_before_one(notes: dict[str, str], successor: int) -> None:
    assert pod_view({"metadata": {"name": "p", "annotations": notes}}).successor == successor
