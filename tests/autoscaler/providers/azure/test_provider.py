"""The Azure provider on a simulated Azure: discovery, zones, late failures, deletion, how often it is asked."""

from __future__ import annotations

import secrets
import time

import pytest

from longboat.autoscaler.model.config import AutoscalerConfig
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.observe.instances import list_instances
from longboat.autoscaler.observe.orders import OrderBook
from longboat.autoscaler.providers.azure import leftovers, scale_sets
from longboat.autoscaler.providers.azure import provider as azure_provider
from longboat.autoscaler.providers.azure.provider import AzureProvider
from longboat.autoscaler.providers.provider import MachineRequest, ProviderError
from longboat.fitting.model.nodes import Taint
from tests.clouds.azure.simulated_azure import GROUP, NODES, ZONES, SimulatedAzure, SimulatedSet


def one_pool(azure: SimulatedAzure, **more: object) -> tuple[SimulatedSet, AzureProvider, Pool]:
    there = azure.add_pool("gpu", zone="1", **more)
    provider = azure.provider()
    (pool,) = provider.discover().pools
    return there, provider, pool


def order(count: int, token: str = "t") -> MachineRequest:
    return MachineRequest(token=token, count=count, zone=ZONES[0])


def test_pools_are_discovered_from_the_cloud(azure: SimulatedAzure) -> None:
    labels, spot = {"team": "vision"}, {"scaleSetPriority": "Spot"}
    for zone in "12":
        azure.add_pool("gpu", zone=zone, most=4, labels=labels, nodeTaints=["nvidia.com/gpu=present:NoSchedule"])
    azure.add_pool("spot", "Standard_NC24ads_A100_v4", zone="1 2", tags={"min": "1"}, **spot)
    azure.add_pool(None)
    azure.add_pool("theirs", enableAutoScaling=True)
    azure.add_pool("endless", most=None)
    azure.add_pool("unknown", "Standard_Nothing")
    there = azure.provider().discover()
    gpu, spot_pool = there.pools
    assert (gpu.name, gpu.provider, gpu.min, gpu.max, gpu.zones, gpu.spot) == ("gpu", "azure", 0, 8, ZONES, False)
    assert gpu.machine.has("nvidia.com/gpu") == 8 and 94_000 < gpu.machine.has("cpu") < 96_000
    assert gpu.machine.labels["team"] == "vision" and gpu.price == 98.32
    assert gpu.machine.taints == (Taint(key="nvidia.com/gpu", effect="NoSchedule", value="present"),)
    assert (spot_pool.spot, spot_pool.zones, spot_pool.min) == (True, (), 1)
    assert spot_pool.machine.taints[0].key == "kubernetes.azure.com/scalesetpriority"
    notes = " ".join(there.notes)
    for words in ("no label longboat.dev/pool", "AKS's own autoscaler", "no tag max", "does not know its size"):
        assert words in notes
    assert "lies in several zones, Azure chooses among them" in notes


def test_scale_sets_of_ones_own_need_no_aks(azure: SimulatedAzure) -> None:
    azure.is_aks = False
    template = "k8s.io_cluster-autoscaler_node-template_"
    tags = {
        "longboat-cluster": "metal", "max": "3", f"{template}label_longboat.dev_pool": "own",
        f"{template}label_my~2team": "a", f"{template}taint_only": "gpus:NoSchedule",
        f"{template}resources_rdma_hca": "1",
    }  # fmt: skip
    azure.add_set("own", "Standard_D4s_v5", ["1"], tags)
    azure.add_set("theirs", "Standard_D4s_v5", ["1"], {**tags, "longboat-cluster": "another"})
    provider = azure.provider("metal")
    (pool,) = provider.discover().pools
    assert pool.name == "own" and pool.machine.labels["my_team"] == "a" and pool.machine.has("rdma/hca") == 1
    (machine,) = provider.grow(pool, order(1))
    assert f"/resourceGroups/{GROUP}/" in machine.id
    provider.shrink(pool, [machine.id])
    assert provider.list([pool]).machines == () and azure.leftovers() == []


def test_a_machine_is_known_as_its_node_is(azure: SimulatedAzure) -> None:
    there, provider, pool = one_pool(azure)
    (machine,) = provider.grow(pool, order(1))
    name = there.body["name"]
    path = (
        f"/resourceGroups/{NODES.lower()}/providers/Microsoft.Compute/virtualMachineScaleSets/{name}/virtualMachines/0"
    )
    assert machine.id.startswith("azure:///subscriptions/") and machine.id.endswith(path)
    assert machine.node == f"{name}000000" and machine.zone == ZONES[0] and machine.created is not None


