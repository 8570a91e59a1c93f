"""Leases on a real API server: one holder at a time, dead ones replaced by our own clock, leadership lost in time."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from longboat.kubeapi import leases
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import LeaseExpired
from longboat.kubeapi.kinds import CONFIG_MAP, LEASE
from longboat.kubeapi.leases import Leader, Lease
from testbed.proxy import ApiProxy

pytestmark = pytest.mark.cluster
NAME = "longboat-gate"


class Clock:
    """Time that passes when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(leases, "clock", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def lease_of(client: Client, holder: str, ttl_s: float = 15.0) -> Lease:
    return Lease(client, client.namespace, NAME, holder, ttl_s)


def rewrite(client: Client, **spec: Any) -> None:
    """What another machine, with another clock, would write."""
    found = client.get(LEASE, NAME)
    client.replace({**found, "spec": {**found["spec"], **spec}})


def test_one_holder_at_a_time(client: Client, clock: Clock) -> None:
    one, other = lease_of(client, "one"), lease_of(client, "other")
    assert one.try_hold() and one.is_held
    spec = client.get(LEASE, NAME)["spec"]
    assert spec["holderIdentity"] == one.holder and spec["leaseDurationSeconds"] == 15
    assert not other.try_hold() and not other.is_held
    one.release()
    assert not one.is_held and client.find(LEASE, NAME) is None, "nothing is left behind"
    assert other.try_hold()
    one.release()
    assert client.get(LEASE, NAME)["spec"]["holderIdentity"] == other.holder, "a release twice is nobody's loss"


def test_the_same_name_twice_is_two_holders(client: Client) -> None:
    one, other = lease_of(client, "me"), lease_of(client, "me")
    assert one.try_hold() and not other.try_hold()


def test_a_dead_holder_is_replaced_after_its_time_on_our_clock(client: Client, clock: Clock) -> None:
    dead, heir = lease_of(client, "dead", 15), lease_of(client, "heir")
    assert dead.try_hold()
    # A clock that is an hour behind or a year ahead is none of our business.
    for skewed in ("2001-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"):
        rewrite(client, renewTime=skewed)
        assert not heir.try_hold()
        clock.now += 14
        assert not heir.try_hold()
    clock.now += 2
    assert heir.try_hold()
    assert client.get(LEASE, NAME)["spec"]["leaseTransitions"] == 1
    assert not dead.is_held and not dead.try_hold()


def test_a_holder_that_renews_is_left_alone_for_ever(client: Client, clock: Clock) -> None:
    alive, rival = lease_of(client, "alive"), lease_of(client, "rival")
    assert alive.try_hold()
    acquired = client.get(LEASE, NAME)["spec"]["acquireTime"]
    for _ in range(5):
        clock.now += 10
        assert alive.try_hold() and not rival.try_hold()
    assert client.get(LEASE, NAME)["spec"]["acquireTime"] == acquired


def test_who_stops_renewing_stops_believing_before_another_may_take_it(client: Client, clock: Clock) -> None:
    one, rival = lease_of(client, "one"), lease_of(client, "rival")
    assert one.try_hold() and not rival.try_hold()
    clock.now += 15.0
    assert not one.is_held and not rival.try_hold()
    clock.now += 0.1
    assert rival.try_hold()


def test_an_emptied_lease_is_free(client: Client) -> None:
    one, other = lease_of(client, "one"), lease_of(client, "other")
    assert one.try_hold()
    rewrite(client, holderIdentity="", leaseDurationSeconds=1)
    assert other.try_hold() and not one.try_hold()


def test_where_it_may_not_be_deleted_it_is_emptied(client: Client, proxied: Client, api_proxy: ApiProxy) -> None:
    one = lease_of(proxied, "one")
    assert one.try_hold()
    api_proxy.answer(403, only=lambda request: request.method == "DELETE")
    one.release()
    assert not client.get(LEASE, NAME)["spec"].get("holderIdentity")
    assert lease_of(client, "other").try_hold()


def test_released_it_is_free_at_once(client: Client) -> None:
    one, two = lease_of(client, "one"), lease_of(client, "two")
    assert one.try_hold() and one.is_held and not two.try_hold()
    one.release()
    assert two.try_hold()
    two.release()
    assert client.find(LEASE, NAME) is None


def test_many_at_once_are_inside_one_by_one(client: Client) -> None:
    inside: list[int] = []
    most: list[int] = []
    done: list[int] = []

    def work(number: int) -> None:
        for _ in range(3):
            mine = lease_of(client, f"w{number}")
            while not mine.try_hold():
                time.sleep(0.05 + random.random() / 10)
            inside.append(number)
            client.get(LEASE, NAME)
            most.append(len(inside))
            inside.remove(number)
            done.append(number)
            mine.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 15 and max(most) == 1


def test_leaders_follow_each_other(client: Client) -> None:
    first = Leader(client, client.namespace, "first", ttl_s=60)
    second = Leader(client, client.namespace, "second", ttl_s=6)
    first.start()
    assert first.wait(60)
    second.start()
    assert not second.wait(1) and first.is_leader
    first.stop()
    assert not first.is_leader
    assert second.wait(60)
    assert client.get(LEASE, "longboat-controller")["spec"]["holderIdentity"] == second.identity
    second.stop()
    assert client.find(LEASE, "longboat-controller") is None


def test_a_leader_that_is_cut_off_is_told_and_another_leads(
    client: Client, proxied: Client, api_proxy: ApiProxy
) -> None:
    """The renewal hangs at a server that is frozen; the loss is told all the same."""
    lost = threading.Event()
    first = Leader(proxied, proxied.namespace, "first", ttl_s=3, on_lost=lost.set)
    first.start()
    assert first.wait(60)
    second = Leader(client, client.namespace, "second", ttl_s=3)
    second.start()
    api_proxy.freeze()
    assert second.wait(120)
    assert not first.is_leader
    assert lost.wait(60), "told while the renewal still hangs"
    api_proxy.restore()
    first.stop()
    assert client.get(LEASE, "longboat-controller")["spec"]["holderIdentity"] == second.identity
    second.stop()


def config(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def test_what_was_decided_in_one_term_is_not_written_in_the_next(
    client: Client, proxied: Client, api_proxy: ApiProxy
) -> None:
    first = Leader(proxied, proxied.namespace, "first", ttl_s=3)
    first.start()
    assert first.wait(60)
    left_s = first.remaining_term()
    bounded = proxied.within(left_s)
    bounded.create(config("before"))
    second = Leader(client, client.namespace, "second", ttl_s=3)
    second.start()
    api_proxy.freeze()
    assert second.wait(120)
    assert left_s() == 0.0
    api_proxy.restore()
    with pytest.raises(LeaseExpired):
        bounded.create(config("after"))
    second.stop()
    assert first.wait(60), "it leads again"
    assert left_s() == 0.0 and first.remaining_term()() > 0.0
    with pytest.raises(LeaseExpired):
        bounded.create(config("after"))
    first.stop()
    assert first.remaining_term()() == 0.0 and client.find(CONFIG_MAP, "after") is None


def test_a_renewal_shows_that_nobody_has_held_it_since(client: Client, clock: Clock) -> None:
    one, other = lease_of(client, "one"), lease_of(client, "other")
    assert not one.renew(), "it was never taken"
    assert one.try_hold()
    clock.now += 100
    assert not one.is_held and one.renew() and one.is_held, "late, but nobody came between"
    assert one.renew(30) and client.get(LEASE, NAME)["spec"]["leaseDurationSeconds"] == 30
    rewrite(client, renewTime="2999-01-01T00:00:00.000000Z")
    assert one.renew(), "what was written in our name is ours"
    assert not other.try_hold()
    clock.now += 31
    assert other.try_hold()
    assert not one.renew() and not one.is_held
    other.release()
    assert not one.renew(), "it is free, and what was read under it may still be old"
    assert one.try_hold()
