"""What holds for every history: limits, whole gangs, protected pods, no flap, demand served, nothing leaked."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.autoscaler.decide.decide import decide
from longboat.autoscaler.model.machines import template
from longboat.autoscaler.model.plan import ScalingPlan
from longboat.autoscaler.model.snapshot import (
    AutoscalerSettings,
    ClusterSnapshot,
    Gang,
    ResourceLimits,
    SeenNode,
    SeenPod,
)
from longboat.fitting.fleet import Fleet
from longboat.fitting.packing import Placement, take
from tests.autoscaler.world import GPU, Work, World, pool

NOW = 1_000_000.0
POOLS = (
    pool("large", 8, 30.0),
    pool("small", 1, 5.0, max=4),
    pool("cpu", 0, 1.0),
)
LIMITS = ResourceLimits(gpus=48)

works = st.builds(
    Work,
    name=st.just(""),
    nodes=st.sampled_from((1, 1, 1, 2, 3, 4)),
    gpus=st.sampled_from((0, 1, 1, 2, 4, 8)),
    lasts=st.sampled_from((60.0, 600.0, 3000.0)),
    priority=st.sampled_from((0, 0, 0, 5)),
    is_service=st.booleans(),
).map(lambda work: work._replace(is_service=work.is_service and work.nodes == 1))
arrivals = st.lists(st.tuples(st.integers(0, 40), works), max_size=8)
choices = st.builds(
    AutoscalerSettings,
    idle_s=st.sampled_from((0.0, 120.0, 600.0)),
    spare=st.sampled_from((0, 0, 1)),
    over_provision=st.sampled_from((0, 0, 1)),
    limits=st.sampled_from((ResourceLimits(), LIMITS)),
    max_shrink_per_loop=st.sampled_from((1, 10)),
)


def drive(world: World, script: list[tuple[int, Work]], loops: int, seconds: float = 60.0) -> None:
    for loop in range(loops):
        for number, (at, work) in enumerate(script):
            if at == loop:
                world.come(work._replace(name=f"w{number}"))
        world.step(seconds)


def test_no_machine_is_replaced_while_the_pools_spare_one_is_not_ready() -> None:
    """The spare machine fails to boot: the dear one, exchanged for a cheaper one meanwhile, would be bought again."""
    work = Work(name="", nodes=1, gpus=0, lasts=60.0, priority=0, is_service=False)
    script = [(0, work), (0, work), (0, work._replace(gpus=8, lasts=3000.0))]
    script.append((1, work._replace(gpus=1, lasts=600.0, is_service=True)))
    world = World(
        POOLS, AutoscalerSettings(idle_s=0.0, spare=1, max_shrink_per_loop=1), fails=[True, False, False], refuses=[]
    )
    drive(world, script, 60)


def test_a_machine_that_pods_are_moved_to_is_no_spare_one() -> None:
    """Two cheap machines are idle; a service goes to one of them, so the other stays as the spare one."""
    script = [
        (10, Work(name="", nodes=2, gpus=1, lasts=3000.0)),
        (7, Work(name="", gpus=1, is_service=True)),
        (8, Work(name="", gpus=8, lasts=60.0, is_service=True)),
    ]
    world = World(POOLS, AutoscalerSettings(idle_s=0.0, spare=1, over_provision=1), fails=[], refuses=[])
    drive(world, script, 60)


@settings(max_examples=60, deadline=None)
@given(arrivals, choices, st.lists(st.booleans(), max_size=4), st.lists(st.booleans(), max_size=4))
def test_any_history_keeps_the_rules(
    script: list[tuple[int, Work]], chosen: AutoscalerSettings, fails: list[bool], refuses: list[bool]
) -> None:
    """The world asserts limits, order of removal, protected pods and flaps at every step."""
    world = World(POOLS, chosen, fails=fails, refuses=refuses)
    drive(world, script, 60)


@settings(max_examples=40, deadline=None)
@given(arrivals, choices, st.lists(st.booleans(), max_size=3), st.lists(st.booleans(), max_size=3))
def test_demand_is_served_and_nothing_is_leaked(
    script: list[tuple[int, Work]], chosen: AutoscalerSettings, fails: list[bool], refuses: list[bool]
) -> None:
    world = World(POOLS, chosen, fails=fails, refuses=refuses)
    drive(world, [(at, work) for at, work in script if work.gpus * work.nodes <= 48], 45)
    for _ in range(400):
        world.step(120.0)
        if not world.work and len(world.boxes) <= chosen.spare * len(POOLS):
            break
    assert not world.work, world.plans[-1]
    assert len(world.boxes) <= chosen.spare * len(POOLS), world.plans[-1]


def test_a_service_left_behind_is_moved_to_a_cheaper_machine_once() -> None:
    """7 + 1 GPUs on one machine of 8 for 30; when the training has ended, one of 1 for 5 does, and all is quiet."""
    world = World(POOLS, AutoscalerSettings(), fails=[], refuses=[])
    world.come(Work(name="train", gpus=7, lasts=1800.0))
    world.come(Work(name="service", gpus=1, lasts=1e9, is_service=True))
    for _ in range(120):
        world.step(60.0)
    assert [box.pool for box in world.boxes.values()] == ["small"] and world.running("service")
    assert world.evicted == ["service-0"]
    assert not [action for plan in world.plans[-30:] for action in plan.actions]


@settings(max_examples=20, deadline=None)
@given(arrivals, st.integers(1, 3))
def test_what_is_replaced_gets_cheaper_and_comes_to_an_end(script: list[tuple[int, Work]], drains: int) -> None:
    """Services that last: every exchange is paid for by what it saves, and one day nothing is moved any more."""
    world = World(POOLS, AutoscalerSettings(idle_s=120.0, max_drains=drains), fails=[], refuses=[])
    drive(world, [(at, work._replace(lasts=1e9 if work.is_service else work.lasts)) for at, work in script], 200)
    assert not [action for plan in world.plans[-50:] for action in plan.actions], world.plans[-1]


def snapshots() -> st.SearchStrategy[ClusterSnapshot]:
    """A moment: machines with and without pods on them, and demand."""
    return st.builds(
        moment, st.lists(works, max_size=8), st.lists(st.sampled_from("lsc"), max_size=6), st.integers(0, 999)
    )


def moment(waiting: list[Work], kinds: list[str], seed: int) -> ClusterSnapshot:
    by_letter = {"l": POOLS[0], "s": POOLS[1], "c": POOLS[2]}
    mixed = random.Random(seed)
    nodes, pods, gangs = [], [], []
    for number, letter in enumerate(kinds):
        name = f"n{number}"
        nodes.append(
            SeenNode(shape=template(by_letter[letter], None, name), created=NOW - 9000, ready_since=NOW - 8000)
        )
        if mixed.random() < 0.5:
            run = Work(name=f"r{number}", gpus={"l": mixed.choice((1, 4, 8)), "s": 1, "c": 0}[letter])
            pods.append(SeenPod(pod=msgspec.structs.replace(run.pods[0], node=name), kept="a training"))
    for number, work in enumerate(waiting):
        named = work._replace(name=f"w{number}")
        if named.nodes > 1:
            gangs.append(
                Gang(name=f"default/w{number}", pods=tuple(named.pods), priority=named.priority, created=NOW - number)
            )
        else:
            pods.append(SeenPod(pod=named.pods[0], created=NOW - number))
    return ClusterSnapshot(nodes=tuple(nodes), pods=tuple(pods), gangs=tuple(gangs), pools=POOLS)


def served(plan: ScalingPlan) -> set[str]:
    return {
        one.run or one.pod or "" for one in plan.waiting if one.expected is not None or "there is room" in one.reason
    }


@settings(max_examples=150, deadline=None)
@given(snapshots(), choices)
def test_every_gang_that_is_promised_machines_fits_on_them_as_a_whole(
    snapshot: ClusterSnapshot, chosen: AutoscalerSettings
) -> None:
    plan = decide(snapshot, chosen, NOW)
    shapes = [node.shape for node in snapshot.nodes]
    for action in plan.actions:
        if action.kind == "grow":
            bought = next(one for one in POOLS if one.name == action.pool)
            shapes += [template(bought, None, f"new-{bought.name}-{index}") for index in range(action.count or 0)]
    fleet = Fleet(shapes, [one.pod for one in snapshot.pods])
    for gang in snapshot.gangs:
        if gang.name in served(plan):
            assert isinstance(take(gang.pods, fleet.copy(), explain=False), Placement)


@settings(max_examples=150, deadline=None)
@given(snapshots(), choices)
def test_no_limit_and_no_max_is_exceeded(snapshot: ClusterSnapshot, chosen: AutoscalerSettings) -> None:
    plan = decide(snapshot, chosen, NOW)
    gpus = 0
    for each in POOLS:
        size = sum(1 for node in snapshot.nodes if node.pool == each.name)
        size += sum(one.count or 0 for one in plan.actions if one.kind == "grow" and one.pool == each.name)
        before = sum(1 for node in snapshot.nodes if node.pool == each.name)
        assert size <= max(each.max, before)
        gpus += size * each.machine.devices
    had = sum(node.shape.devices for node in snapshot.nodes)
    assert chosen.limits.gpus is None or gpus <= max(chosen.limits.gpus, had)


@settings(max_examples=150, deadline=None)
@given(snapshots(), choices)
def test_everybody_who_waits_and_every_node_is_told_why(snapshot: ClusterSnapshot, chosen: AutoscalerSettings) -> None:
    plan = decide(snapshot, chosen, NOW)
    names = [one.run or one.pod for one in plan.waiting]
    pending = [one.name for one in snapshot.pods if one.pod.node is None] + [gang.name for gang in snapshot.gangs]
    assert sorted(map(str, names)) == sorted(pending)
    assert [one.node for one in plan.nodes] == sorted(node.name for node in snapshot.nodes)
    assert all(one.reason for part in (plan.actions, plan.waiting, plan.nodes, plan.pools) for one in part)


@settings(max_examples=150, deadline=None)
@given(snapshots(), choices)
def test_no_node_with_work_that_must_stay_is_touched(snapshot: ClusterSnapshot, chosen: AutoscalerSettings) -> None:
    plan = decide(snapshot, chosen, NOW)
    touched = {one.node for one in plan.actions if one.kind in ("cordon", "drain", "delete")}
    assert not touched & {one.pod.node for one in snapshot.pods if one.pod.node is not None and one.kept}


@settings(max_examples=150, deadline=None)
@given(snapshots(), choices, st.integers(0, 999))
def test_the_order_of_the_input_makes_no_difference(
    snapshot: ClusterSnapshot, chosen: AutoscalerSettings, seed: int
) -> None:
    mixed = random.Random(seed)
    fields = {}
    for name in ("nodes", "pods", "gangs", "pools"):
        values = list(getattr(snapshot, name))
        mixed.shuffle(values)
        fields[name] = tuple(values)
    assert decide(msgspec.structs.replace(snapshot, **fields), chosen, NOW) == decide(snapshot, chosen, NOW)


def with_another(snapshot: ClusterSnapshot, letter: str) -> ClusterSnapshot:
    """One more node, outside of the pools, so that it takes nothing from anybody's limits."""
    shape = template({"l": POOLS[0], "s": POOLS[1], "c": POOLS[2]}[letter], None, "extra")
    labels = {key: value for key, value in shape.labels.items() if key != "longboat.dev/pool"}
    extra = SeenNode(shape=msgspec.structs.replace(shape, labels=labels), created=NOW - 9000)
    return msgspec.structs.replace(snapshot, nodes=(*snapshot.nodes, extra))


