"""The Google provider on a simulated Google Cloud: discovery, zones, late failures, deletion, how often it is asked."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import msgspec
import pytest

from longboat.autoscaler.model.config import AutoscalerConfig
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.observe.instances import list_instances
from longboat.autoscaler.observe.orders import OrderBook
from longboat.autoscaler.providers.gcp import provider as gcp_provider
from longboat.autoscaler.providers.gcp.provider import GoogleProvider
from longboat.autoscaler.providers.provider import MachineRequest, ProviderError
from longboat.autoscaler.providers.registry import discover
from tests.clouds.gcp.simulated_google import PROJECT, REGION, ZONES, SimulatedGoogle, SimulatedGroup


def one_pool(google: SimulatedGoogle, **more: object) -> tuple[SimulatedGroup, GoogleProvider, Pool]:
    group, *_ = google.add_pool("gpu", **more)
    provider = google.provider()
    (pool,) = provider.discover().pools
    return group, provider, pool


def order(count: int, token: str = "t") -> MachineRequest:
    return MachineRequest(token=token, count=count, zone=ZONES[0])


def test_pools_are_discovered_from_the_cloud(google: SimulatedGoogle) -> None:
    google.add_pool("gpu", most=8, labels={"team": "vision"}, sizes={"longboat-min": "1"})
    google.add_pool("spot", "e2-standard-4", zones=ZONES[:1], config={"spot": True})
    google.add_pool(None)
    google.add_pool("theirs", autoscaling={"enabled": True})
    google.add_pool("endless", most=None)
    google.add_pool("spot", "e2-standard-4", config={"spot": True})
    there = google.provider().discover()
    gpu, spot = there.pools
    assert (gpu.name, gpu.provider, gpu.min, gpu.max, gpu.zones, gpu.spot) == ("gpu", "gcp", 1, 8, ZONES, False)
    assert gpu.machine.has("nvidia.com/gpu") == 8 and 206_000 < gpu.machine.has("cpu") < 208_000
    assert gpu.machine.labels["team"] == "vision" and gpu.machine.labels["topology.kubernetes.io/region"] == REGION
    assert gpu.machine.labels["cloud.google.com/gke-accelerator"] == "nvidia-h100-80gb"
    assert [taint.key for taint in gpu.machine.taints] == ["nvidia.com/gpu"], "GKE's own"
    assert spot.spot and spot.price == 0.134 and spot.machine.labels["cloud.google.com/gke-spot"] == "true"
    notes = " ".join(there.notes)
    for words in (
        "no label longboat.dev/pool",
        "GKE's own autoscaler",
        "no label longboat-max",
        "is the pool spot already",
    ):
        assert words in notes


def test_growth_is_for_spot_machines(google: SimulatedGoogle) -> None:
    google.add_pool("gpu")
    google.add_pool("spot", "e2-standard-4", zones=ZONES[:1], config={"spot": True})
    settings = google.provider().settings
    for growth_s in (0.0, 2700.0):
        pools, _ = discover((), {"gcp": msgspec.structs.replace(settings, growth_s=growth_s)})
        assert [(pool.name, pool.growth_s) for pool in pools] == [("gpu", 0.0), ("spot", growth_s)]


def test_a_machine_is_known_as_its_node_is(google: SimulatedGoogle) -> None:
    group, provider, pool = one_pool(google)
    (machine,) = provider.grow(pool, order(1, "0123456789abcdef"))
    name = group.name.removesuffix("-grp") + "-lb0123456789abcdef-0"
    assert (machine.id, machine.node) == (f"gce://{PROJECT}/{ZONES[0]}/{name}", name)


def test_an_order_that_fails_later_is_a_refusal_in_googles_words(google: SimulatedGoogle) -> None:
    group, provider, pool = one_pool(google)
    google.is_slow = True
    assert [machine.state for machine in provider.grow(pool, order(2))] == ["pending"] * 2
    first, second = group.machines.values()
    error = {"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "The zone does not have enough H100s"}
    second["lastAttempt"] = {"errors": {"errors": [error]}}
    google.settle()
    answer = google.provider().list([pool])
    (refusal,) = answer.refusals
    assert (refusal.token, refusal.kind, refusal.zone) == ("t", "stockout", ZONES[0])
    assert "ZONE_RESOURCE_POOL_EXHAUSTED: The zone does not have enough H100s" in refusal.message
    assert [machine.state for machine in answer.machines] == ["running", "failed"]
    google.is_slow = False
    provider.shrink(pool, [answer.machines[1].id])
    assert [*group.machines.values()] == [first] and group.size == 1


def test_an_order_of_which_some_machines_are_made(google: SimulatedGoogle) -> None:
    """The group would go on trying to make the others: they are taken out of it."""
    group, provider, pool = one_pool(google)
    group.refusal = "stockout", 1
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool, order(3))
    assert caught.value.kind == "stockout"
    assert f"in {ZONES[0]}: ZONE_RESOURCE_POOL_EXHAUSTED: The zone" in caught.value.message
    (machine,) = provider.list([pool]).machines
    assert machine.token == "t" and group.size == 1
    group.refusal = None
    assert len(google.provider().grow(pool, order(3))) == 3, "what was begun is finished"
    assert group.size == 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_order_without_an_answer_is_unsettled_and_made_once(google: SimulatedGoogle, when: str) -> None:
    group, provider, pool = one_pool(google)
    google.hiccups = [("POST", "/createInstances", 503, when)]
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool, order(2))
    assert caught.value.kind == "throttled" and caught.value.is_unsettled
    for _ in range(2):
        assert len(google.provider().grow(pool, order(2))) == 2
    assert len(group.machines) == group.size == 2


def test_a_note_about_an_order_leaves_named_ports_of_others(
    google: SimulatedGoogle, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, provider, pool = one_pool(google, zones=ZONES[:1])
    real = provider._ports

    def meanwhile(each: object) -> object:
        there = real(each)
        if len(group.ports) == 1:
            group.ports.append({"name": "grpc", "port": 30090})
        return there

    monkeypatch.setattr(provider, "_ports", meanwhile)
    provider.shrink(pool, (), ("t",))
    assert [port["name"] for port in group.ports] == ["http", "grpc", "longboat-cancelled-t"]
    assert google.provider().grow(pool, order(2)) == () and not group.machines


def test_a_cancellation_that_no_group_has_noted_is_no_success(google: SimulatedGoogle) -> None:
    group, provider, pool = one_pool(google)
    google.hiccups = [("POST", f"{group.name}/setNamedPorts", 412, "before")] * gcp_provider.ATTEMPTS
    with pytest.raises(ProviderError, match=f"{group.name} is changed by others") as caught:
        provider.shrink(pool, (), ("t",))
    assert caught.value.kind == "throttled" and not google.hiccups
    provider.shrink(pool, (), ("t",))
    assert provider.grow(pool, order(2)) == () and not group.machines


def test_machines_go_with_their_disks_and_stay_listed_until_then(google: SimulatedGoogle) -> None:
    group, provider, pool = one_pool(google)
    first, second = provider.grow(pool, order(2))
    google.is_slow = True
    for _ in range(2):
        provider.shrink(pool, [first.id])
    states = {machine.id: machine.state for machine in provider.list([pool]).machines}
    assert states == {first.id: "stopping", second.id: "running"} and group.size == 1
    google.settle()
    assert [machine.id for machine in provider.list([pool]).machines] == [second.id] and not google.leftovers()


def test_a_node_pool_keeps_its_min(google: SimulatedGoogle) -> None:
    group, provider, pool = one_pool(google, sizes={"longboat-min": "1"})
    first, second = provider.grow(pool, order(2))
    with pytest.raises(ProviderError) as caught:
        provider.shrink(pool, [first.id, second.id])
    assert caught.value.kind == "min-size" and len(group.machines) == 1
    (machine,) = provider.list([pool]).machines
    assert machine.kept == "its node pool is at its min of 1"


def test_a_spot_machine_that_is_taken_back_is_seen(google: SimulatedGoogle) -> None:
    group, provider, pool = one_pool(google, config={"spot": True})
    first, second = provider.grow(pool, order(2))
    group.machines[str(first.node)]["instanceStatus"] = "STOPPING"
    states = {machine.id: machine for machine in provider.list([pool]).machines}
    assert states[first.id].state == "stopping" and "Google takes it back" in states[first.id].message
    assert states[second.id].state == "running"


def test_a_token_that_expired_and_a_key_file_that_is_none(
    google: SimulatedGoogle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, provider, pool = one_pool(google)
    google.token = secrets.token_hex(16)
    with pytest.raises(ProviderError) as caught:
        provider.list([pool])
    assert caught.value.kind == "auth"
    (tmp_path / "bad.json").write_text("{}")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "bad.json"))
    with pytest.raises(ProviderError) as caught:
        google.provider().list([pool])
    assert caught.value.kind == "auth" and "NoCredentials" in caught.value.message and "\n" not in caught.value.message


def test_a_loop_with_three_pools_and_500_machines_asks_ten_times_at_most(google: SimulatedGoogle) -> None:
    for name in ("a", "b", "c"):
        google.add_pool(name, "e2-standard-4", most=500)
    provider = google.provider()
    pools = provider.discover().pools
    for pool, count in zip(pools, (300, 150, 50)):
        provider.grow(pool, order(count))
    google.taken()
    seen = list_instances({"gcp": provider}, AutoscalerConfig(pools=pools), OrderBook(), time.time())
    assert len(seen.seen.machines) == 500 and not seen.blind
    assert google.taken() == ["POST listManagedInstances"] * 6