def test_an_order_that_fails_later_is_a_refusal_in_azures_words(azure: SimulatedAzure) -> None:
    """Seen by another process too, and what failed does not come by surprise when the next order is sent."""
    there, provider, pool = one_pool(azure)
    azure.is_slow = True
    assert provider.grow(pool, order(3)) == ()
    azure.settle()
    there.machines.pop("2")  # two of three came
    there.body["properties"]["provisioningState"] = "Failed"
    there.failure = ("ZonalAllocationFailed", "No capacity for Standard_ND96isr_H100_v5")
    answer = azure.provider().list([pool])
    (refusal,) = answer.refusals
    assert (refusal.token, refusal.kind, refusal.zone) == ("t", "stockout", ZONES[0])
    assert "ZonalAllocationFailed: No capacity for Standard_ND96isr_H100_v5" in refusal.message
    assert [machine.token for machine in answer.machines] == ["t", "t"] and there.capacity == 3
    azure.is_slow = False
    azure.provider().grow(pool, order(1, "u"))
    assert len(there.machines) == there.capacity == 3
    answer = azure.provider().list([pool])
    assert sorted(str(machine.token) for machine in answer.machines) == ["t", "t", "u"]
    assert [(refusal.token, refusal.kind) for refusal in answer.refusals] == [("t", "stockout")]


@pytest.mark.parametrize("leaves", [False, True], ids=["none is there", "failed ones are there"])
def test_an_order_of_which_some_machines_are_made(azure: SimulatedAzure, leaves: bool) -> None:
    there, provider, pool = one_pool(azure)
    there.refusal = "stockout", 1, leaves
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool, order(3))
    assert caught.value.kind == "stockout" and f"in {ZONES[0]}: ZonalAllocationFailed" in caught.value.message
    (machine,) = provider.list([pool]).machines
    assert machine.token == "t" and there.capacity == 1 and azure.leftovers() == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_order_without_an_answer_is_unsettled_and_made_once(azure: SimulatedAzure, when: str) -> None:
    there, provider, pool = one_pool(azure)
    azure.hiccups = [("PATCH", "/virtualMachineScaleSets/", 500, when)]
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool, order(2))
    assert caught.value.kind == "throttled" and caught.value.is_unsettled
    for _ in range(2):
        assert len(azure.provider().grow(pool, order(2))) == 2
    assert len(there.machines) == there.capacity == 2


def test_an_order_that_filled_its_set_is_not_made_in_another_one(azure: SimulatedAzure) -> None:
    """Its answer was lost; the next set of the same zone does not know the token."""
    first, second = sorted(
        (azure.add_pool("gpu", zone="1", most=2) for _ in range(2)), key=lambda each: each.body["name"]
    )
    (pool,) = azure.provider().discover().pools
    azure.hiccups = [("PATCH", "/virtualMachineScaleSets/", 500, "after")]
    with pytest.raises(ProviderError) as caught:
        azure.provider().grow(pool, order(2))
    assert caught.value.is_unsettled
    assert len(azure.provider().grow(pool, order(2))) == 2
    assert (first.capacity, second.capacity) == (2, 0)
    azure.provider().grow(pool, order(2, "u"))
    assert (first.capacity, second.capacity) == (2, 2), "an order of its own has the other set"


def test_an_order_goes_to_a_set_with_room_for_all_of_it(azure: SimulatedAzure) -> None:
    sets = [azure.add_pool("gpu", zone=zone, most=most) for zone, most in (("1", 2), ("1", 3), ("2", 9))]
    provider = azure.provider()
    (pool,) = provider.discover().pools
    provider.grow(pool, order(3))
    assert [each.capacity for each in sets] == [0, 3, 0]
    with pytest.raises(ProviderError, match="room for 3 machines: .* has . of at most .") as caught:
        provider.grow(pool, order(3, "u"))
    assert caught.value.kind == "stockout" and not caught.value.is_unsettled
    assert [each.capacity for each in sets] == [0, 3, 0]
    provider.grow(pool, order(2, "v"))
    assert [each.capacity for each in sets] == [2, 3, 0]


def test_a_set_that_failed_has_room_for_what_was_never_made(azure: SimulatedAzure) -> None:
    there, provider, pool = one_pool(azure, most=3)
    azure.is_slow = True
    provider.grow(pool, order(3))
    azure.settle()
    azure.is_slow = False
    there.machines.pop("2")
    there.body["properties"]["provisioningState"] = "Failed"
    there.failure = ("ZonalAllocationFailed", "No capacity")
    provider.grow(pool, order(1, "u"))
    assert len(there.machines) == there.capacity == 3


