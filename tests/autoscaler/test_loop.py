"""The autoscaler on a real cluster with simulated machines: it grows for who waits and shrinks when they have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from longboat.autoscaler.model.config import LoopPace
from longboat.autoscaler.model.machines import LEAST_BOOT_S
from longboat.autoscaler.model.provider_settings import KwokSettings
from longboat.autoscaler.model.snapshot import CORDONED, Pool
from longboat.autoscaler.observe.orders import OrderStore
from longboat.autoscaler.providers.kwok import BOOKS, KwokProvider, KwokState, SimulatedFault, node_of
from longboat.autoscaler.providers.provider import Instance, ProviderAnswer, ProviderError
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, NODE
from testbed import faults
from testbed.clusters import Cluster
from testbed.proxy import ApiProxy
from tests.autoscaler.stages import LONG_S, QUICK, Stage, job_of, wait_for

pytestmark = [pytest.mark.cluster]
FOR_EVER_S = 3600.0


def grown(results: list[Any]) -> int:
    return sum(result.action.count for result in results if not result.trouble)


def test_a_pool_grows_from_one_to_two_and_shrinks_to_none(stage: Stage) -> None:
    with stage.scaling(stage.config(stage.pool("gpu"))) as told:
        stage.job("first")
        wait_for("the first runs", lambda: len(stage.pods("Running")) == 1)
        assert len(stage.nodes()) == 1
        stage.job("second")
        wait_for("both run", lambda: len(stage.pods("Running")) == 2)
        assert len(stage.nodes()) == len(stage.machines()) == 2
        stage.end("first")
        stage.end("second")
        wait_for("all machines are gone", lambda: not stage.machines() and not stage.nodes())
        stage.job("third")
        wait_for("from none again", lambda: len(stage.pods("Running")) == 1)
    assert [result.action.count for result in told.results("grow")] == [1, 1, 1]
    assert not told.results("drain")


def test_a_gang_gets_all_its_machines_before_it_has_pods(stage: Stage) -> None:
    run = {"longboat.dev/run": "train", "longboat.dev/attempt": "0"}
    stage.job("train", pods=4, labels=run, suspend=True)
    stage.job("huge", pods=7, labels={"longboat.dev/run": "huge", "longboat.dev/attempt": "0"}, suspend=True)
    with stage.scaling(stage.config(stage.pool("gpu", max=6), idle_s=FOR_EVER_S)) as told:
        wait_for("four machines", lambda: len(stage.nodes()) == 4)
        assert stage.pods() == []
        stage.client.patch(JOB, "train", {"spec": {"suspend": False}}, namespace=stage.namespace)
        wait_for("the gang runs", lambda: len(stage.pods("Running")) == 4)
        wait_for("it was looked at again", lambda: told.turns[-1].now > time.time() - 1)
        waiting = {one.run: one.reason for one in told.turns[-1].plan.waiting}
        assert "7" in waiting[f"{stage.namespace}/huge"]
    assert [result.action.count for result in told.results("grow")] == [4]
    assert len({one["spec"]["nodeName"] for one in stage.pods()}) == 4


def test_a_machine_whose_driver_is_late_is_ordered_once(stage: Stage) -> None:
    stage.job("train", gpus=8)
    with stage.scaling(stage.config(stage.pool("gpu")), KwokSettings(ready_after_s=1.0, gpus_after_s=2.0)) as told:
        wait_for("it runs", lambda: len(stage.pods("Running")) == 1)
        wait_for("it was seen", lambda: any(note.state == "busy" for note in told.turns[-1].plan.nodes))
    assert grown(told.results("grow")) == 1 and len(stage.machines()) == 1
    reasons = [note.reason for turn in told.turns for note in turn.plan.nodes if note.state == "booting"]
    assert any("not ready" in reason for reason in reasons)
    assert any("without nvidia.com/gpu" in reason for reason in reasons)


def test_after_a_stockout_the_next_pool_is_taken_at_once(stage: Stage) -> None:
    label = {"class": stage.prefix}
    spot = stage.pool("spot", price=1.0, spot=True, machine={"labels": label})
    sure = stage.pool("sure", price=3.0, machine={"labels": label})
    stage.fault(SimulatedFault(pool=spot.name, kind="stockout"))
    stage.client.create(job_of("train", stage.namespace, label))
    with stage.scaling(stage.config(spot, sure)) as told:
        wait_for("it runs", lambda: len(stage.pods("Running")) == 1)
        assert {one.pool for one in stage.machines()} == {sure.name}
        (failure,) = OrderStore(stage.client, stage.namespace).load().failures
        assert (failure.pool, failure.kind, failure.count) == (spot.name, "stockout", 1)
    assert [(result.action.pool, bool(result.trouble)) for result in told.results("grow")] == [
        (spot.name, True),
        (sure.name, False),
    ]
    with stage.scaling(stage.config(spot, sure)) as again:  # a new process remembers the refusal
        stage.client.create(job_of("more", stage.namespace, label))
        wait_for("both run", lambda: len(stage.pods("Running")) == 2)
    assert {result.action.pool for result in again.results("grow")} == {sure.name}


class Blind(KwokProvider):
    """Its list cannot be had for a while."""

    is_blind = True

    def list(self, pools: Sequence[Pool]) -> ProviderAnswer:
        if self.is_blind:
            raise ProviderError("no answer from the cloud", kind="auth")
        return super().list(pools)


def test_while_a_provider_cannot_be_asked_nothing_is_bought_from_it(stage: Stage) -> None:
    stage.job("train")
    provider = Blind(stage.client, stage.namespace)
    with stage.scaling(stage.config(stage.pool("gpu")), provider=provider) as told:
        wait_for("some loops", lambda: len(told.turns) > 2)
        assert not told.results("grow")
        assert "no answer from the cloud" in told.turns[-1].plan.pools[0].reason
        provider.is_blind = False
        wait_for("it runs", lambda: len(stage.pods("Running")) == 1)


def test_a_half_arrived_gang_is_finished_in_another_zone(stage: Stage) -> None:
    pool = stage.pool("gpu", zones=("a", "b"))
    stage.fault(SimulatedFault(pool=pool.name, kind="stockout", zone="a", after=1))
    labels = {"longboat.dev/run": "train", "longboat.dev/attempt": "0"}
    stage.job("train", pods=4, labels=labels)
    with stage.scaling(stage.config(pool)):
        wait_for("the gang runs", lambda: len(stage.pods("Running")) == 4)
    zones = sorted(one.zone or "" for one in stage.machines())
    assert zones == ["a", "b", "b", "b"]


def test_a_machine_that_failed_is_given_back_and_replaced(stage: Stage) -> None:
    pool = stage.pool("gpu")
    stage.fault(SimulatedFault(pool=pool.name, kind="other", joins=False))
    stage.job("train")
    with stage.scaling(stage.config(pool)) as told:
        wait_for("a machine that does not join", lambda: len(stage.machines()) == 1)
        (stuck,) = stage.machines()
        wait_for("it is waited for", lambda: len(told.turns) > 3)
        assert len(stage.machines()) == 1
        stage.fault()
        body = stage.client.get(CONFIG_MAP, BOOKS, namespace=stage.namespace)
        books = KwokState(machines=(msgspec.structs.replace(stuck, state="failed"),), tokens=(stuck.token or "",))
        body["data"]["machines"] = msgspec.json.encode(books).decode()
        stage.client.replace(body)
        wait_for("it runs on another", lambda: len(stage.pods("Running")) == 1)
        wait_for("the first is given back", lambda: len(stage.machines()) == 1)
    assert stuck.id not in {one.id for one in stage.machines()}
    assert [result.action.machine for result in told.results("forget")] == [stuck.id]


@pytest.mark.soak
def test_a_machine_that_never_joins_is_replaced_and_deleted(stage: Stage) -> None:
    pool = stage.pool("gpu", boot_s=1.0)
    stage.fault(SimulatedFault(pool=pool.name, kind="other", joins=False))
    stage.job("train")
    with stage.scaling(stage.config(pool)) as told:
        wait_for("a machine that does not join", lambda: len(stage.machines()) == 1)
        (stuck,) = stage.machines()
        stage.fault()
        wait_for("it runs on another", lambda: len(stage.pods("Running")) == 1, LEAST_BOOT_S + LONG_S)
        wait_for("the first is deleted", lambda: stuck.id not in {one.id for one in stage.machines()})
        assert len(stage.machines()) == len(stage.nodes()) == 1
    assert [result.action.machine for result in told.results("forget")] == [stuck.id]
    assert [result.action.count for result in told.results("grow")] == [1, 1]


def test_new_demand_lifts_our_cordon_instead_of_buying(stage: Stage) -> None:
    slow = LoopPace(interval_s=QUICK.interval_s, least_s=QUICK.least_s, settle_s=FOR_EVER_S)
    with stage.scaling(stage.config(stage.pool("gpu"), pace=slow)) as told:
        stage.job("first", run_for="0.1s")
        wait_for("it has ended", lambda: stage.is_done("first"))
        wait_for("cordoned", lambda: stage.nodes()[0]["spec"].get("unschedulable"))
        assert CORDONED in stage.nodes()[0]["metadata"]["annotations"]
        stage.job("second")
        wait_for("it runs", lambda: len(stage.pods("Running")) == 1)
        (node,) = stage.nodes()
    assert not node["spec"].get("unschedulable") and CORDONED not in node["metadata"]["annotations"]
    assert grown(told.results("grow")) == 1 and told.results("uncordon")


def test_the_cordon_of_a_person_is_left_alone(stage: Stage) -> None:
    with stage.scaling(stage.config(stage.pool("gpu"))) as told:
        stage.job("first")
        wait_for("it runs", lambda: len(stage.pods("Running")) == 1)
        (node,) = stage.nodes()
        name = node["metadata"]["name"]
        stage.client.patch(NODE, name, {"spec": {"unschedulable": True}})
        stage.end("first")
        wait_for("its pods are gone", lambda: not stage.pods())
        wait_for(
            "it is seen",
            lambda: [note.state for note in told.turns[-1].plan.nodes if note.node == name] == ["cordoned-by-person"],
        )
        before = len(told.turns)
        wait_for("more loops", lambda: len(told.turns) > before + 3)
        assert len(stage.nodes()) == 1
    assert not told.results("delete") and not told.results("cordon")


def test_a_node_that_its_provider_does_not_know_is_not_deleted(stage: Stage) -> None:
    pool = stage.pool("gpu")
    name = f"{pool.name}-static"
    stage.client.create(node_of(pool, Instance(id=f"metal://{name}", pool=pool.name, node=name), KwokSettings()))
    with stage.scaling(stage.config(pool)) as told:
        wait_for("it was tried", lambda: told.results("delete"))
    assert all("no such machine" in result.trouble for result in told.results("delete"))
    assert [one["metadata"]["name"] for one in stage.nodes()] == [name]


def test_memory_is_on_the_nodes_and_a_new_process_goes_on_from_it(stage: Stage) -> None:
    config = stage.config(stage.pool("gpu"), idle_s=FOR_EVER_S)
    with stage.scaling(config):
        stage.job("first", run_for="0.1s")
        wait_for("it has ended", lambda: stage.is_done("first"))
        mark = "longboat.dev/idle-since"
        wait_for("idle is written down", lambda: mark in stage.nodes()[0]["metadata"]["annotations"])
    since = stage.nodes()[0]["metadata"]["annotations"][mark]
    with stage.scaling(config) as again:
        wait_for("some loops", lambda: len(again.turns) > 2)
    assert stage.nodes()[0]["metadata"]["annotations"][mark] == since
    assert [note.state for note in again.turns[-1].plan.nodes if note.pool == stage.name("gpu")] == ["idle"]


def test_a_dry_run_changes_nothing(stage: Stage) -> None:
    stage.job("train")
    config = msgspec.structs.replace(stage.config(stage.pool("gpu")), is_dry=True)
    with stage.scaling(config) as told:
        wait_for("it was decided", lambda: any(turn.plan.actions for turn in told.turns))
    assert not stage.machines() and not stage.nodes() and not told.results("grow")
    assert stage.client.find(CONFIG_MAP, "longboat-autoscaler", namespace=stage.namespace) is None


@pytest.mark.soak
def test_an_api_outage_in_the_middle(stage: Stage, cluster: Cluster, api_proxy: ApiProxy) -> None:
    client = Client.open(namespace=stage.namespace, environment={"KUBECONFIG": str(api_proxy.kubeconfig)})
    with client, stage.scaling(stage.config(stage.pool("gpu")), client=client) as told:
        stage.job("first")
        wait_for("the first runs", lambda: len(stage.pods("Running")) == 1)
        api_proxy.cut()
        stage.job("second")
        wait_for("it is noticed", lambda: told.failures)
        api_proxy.restore()
        wait_for("both run", lambda: len(stage.pods("Running")) == 2)
        faults.pause(cluster, "kube-apiserver")
        time.sleep(1.0)
        faults.resume(cluster, "kube-apiserver")
        faults.restart(cluster, "kube-apiserver")
        stage.job("third")
        wait_for("all three run", lambda: len(stage.pods("Running")) == 3)
        assert len(stage.machines()) == 3
        for name in ("first", "second", "third"):
            stage.end(name)
        wait_for("all machines are gone", lambda: not stage.machines() and not stage.nodes())
    assert grown(told.results("grow")) == 3
    assert not told.results("drain")


@pytest.mark.soak
def test_a_thousand_pending_pods(stage: Stage) -> None:
    """The last here: what it leaves keeps the cluster busy for a while."""
    machine = {"cpus": 100, "pods": 110, "gpus": 0}
    stage.job("many", pods=1000, gpus=0, pool_name="cpu")

    def status(key: str) -> int:
        return int(stage.client.get(JOB, "many", namespace=stage.namespace)["status"].get(key) or 0)

    wait_for("the pods exist", lambda: status("active") == 1000)
    with stage.scaling(stage.config(stage.pool("cpu", max=40, machine=machine))) as told:
        wait_for("all run", lambda: status("ready") == 1000, 180.0)
    assert len(stage.nodes()) == len(stage.machines()) == grown(told.results("grow")) == 10
    assert not told.results("cordon")
