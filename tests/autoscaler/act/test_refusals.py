"""What the actuator does when a provider refuses a deletion for good, or does not tell what became of an order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from longboat.autoscaler.act.actuator import Actuator
from longboat.autoscaler.model.config import AutoscalerConfig, LoopPace
from longboat.autoscaler.model.plan import ScalingAction, ScalingPlan
from longboat.autoscaler.model.snapshot import CORDONED, IDLE, POOL_LABEL, ClusterSnapshot, Pool
from longboat.autoscaler.model.turn import ActionResult
from longboat.autoscaler.observe.orders import DELETING, JoinedInstances, OrderBook, OrderStore, reconcile
from longboat.autoscaler.observe.watch import snapshot_from
from longboat.autoscaler.providers.provider import Instance, MachineRequest, ProviderAnswer, ProviderError
from longboat.kubeapi.kinds import NODE
from tests.autoscaler.stages import pool
from tests.sweeps.kubernetes.memory_cluster import MemoryCluster

GPU = pool("gpu", provider="cloud", zones=("a",))
LONG_AGO = "1970-01-01T00:00:01Z"


class Cloud:
    """Deletes no machine of `full`; answers the first `lost` orders with an error, and has made them."""

    def __init__(self, full: Sequence[str] = (), lost: int = 0) -> None:
        self.full, self.lost = full, lost
        self.deleted: list[str] = []
        self.made: dict[str, int] = {}  # by token
        self.cancelled: list[str] = []

    def grow(self, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        self.made[request.token] = request.count
        if self.lost:
            self.lost -= 1
            raise ProviderError("IdempotentCallInProgress", kind="throttled", is_unsettled=True)
        return tuple(Instance(id=f"{request.token}-{n}", pool=pool.name) for n in range(request.count))

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        self.cancelled += tokens
        for machine in machines:
            if machine in self.full:
                raise ProviderError("desiredSize equals minSize (1)", kind="min-size")
            self.deleted.append(machine)


def node(name: str, **annotations: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {POOL_LABEL: "gpu"}, "annotations": {CORDONED: LONG_AGO, IDLE: LONG_AGO}}
    meta["annotations"] = {**meta["annotations"], **annotations}
    status = {"allocatable": dict.fromkeys(("nvidia.com/gpu", "cpu", "pods"), "8")}
    status["conditions"] = [{"type": "Ready", "status": "True"}]  # type: ignore[assignment]
    spec = {"providerID": name, "unschedulable": True}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status}


class World:
    def __init__(self, cloud: Cloud, *nodes: dict[str, Any]) -> None:
        self.client: Any = MemoryCluster()
        for body in nodes:
            self.client.create(body)
        config = AutoscalerConfig(pools=(GPU,), pace=LoopPace(settle_s=0.0))
        self.store = OrderStore(self.client, "default")
        providers: Any = {"cloud": cloud}
        self.actuator = Actuator(self.client, config, providers, self.store)
        names = [body["metadata"]["name"] for body in nodes]
        self.seen = ProviderAnswer(machines=tuple(Instance(id=name, pool="gpu") for name in names))

    def perform(self, *actions: ScalingAction) -> list[ActionResult]:
        return self.actuator.perform(ScalingPlan(actions=actions), ClusterSnapshot(), self.seen, {})

    def finish(self) -> list[ActionResult]:
        return self.actuator.finish(self.client.list(NODE).items, self.seen, {})

    def is_given_back(self, name: str) -> bool:
        body = self.client.get(NODE, name)
        marks = body["metadata"]["annotations"]
        return not body["spec"].get("unschedulable") and not {DELETING, CORDONED, IDLE} & {*marks}


def test_a_machine_that_its_group_may_not_lose_is_given_back_and_the_others_go() -> None:
    cloud = Cloud(full=["one"])
    world = World(cloud, node("one"), node("two"))
    actions = [ScalingAction(kind="delete", node=name, pool="gpu", reason="idle") for name in ("one", "two")]
    first, second = world.perform(*actions)
    assert "minSize" in first.trouble and second.trouble == ""
    assert cloud.deleted == ["two"] and world.client.find(NODE, "two") is None
    assert world.is_given_back("one")
    assert world.finish() == [], "nothing is left to be repeated"


def test_a_deletion_that_had_begun_and_is_refused_for_good_is_given_up() -> None:
    world = World(Cloud(full=["one"]), node("one", **{DELETING: LONG_AGO}))
    (result,) = world.finish()
    assert "minSize" in result.trouble and world.is_given_back("one")


def test_any_other_refusal_keeps_the_mark() -> None:
    class Broken(Cloud):
        def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
            raise ProviderError("InternalFailure")

    world = World(Broken(), node("one", **{DELETING: LONG_AGO}))
    assert world.finish()[0].trouble and DELETING in world.client.get(NODE, "one")["metadata"]["annotations"]


def test_an_order_of_which_nothing_is_known_is_sent_again_under_its_token() -> None:
    cloud = Cloud(lost=1)
    world = World(cloud)
    (result,) = world.perform(ScalingAction(kind="grow", pool="gpu", count=2, zone="a", reason="wanted"))
    assert "InProgress" in result.trouble
    (order,) = world.store.book.orders
    assert not order.is_confirmed and order.missing == 2, "it counts as machines that will come"
    assert world.actuator.resume() == [], "not while the provider wants to be left alone"
    world.client.requests += 10  # seconds
    (again,) = world.actuator.resume()
    assert again.trouble == "" and cloud.made == {order.token: 2} and cloud.cancelled == []
    (order,) = world.store.book.orders
    assert order.is_confirmed and len(order.machines) == 2 and world.store.book.failures == ()


def test_an_order_that_was_made_and_not_finished_is_not_cancelled() -> None:
    class Unmarked(Cloud):
        def grow(self, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
            self.made[request.token] = request.count
            raise ProviderError("UnauthorizedOperation: ec2:CreateTags", kind="auth", is_unsettled=True)

    cloud = Unmarked()
    world = World(cloud)
    world.perform(ScalingAction(kind="grow", pool="gpu", count=2, zone="a", reason="wanted"))
    (order,) = world.store.book.orders
    (again,) = world.actuator.resume()
    assert "CreateTags" in again.trouble and cloud.made == {order.token: 2} and cloud.cancelled == []
    assert [each.token for each in world.store.book.orders] == [order.token]


class Contended(Cloud):
    """Has nothing to sell, and the first `conflicts` cancellations do not get through."""

    def __init__(self, conflicts: int) -> None:
        super().__init__()
        self.conflicts = conflicts

    def grow(self, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        self.made[request.token] = self.made.get(request.token, 0) + 1
        raise ProviderError("InsufficientInstanceCapacity", kind="stockout")

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise ProviderError("changed by others all the time", kind="throttled")
        super().shrink(pool, machines, tokens)


def test_a_cancellation_that_did_not_get_through_is_repeated() -> None:
    """Its order counts as no machines, and is not sent again."""
    cloud = Contended(conflicts=2)
    world = World(cloud)
    world.perform(ScalingAction(kind="grow", pool="gpu", count=2, zone="a", reason="wanted"))
    (order,) = world.store.book.orders
    assert order.is_cancelled and order.missing == 0 and cloud.cancelled == []
    half = ProviderAnswer(machines=(Instance(id="late", pool="gpu", zone="a", token=order.token),))
    for trouble in ("changed by others all the time", ""):
        now = world.client.now()
        config = AutoscalerConfig(pools=(GPU,))
        world.store.save(reconcile(world.store.book, half, JoinedInstances(()), config, now))
        world.client.requests += 10  # seconds
        (again,) = world.actuator.resume()
        assert (again.action.kind, again.trouble) == ("forget", trouble)
    assert cloud.cancelled == [order.token] and cloud.made == {order.token: 1}
    assert world.store.book.orders == () and world.actuator.resume() == []


def test_an_order_whose_cancellation_did_not_get_through_is_not_forgotten() -> None:
    cloud = Cloud()
    world = World(cloud)
    world.perform(ScalingAction(kind="grow", pool="gpu", count=1, zone="a", reason="wanted"))
    (order,) = world.store.book.orders
    world.store.save(OrderBook(orders=(replace(order, machines=()),)))  # it never came
    forget = ScalingAction(kind="forget", pool="gpu", machine=f"{order.token}/0", reason="it never joined")
    cloud.shrink = Contended(conflicts=1).shrink  # type: ignore[method-assign]
    (result,) = world.perform(forget)
    assert "changed by others" in result.trouble
    assert [(each.token, each.missing) for each in world.store.book.orders] == [(order.token, 1)]


def test_a_node_whose_group_is_at_its_min_is_not_chosen() -> None:
    machines = (Instance(id="one", pool="gpu", kept="its group is at its min of 1"), Instance(id="two", pool="gpu"))
    bodies = {"Node": [node("one"), node("two")]}
    snapshot = snapshot_from(bodies, (GPU,), OrderBook(), ProviderAnswer(machines=machines), 10.0)
    assert [(each.name, each.kept) for each in snapshot.nodes] == [("one", "its group is at its min of 1"), ("two", "")]


def test_of_two_machines_with_the_name_of_a_node_its_own_is_deleted() -> None:
    """A cloud gives the address of a machine that still ends to a new one, and the name of a node with it."""
    old = Instance(id="cloud://1", pool="gpu", node="n", state="stopping")
    new = Instance(id="cloud://2", pool="gpu", node="n")
    for mine, machines in ((new, (old, new)), (old, (new, old)), (new, (old, new))):
        body = node("n")
        body["spec"]["providerID"] = mine.id
        cloud = Cloud()
        world = World(cloud, body)
        world.seen = ProviderAnswer(machines=machines)
        (result,) = world.perform(ScalingAction(kind="delete", node="n", pool="gpu", reason="idle"))
        assert (result.trouble, cloud.deleted) == ("", [mine.id])
    body = node("n")
    del body["spec"]["providerID"]
    world = World(cloud := Cloud(), body)
    world.seen = ProviderAnswer(machines=(old, new))
    world.perform(ScalingAction(kind="delete", node="n", pool="gpu", reason="idle"))
    assert cloud.deleted == [new.id]