def test_a_cancellation_that_no_set_has_noted_is_no_success(azure: SimulatedAzure) -> None:
    sets = [azure.add_pool("gpu", zone="1") for _ in range(2)]
    provider = azure.provider()
    (pool,) = provider.discover().pools
    changed = min(each.body["name"] for each in sets)
    azure.hiccups = [("PATCH", f"/virtualMachineScaleSets/{changed}", 412, "before")] * azure_provider.ATTEMPTS
    with pytest.raises(ProviderError, match=f"{changed} is changed by others") as caught:
        provider.shrink(pool, (), ("t",))
    assert caught.value.kind == "throttled"
    noted = {each.body["name"]: each.body["tags"].get(scale_sets.CANCELLED_TAG) for each in sets}
    assert noted.pop(changed) is None and [*noted.values()] == ["t"], "the others have it"
    provider.shrink(pool, (), ("t",))
    assert provider.grow(pool, order(2)) == () and sum(each.capacity for each in sets) == 0


def test_an_accepted_order_stays_so_when_its_operation_cannot_be_asked(azure: SimulatedAzure) -> None:
    there, provider, pool = one_pool(azure)
    azure.hiccups = [("GET", "/operations/", 429, "before"), ("GET", "/operations/", 500, "before")]
    assert provider.grow(pool, order(2)) == ()
    assert len(there.machines) == 2


def test_two_that_order_at_once_lose_nothing(azure: SimulatedAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    """The set has changed between the look and the order: it is looked at again."""
    there, provider, pool = one_pool(azure)
    real, other = scale_sets.with_order, azure.provider()

    def meanwhile(*arguments: object) -> object:
        monkeypatch.setattr(azure_provider, "with_order", real)
        other.grow(pool, order(1, "u"))
        return real(*arguments)

    monkeypatch.setattr(azure_provider, "with_order", meanwhile)
    provider.grow(pool, order(2))
    tokens = sorted(str(machine.token) for machine in provider.list([pool]).machines)
    assert tokens == ["t", "t", "u"] and there.capacity == 3


def test_lists_that_differ_are_not_believed(azure: SimulatedAzure) -> None:
    """Of a set that failed: by a list that lacks a machine the capacity would fall, and Azure delete one."""
    there, provider, pool = one_pool(azure)
    provider.grow(pool, order(3))
    there.body["properties"]["provisioningState"], there.hidden = "Failed", 1
    for change in (lambda: provider.grow(pool, order(1, "u")), lambda: provider.shrink(pool, (), ("t",))):
        with pytest.raises(ProviderError, match="differ in this moment") as caught:
            change()
        assert caught.value.kind == "throttled"
    there.hidden = 0
    provider.grow(pool, order(1, "u"))
    assert len(there.machines) == there.capacity == 4


def test_a_machine_is_listed_until_it_its_disk_and_its_network_interface_are_gone(
    azure: SimulatedAzure, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, provider, pool = one_pool(azure)
    first, second = provider.grow(pool, order(2))
    azure.is_slow = azure.keeps_disks = True
    provider.shrink(pool, [first.id])
    assert {machine.id: machine.state for machine in provider.list([pool]).machines} == {
        first.id: "stopping",
        second.id: "running",
    }
    azure.settle()
    states = {machine.id: machine for machine in provider.list([pool]).machines}
    assert states[first.id].state == "stopping" and "its disk" in states[first.id].message
    monkeypatch.setattr(leftovers, "PATIENCE_S", 0.0)
    (late,) = [machine for machine in provider.list([pool]).machines if machine.id == first.id]
    assert late.state == "failed", "so that it is deleted again"
    provider.shrink(pool, [first.id])
    assert [machine.id for machine in provider.list([pool]).machines] == [second.id]
    assert azure.leftovers() == [] and there.capacity == 1


def test_a_set_keeps_its_min(azure: SimulatedAzure) -> None:
    there, provider, pool = one_pool(azure, tags={"min": "1"})
    first, second = provider.grow(pool, order(2))
    with pytest.raises(ProviderError) as caught:
        provider.shrink(pool, [first.id, second.id])
    assert caught.value.kind == "min-size" and len(there.machines) == 1
    (machine,) = provider.list([pool]).machines
    assert machine.kept == "its scale set is at its min of 1"


def test_a_spot_machine_that_was_taken_back_has_failed(azure: SimulatedAzure) -> None:
    there, provider, pool = one_pool(azure, scaleSetPriority="Spot")
    provider.grow(pool, order(1))
    there.machines["0"]["properties"]["instanceView"]["statuses"] = [{"code": "PowerState/deallocated"}]
    (machine,) = provider.list([pool]).machines
    assert machine.state == "failed" and "Azure took it back" in machine.message


def test_a_token_that_expired_is_told(azure: SimulatedAzure) -> None:
    _, provider, pool = one_pool(azure)
    azure.token = secrets.token_hex(16)
    with pytest.raises(ProviderError) as caught:
        provider.list([pool])
    assert caught.value.kind == "auth" and "ExpiredAuthenticationToken" in caught.value.message


def test_without_credentials_and_without_a_subscription(azure: SimulatedAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, pool = one_pool(azure)
    monkeypatch.delenv("IDENTITY_HEADER")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "WorkloadIdentityCredential")
    with pytest.raises(ProviderError) as caught:
        azure.provider().list([pool])
    assert caught.value.kind == "auth" and "NoCredentials" in caught.value.message and "\n" not in caught.value.message
    provider = AzureProvider("azure", type(azure.provider().settings)(cloud="azure", cluster="c", resource_group="g"))
    with pytest.raises(ProviderError, match="no subscription of Azure is named"):
        provider.discover()


def test_a_loop_with_three_pools_and_500_machines_asks_ten_times_at_most(azure: SimulatedAzure) -> None:
    for name in ("a", "b", "c"):
        azure.add_pool(name, "Standard_D4s_v5", zone="1", most=500)
    provider = azure.provider()
    pools = provider.discover().pools
    for pool, count in zip(pools, (300, 150, 50)):
        provider.grow(pool, order(count))
    azure.taken()
    seen = list_instances({"azure": provider}, AutoscalerConfig(pools=pools), OrderBook(), time.time())
    assert len(seen.seen.machines) == 500 and not seen.blind
    assert azure.taken() == ["GET virtualMachineScaleSets", *["GET virtualMachines"] * 4]


def two_sets(azure: SimulatedAzure, *, most: int = 3) -> tuple[SimulatedSet, SimulatedSet, AzureProvider, Pool]:
    """One pool, two sets of one zone, of another size each."""
    first = azure.add_pool("gpu", zone="1", most=most)
    second = azure.add_pool("gpu", zone="1", most=most)
    first, second = sorted((first, second), key=lambda each: str(each.body["name"]))
    provider = azure.provider()
    (pool,) = provider.discover().pools
    return first, second, provider, pool


def test_an_order_too_large_for_a_set_goes_to_several_of_its_zone(azure: SimulatedAzure) -> None:
    first, second, provider, pool = two_sets(azure)
    for _ in range(2):
        made = provider.grow(pool, order(5))
        assert len(made) == 5 and {machine.zone for machine in made} == {ZONES[0]}
    assert sorted((first.capacity, second.capacity)) == [2, 3]
    assert {machine.token for machine in provider.list([pool]).machines} == {"t"}
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool, order(2, "u"))
    assert caught.value.kind == "stockout" and "have no room for 2 machines" in caught.value.message
    assert first.capacity + second.capacity == 5, "all or nothing"


@pytest.mark.parametrize("when", ["before", "after"])
def test_half_an_order_without_an_answer_is_finished_once(azure: SimulatedAzure, when: str) -> None:
    first, second, provider, pool = two_sets(azure)
    azure.hiccups = [("PATCH", first.body["name"], 500, when)]
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool, order(5))
    assert caught.value.is_unsettled
    assert len(azure.provider().grow(pool, order(5))) == 5 and first.capacity + second.capacity == 5


