"""The index of nodes by best fit stays true while pods come and go."""

from __future__ import annotations

import random

import pytest

from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod
from longboat.fitting.packing import Placement, place, take
from tests.fitting.bodies import (
    GPU,
    gang,
    node,
)


@pytest.mark.parametrize("seed", range(3))
def test_the_index_of_a_large_fleet_keeps_up(seed: int) -> None:
    """Few nodes change between two looks, pods leave as well as come: the same answers as from a fresh fleet."""
    chance = random.Random(seed)
    shapes = [node(f"n{number:02}", {GPU: chance.choice("48"), "cpu": chance.choice("48")}) for number in range(60)]
    fleet = Fleet(shapes)
    there: list[Pod] = []
    for number in range(80):
        requests = {"cpu": chance.choice("12"), **({GPU: chance.choice("124")} if chance.random() < 0.7 else {})}
        wanted = gang(chance.randint(1, 6), requests, name=f"g{number}")
        fresh = Fleet(shapes)
        for one in there:
            state = fleet.where(one)
            assert state is not None
            fresh.add(one, fresh.states[state.name])
        assert place(wanted, fleet) == place(wanted, fresh)
        if isinstance(take(wanted, fleet), Placement):
            there += wanted
        for one in chance.sample(there, min(len(there), chance.randint(0, 6))):
            fleet.remove(one)
            there.remove(one)
