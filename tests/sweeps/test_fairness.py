"""Sweeps beside each other and beside single runs, at both gates: nobody waits for a sweep that has more trials.

The decisions are the real ones, of the sweeps and of the gates; trials and the time that they take are counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from longboat.core.jobs import Range, Sweep
from longboat.engines.local.queue.admission import FreeResources, decide_admission
from longboat.sweeps.decide import decide
from longboat.sweeps.drive import BEHIND_SINGLE_RUNS
from longboat.sweeps.trials import SweepTrial
from tests.engines.kubernetes.gate.test_decide import bound, cluster, run, verdicts
from tests.engines.local.values import GiB, ask, gpu, ticket

GPUS = 4
TURNS = 40


class Waiting(NamedTuple):
    name: str
    number: int  # the order in which they came
    priority: int


def on_this_machine(waiting: Sequence[Waiting], held: Sequence[str]) -> list[str]:
    """Who starts now, of those who wait for a GPU each."""
    free = FreeResources(
        gpus=tuple(gpu(f"g{number}", number) for number in range(GPUS - len(held))), cpus=64, memory=GiB
    )
    tickets = [ticket(each.name, each.number, ask(1), priority=each.priority) for each in waiting]
    return [each.run for each in tickets if decide_admission(each, tickets, free) is None]


def in_a_cluster(waiting: Sequence[Waiting], held: Sequence[str]) -> list[str]:
    room = cluster(*(bound(name, "n0", holder=name) for name in held), gpus=GPUS)
    candidates = [run(each.name, created=float(each.number), priority=each.priority) for each in waiting]
    return [name for name, judged in verdicts(candidates, room).items() if judged.action == "let_in"]


@pytest.mark.parametrize("gate", [on_this_machine, in_a_cluster])
def test_a_single_run_is_next_and_two_sweeps_take_turns(
    gate: Callable[[Sequence[Waiting], Sequence[str]], list[str]],
) -> None:
    """Each of the two sweeps could fill all GPUs; a trial takes one turn. A single run comes every eighth turn."""
    sweep = Sweep(space={"x": Range(low=0.0, high=1.0)}, method="random", trials=1000, parallel=GPUS)
    trials: dict[str, list[SweepTrial]] = {"a": [], "b": []}
    waiting: list[Waiting] = []
    held: list[str] = []
    starts: list[tuple[int, str]] = []
    came = 0
    for turn in range(TURNS):
        for name in held:  # what ran has ended
            if name[0] in trials:
                number = int(name[1:])
                known = trials[name[0]]
                known[number - 1] = SweepTrial(
                    number=number, params=known[number - 1].params, run=name, phase="succeeded"
                )
        held.clear()
        for name, known in trials.items():
            assert sum(not trial.is_final for trial in known) <= GPUS, "a sweep has no more under way than `parallel`"
            for point in decide(sweep, name, known, None).start:
                known.append(SweepTrial(number=len(known) + 1, params=point, run=f"{name}{len(known) + 1}"))
                came += 1
                waiting.append(Waiting(known[-1].run, came, BEHIND_SINGLE_RUNS))
        if turn % 8 == 7:
            came += 1
            waiting.append(Waiting(f"single-{turn}", came, 0))
        held += gate(waiting, held)
        assert len(held) == GPUS, "nothing is left idle"
        waiting = [each for each in waiting if each.name not in held]
        starts += [(turn, name) for name in held]
    singles = [(turn, name) for turn, name in starts if name.startswith("single")]
    assert singles == [(turn, f"single-{turn}") for turn in range(7, TURNS, 8)], (
        "a single run starts in the turn it comes in"
    )
    shares = Counter(name[0] for _, name in starts if name[0] in trials)
    assert abs(shares["a"] - shares["b"]) <= 2 * GPUS, shares