def test_what_one_set_has_not_another_of_its_zone_may_have(azure: SimulatedAzure) -> None:
    first, second, provider, pool = two_sets(azure)
    first.refusal = "stockout", 1, False
    assert len(provider.grow(pool, order(3))) == 3, "one was there before it was sold out"
    assert (first.capacity, second.capacity) == (1, 2) and azure.leftovers() == []
    assert sorted(str(machine.token) for machine in provider.list([pool]).machines) == ["t", "t", "t"]
    assert len(provider.grow(pool, order(1, "u"))) == 1 and second.capacity == 3, "it is asked last now"
    first.refusal = "stockout", 0, False
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool, order(2, "v"))
    assert caught.value.kind == "stockout" and first.capacity == 1


def test_a_set_that_says_no_at_once_is_asked_once(azure: SimulatedAzure) -> None:
    """Nothing is written on it then: asked again, it would say no for ever, and the loop would stand still."""
    first, second, provider, pool = two_sets(azure)
    first.refusal = "unoffered", 0, False
    assert len(provider.grow(pool, order(2))) == 2 and (first.capacity, second.capacity) == (0, 2)
    second.refusal = "unoffered", 0, False
    azure.taken()
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool, order(1, "u"))
    assert caught.value.kind == "stockout" and "SkuNotAvailable" in caught.value.message
    assert sum(each.startswith("PATCH") for each in azure.taken()) == 2


def test_cancelled_while_it_was_divided(azure: SimulatedAzure) -> None:
    first, second, provider, pool = two_sets(azure)
    provider.shrink(pool, (), ("t",))
    assert provider.grow(pool, order(5)) == () and first.capacity == second.capacity == 0
