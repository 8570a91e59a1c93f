"""Pools with flex start on a simulated Google Cloud: all machines of an order at once, or none."""

from __future__ import annotations

import pytest

from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.providers.gcp import provider as gcp_provider
from longboat.autoscaler.providers.gcp.provider import GoogleProvider
from longboat.autoscaler.providers.gcp.resize_requests import MOST_ENDED
from longboat.autoscaler.providers.provider import MachineRequest, ProviderError
from longboat.clusters.cloud.gcp.permissions import autoscaler_role
from tests.clouds.gcp.simulated_google import ZONES, SimulatedGoogle, SimulatedGroup


def flex_pool(google: SimulatedGoogle) -> tuple[SimulatedGroup, GoogleProvider, Pool]:
    group, _ = google.add_pool("gpu", config={"flexStart": True})
    provider = google.provider()
    (pool,) = provider.discover().pools
    return group, provider, pool


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcp_provider, "LOOKS_S", (0.0,))


def order(count: int, token: str = "t") -> MachineRequest:
    return MachineRequest(token=token, count=count, zone=ZONES[0])


def test_all_machines_of_an_order_come_and_once(google: SimulatedGoogle) -> None:
    group, provider, pool = flex_pool(google)
    for _ in range(2):
        made = google.provider().grow(pool, order(4))
        assert len(made) == 4 and {machine.token for machine in made} == {"t"}
    assert len(group.machines) == group.size == 4
    provider.shrink(pool, [machine.id for machine in made])
    assert group.size == 0 and not google.leftovers()


def test_what_is_sold_out_is_waited_for_and_nothing_comes_before_the_rest(google: SimulatedGoogle) -> None:
    group, provider, pool = flex_pool(google)
    group.refusal = "stockout", 3
    waiting = provider.grow(pool, order(4))
    assert [machine.state for machine in waiting] == ["pending"] * 4 and not group.machines
    answer = provider.list([pool])
    assert len(answer.machines) == 4 and answer.refusals == ()
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in answer.machines[0].message
    group.refusal = None
    provider.list([pool])
    answer = provider.list([pool])
    assert {machine.state for machine in answer.machines} == {"running"} and len(group.machines) == 4
    assert {machine.id for machine in answer.machines} == {machine.id for machine in waiting}


@pytest.mark.parametrize("by", ["token", "machine"])
def test_an_order_that_waits_is_taken_back_as_a_whole(google: SimulatedGoogle, by: str) -> None:
    group, provider, pool = flex_pool(google)
    group.refusal = "stockout", 0
    waiting = provider.grow(pool, order(4))
    if by == "token":
        provider.shrink(pool, (), ("t",))
        provider.shrink(pool, (), ("t",))
        assert provider.grow(pool, order(4)) == ()
    else:
        provider.shrink(pool, [waiting[0].id])
    group.refusal = None
    assert provider.list([pool]).machines == () and group.size == 0 and not group.machines


def test_what_fails_is_told_in_googles_words(google: SimulatedGoogle) -> None:
    group, provider, pool = flex_pool(google)
    group.refusal = "quota", 0
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool, order(2))
    assert caught.value.kind == "quota" and "QUOTA_EXCEEDED" in caught.value.message
    (refusal,) = provider.list([pool]).refusals
    assert (refusal.token, refusal.kind, refusal.zone) == ("t", "quota", ZONES[0]) and group.size == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_order_without_an_answer_is_made_once(google: SimulatedGoogle, when: str) -> None:
    group, provider, pool = flex_pool(google)
    google.hiccups = [("POST", "/resizeRequests", 500, when)]
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool, order(2))
    assert caught.value.is_unsettled
    assert len(google.provider().grow(pool, order(2))) == 2 and group.size == 2


def test_requests_that_have_ended_do_not_pile_up(google: SimulatedGoogle) -> None:
    group, provider, pool = flex_pool(google)
    for number in range(MOST_ENDED + 4):
        made = provider.grow(pool, order(1, f"t{number}"))
        provider.shrink(pool, [machine.id for machine in made])
        provider.list([pool])
    assert len(group.resizes) == MOST_ENDED + 1


def test_what_failed_is_kept_until_it_was_told(google: SimulatedGoogle) -> None:
    """More orders than are kept fail between two lists, as in one turn with many gangs; also over a restart."""
    group, provider, pool = flex_pool(google)
    group.refusal = "quota", 0
    tokens = {f"t{number}" for number in range(MOST_ENDED + 4)}
    for token in sorted(tokens):
        with pytest.raises(ProviderError):
            provider.grow(pool, order(1, token))
    provider = google.provider()
    with pytest.raises(ProviderError):
        provider.grow(pool, order(1, "next"))
    assert {refusal.token for refusal in provider.list([pool]).refusals} == tokens | {"next"}
    with pytest.raises(ProviderError):
        provider.grow(pool, order(1, "last"))
    assert len(group.resizes) == MOST_ENDED + 1 and "lblast" in group.resizes


def test_with_the_rights_of_the_role(google: SimulatedGoogle) -> None:
    _, provider, pool = flex_pool(google)
    google.granted = set(autoscaler_role().permissions)
    made = provider.grow(pool, order(2))
    provider.shrink(pool, [machine.id for machine in made], ("t",))
    assert google.denied == []