@settings(max_examples=150, deadline=None)
@given(snapshots(), st.sampled_from("lsc"))
def test_adding_a_node_never_makes_a_waiting_run_wait_longer(snapshot: ClusterSnapshot, letter: str) -> None:
    """Where there are machines for everybody."""
    roomy = tuple(msgspec.structs.replace(each, max=100) for each in POOLS)
    snapshot = msgspec.structs.replace(snapshot, pools=roomy)
    before = decide(snapshot, AutoscalerSettings(), NOW)
    after = decide(with_another(snapshot, letter), AutoscalerSettings(), NOW)
    assert served(before) <= served(after)


@settings(max_examples=150, deadline=None)
@given(snapshots(), st.sampled_from("lsc"))
def test_where_machines_are_short_another_node_serves_whoever_comes_first(
    snapshot: ClusterSnapshot, letter: str
) -> None:
    """Whoever comes first among those who fare differently fares better: nobody is made to wait by somebody behind."""
    chosen = AutoscalerSettings(limits=LIMITS)
    before = served(decide(snapshot, chosen, NOW))
    after = served(decide(with_another(snapshot, letter), chosen, NOW))
    changed = [name for name in in_order(snapshot) if (name in before) != (name in after)]
    assert not changed or changed[0] in after


def in_order(snapshot: ClusterSnapshot) -> list[str]:
    """The order of service: priority, devices, gangs, size among single pods, age."""
    ranked = []
    for gang in snapshot.gangs:
        gpus = gang.pods[0].shape.asks(GPU)
        ranked.append((-gang.priority, gpus == 0, False, 0, gang.created, gang.name))
    for one in snapshot.pods:
        if one.pod.node is None:
            gpus = one.pod.shape.asks(GPU)
            ranked.append((-one.pod.priority, gpus == 0, True, -gpus, one.created, one.name))
    return [item[-1] for item in sorted(ranked)]
