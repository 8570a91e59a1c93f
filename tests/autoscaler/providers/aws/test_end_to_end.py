"""From zero nodes to a gang and back, on moto's server: machines become simulated nodes with AWS's providerID."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from longboat.autoscaler.model.provider_settings import KwokSettings
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.providers.kwok import node_of
from longboat.autoscaler.providers.provider import Instance
from longboat.kubeapi.errors import AlreadyExists
from tests.autoscaler.stages import Stage, wait_for
from tests.clouds.aws.moto_cluster import ZONES, MotoCluster

pytestmark = [pytest.mark.cluster, pytest.mark.soak]
RUN = {"longboat.dev/run": "train", "longboat.dev/attempt": "0"}
POLL_S = 0.2  # how long a simulated machine takes to boot, about


class Boots:
    """Machines of moto that join the cluster, as kubelets do it on real ones."""

    def __init__(self, stage: Stage, moto: MotoCluster, pool: Pool) -> None:
        self.stage, self.pool, self.provider = stage, pool, moto.provider()

    def machines(self) -> tuple[Instance, ...]:
        return self.provider.list([self.pool]).machines

    @contextlib.contextmanager
    def joining(self) -> Iterator[None]:
        ending = threading.Event()
        thread = threading.Thread(target=self._join, args=(ending,))
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def _join(self, ending: threading.Event) -> None:
        known: set[str] = set()
        provider = type(self.provider)("aws", self.provider.settings)
        while not ending.wait(POLL_S):
            for machine in provider.list([self.pool]).machines:
                if machine.id not in known and machine.state == "running":
                    name = f"{self.stage.prefix}-{machine.id.rpartition('/')[2]}"
                    body = node_of(self.pool, msgspec.structs.replace(machine, node=name), KwokSettings())
                    with contextlib.suppress(AlreadyExists):
                        self.stage.client.create(body)
                    known.add(machine.id)


def providers_of(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["spec"]["providerID"] for node in nodes}


def test_a_gang_brings_four_machines_in_one_zone_and_they_go(stage: Stage, moto: MotoCluster) -> None:
    moto.node_group(stage.name("gpu"), most=8)
    provider = moto.provider()
    (pool,) = provider.discover().pools
    boots = Boots(stage, moto, pool)
    with boots.joining(), stage.scaling(stage.config(pool), provider={"aws": provider}) as told:
        stage.job("train", pods=4, labels=RUN)
        wait_for("the gang runs", lambda: len(stage.pods("Running")) == 4)
        machines = boots.machines()
        assert len(machines) == 4 and len({machine.zone for machine in machines}) == 1
        assert providers_of(stage.nodes()) == {machine.id for machine in machines}
        stage.end("train")
        wait_for("all machines are gone", lambda: not boots.machines() and not stage.nodes())
    assert [result.action.count for result in told.results("grow")] == [4]


def test_a_zone_that_is_sold_out_is_passed_over(stage: Stage, moto: MotoCluster) -> None:
    group = moto.node_group(stage.name("gpu"), most=8)
    moto.refuse(group, "stockout", ZONES[0])
    provider = moto.provider()
    (pool,) = provider.discover().pools
    boots = Boots(stage, moto, pool)
    with boots.joining(), stage.scaling(stage.config(pool), provider={"aws": provider}) as told:
        stage.job("train", pods=2, labels=RUN)
        wait_for("the gang runs", lambda: len(stage.pods("Running")) == 2)
        assert {machine.zone for machine in boots.machines()} == {ZONES[1]}
        stage.end("train")
        wait_for("all machines are gone", lambda: not boots.machines() and not stage.nodes())
    troubles = [result.trouble for result in told.results("grow") if result.trouble]
    assert all("InsufficientInstanceCapacity" in trouble for trouble in troubles)
