"""Decisions of a service: rolling updates, canaries, scaling, backoff."""

from __future__ import annotations

import random

import pytest

from longboat.serving.local.decide import (
    DOWN_S,
    MOST_FAILURES,
    SURGE,
    Goal,
    ReplicaChanges,
    ReplicaView,
    backoff_s,
    canary_replicas,
    decide,
    needed_replicas,
    scaled,
)


def views(**versions: str) -> list[ReplicaView]:
    """`v1="rr."`: replicas of version 1, ready (r), starting (.), or waiting for a place (w)."""
    return [
        ReplicaView(f"{version}-{index}", int(version[1:]), mark == "r", mark == "w")
        for version, marks in versions.items()
        for index, mark in enumerate(marks)
    ]


def test_a_new_service_starts_all_at_once() -> None:
    assert decide(Goal(1, 3), []) == ReplicaChanges(starts=(1, 1, 1))


@pytest.mark.parametrize(
    ("replicas", "changes"),
    [
        ({"v1": "rr"}, ReplicaChanges(starts=(2,))),
        ({"v1": "rr", "v2": "."}, ReplicaChanges()),  # nobody goes before the new one is ready
        ({"v1": "rr", "v2": "r"}, ReplicaChanges(drains=("v1-0",))),
        ({"v1": "r", "v2": "r"}, ReplicaChanges(starts=(2,))),
        ({"v1": "r", "v2": "r."}, ReplicaChanges()),
        ({"v1": "r", "v2": "rr"}, ReplicaChanges(drains=("v1-0",))),
        ({"v2": "rr"}, ReplicaChanges()),
        ({"v1": "rr", "v2": "w"}, ReplicaChanges(drains=("v1-0",))),  # the machine is full: one makes room
        ({"v1": "r.", "v2": ""}, ReplicaChanges(starts=(2,), drains=("v1-1",))),  # it would take no requests anyway
    ],
)
def test_an_update_of_two_replicas_step_by_step(replicas: dict[str, str], changes: ReplicaChanges) -> None:
    assert decide(Goal(2, 2), views(**replicas)) == changes


def test_a_version_that_may_not_start_yet_keeps_the_old_ones() -> None:
    assert decide(Goal(2, 2, held=frozenset({2})), views(v1="rr")) == ReplicaChanges()


def test_a_failed_version_goes_and_the_good_one_stays() -> None:
    # The new version failed: the goal is the old one again.
    assert decide(Goal(1, 2), views(v1="rr", v2=".")) == ReplicaChanges(drains=("v2-0",))


def test_without_a_version_that_may_serve_everything_goes() -> None:
    assert decide(Goal(None, 2), views(v1=".")) == ReplicaChanges(drains=("v1-0",))


def test_a_canary_stands_beside_and_leaves_the_others_alone() -> None:
    goal = Goal(1, 10, canary=2, weight=20)
    assert decide(goal, views(v1="r" * 10)) == ReplicaChanges(starts=(2, 2))
    assert decide(goal, views(v1="r" * 10, v2="rr")) == ReplicaChanges()
    # Promoted, its replicas are the first of the new version.
    assert decide(Goal(2, 10), views(v1="r" * 10, v2="rr")).drains == ("v1-0", "v1-1")
    # Ended, they go.
    assert set(decide(Goal(1, 10), views(v1="r" * 10, v2="rr")).drains) == {"v2-0", "v2-1"}
    assert canary_replicas(2, 1) == 1


def test_scaling_down_takes_the_idle_first() -> None:
    busy = [ReplicaView("a", 1, True, in_flight=3), ReplicaView("b", 1, True), ReplicaView("c", 1, False)]
    assert decide(Goal(1, 1), busy) == ReplicaChanges(drains=("c", "b"))


@pytest.mark.parametrize("seed", range(50))
def test_an_update_never_leaves_fewer_ready_than_wanted(seed: int) -> None:
    """In whatever order replicas become ready: never fewer ready than wanted, never more than with the surge."""
    chance = random.Random(seed)
    wanted = chance.randint(1, 8)
    replicas = {f"old-{n}": ReplicaView(f"old-{n}", 1, True) for n in range(wanted)}
    number = 0
    for _ in range(300):
        changes = decide(Goal(2, wanted), list(replicas.values()))
        for name in changes.drains:
            del replicas[name]
        for version in changes.starts:
            number += 1
            replicas[f"new-{number}"] = ReplicaView(f"new-{number}", version, False)
        assert sum(replica.is_ready for replica in replicas.values()) >= wanted
        assert len(replicas) <= wanted + SURGE
        starting = [name for name, replica in replicas.items() if not replica.is_ready]
        if starting:
            name = chance.choice(starting)
            replicas[name] = replicas[name]._replace(is_ready=True)
    assert all(replica.version == 2 for replica in replicas.values()) and len(replicas) == wanted


def test_backoff_doubles_up_to_a_minute() -> None:
    assert [backoff_s(number) for number in (0, 1, 2, 3, 7, 100)] == [0.0, 1.0, 2.0, 4.0, 60.0, 60.0]
    assert MOST_FAILURES > 1


def test_needed() -> None:
    assert [needed_replicas(number, 8) for number in (0, 1, 8, 9)] == [0, 1, 1, 2]


def test_scaling_up_needs_a_load_that_lasts() -> None:
    assert scaled([(0.0, 1), (9.5, 1), (10.0, 4)], 10.0, 1, 1, 8) == 1  # one moment of it
    assert scaled([(0.0, 1), (9.5, 4), (10.0, 4)], 10.0, 1, 1, 8) == 4
    assert scaled([(9.5, 40), (10.0, 40)], 10.0, 1, 1, 8) == 8


def test_scaling_down_needs_a_calm_that_lasts() -> None:
    assert scaled([(0.0, 4), (DOWN_S, 1)], DOWN_S, 4, 1, 8) == 4
    assert scaled([(0.0, 1), (DOWN_S, 0)], DOWN_S, 4, 2, 8) == 2
    assert scaled([(DOWN_S - 1, 0), (DOWN_S, 0)], DOWN_S, 4, 1, 8) == 4  # nothing is known of before
    assert scaled([], 0.0, 3, 1, 8) == 3
