"""What follows a version that has failed, and where there is nothing to go back to."""

from __future__ import annotations

import msgspec
import pytest

from longboat.core.errors import Refused
from longboat.core.jobs import Serve
from longboat.serving.local import rollout
from longboat.serving.local.records import ServiceState
from tests.serving.local.test_status import VERSIONS, WANTED, replicas

FAILED = ServiceState(good=1, failed={2: "no such model"})
FIRST, SECOND = VERSIONS
OWN = msgspec.structs.replace(
    WANTED,
    serve=Serve(replicas=3, ready="/new"),
    versions=(msgspec.structs.replace(FIRST, serve=Serve(replicas=1, ready="/old")), SECOND),
)


def test_a_failed_version_gives_nothing_on() -> None:
    assert rollout.serving_version(OWN, FAILED).number == 1
    assert rollout.serving_settings(OWN, FAILED) == Serve(replicas=3, ready="/old")
    assert rollout.serving_settings(OWN, ServiceState(good=1)) == OWN.serve
    given_up = rollout.without_failed(OWN, FAILED)
    assert (given_up.current, given_up.serve.ready) == (1, "/old")
    assert rollout.without_failed(OWN, ServiceState(good=1)) == OWN, "one that is on its way goes on"


@pytest.mark.parametrize("good", [None, 7])
def test_where_there_is_nothing_to_go_back_to(good: int | None) -> None:
    state = ServiceState(good=good, failed={2: "no such model"})
    assert rollout.serving_number(OWN, state) == 2
    with pytest.raises(Refused, match="nothing that a canary could go beside: no such model"):
        rollout.without_failed(OWN, state)


def test_the_last_change_is_what_is_waited_for() -> None:
    beside = msgspec.structs.replace(OWN, current=2, canary=3, versions=(*OWN.versions, VERSIONS[0]))
    assert (rollout.asked_number(OWN), rollout.asked_number(beside)) == (2, 3)
    assert rollout.failure_of(OWN, 1, FAILED) is None
    assert str(rollout.failure_of(OWN, 2, FAILED)) == "train:20 takes no requests: no such model"
    there = msgspec.structs.replace(FAILED, replicas=replicas("3:ready"))
    assert rollout.is_canary_there(beside, there) and not rollout.is_canary_there(beside, FAILED)


def test_a_canary_changes_nothing_for_the_others_until_it_is_promoted() -> None:
    canary = msgspec.structs.replace(SECOND, number=3, serve=Serve(replicas=5, ready="/canary"))
    wanted = msgspec.structs.replace(OWN, current=1, versions=(*OWN.versions, canary))
    assert canary.serve is not None
    beside = rollout.rolled(wanted, 3, canary.serve, 10)
    assert (beside.current, beside.canary, beside.serve) == (1, 3, Serve(replicas=5, ready="/new"))
    beside = msgspec.structs.replace(beside, serve=Serve(replicas=2, ready="/new"))  # scaled meanwhile
    taken = rollout.promoted(beside)
    assert (taken.current, taken.canary, taken.serve) == (3, None, Serve(replicas=2, ready="/canary"))
