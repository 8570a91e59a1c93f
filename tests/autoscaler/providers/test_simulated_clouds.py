"""From zero nodes to a gang and back, on simulated clouds: machines become simulated nodes with its providerID."""

from __future__ import annotations

from typing import Any

import pytest

from tests.autoscaler.providers.aws.test_end_to_end import RUN, Boots, providers_of
from tests.autoscaler.stages import Stage, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.soak]


@pytest.mark.parametrize("cloud", ["azure", "google"])
def test_a_gang_brings_four_machines_in_one_zone_and_they_go(
    cloud: str, stage: Stage, request: pytest.FixtureRequest
) -> None:
    """The first zone is sold out: it is told in the cloud's words, nothing is left of it, and the other one serves."""
    simulated: Any = request.getfixturevalue(cloud)
    name = stage.name("gpu")
    if cloud == "azure":
        first, _ = (simulated.add_pool(name, zone=zone) for zone in "12")
        first.refusal = "stockout", 0, False
    else:
        # Without GKE's taint of GPUs: its admission makes pods that ask for GPUs tolerate it, this cluster does not.
        first, _ = simulated.add_pool(name, config={"accelerators": []})
        first.refusal = "stockout", 0
    provider = simulated.provider()
    (pool,) = provider.discover().pools
    boots = Boots(stage, simulated, pool)
    with boots.joining(), stage.scaling(stage.config(pool), provider={pool.provider: provider}) as told:
        stage.job("train", pods=4, labels=RUN)
        wait_for("the gang runs", lambda: len(stage.pods("Running")) == 4)
        machines = boots.machines()
        assert len(machines) == 4 and {machine.zone for machine in machines} == {pool.zones[1]}
        assert providers_of(stage.nodes()) == {machine.id for machine in machines}
        stage.end("train")
        wait_for("all machines are gone", lambda: not boots.machines() and not stage.nodes())
    troubles = [result.trouble for result in told.results("grow") if result.trouble]
    assert all("stockout" in trouble for trouble in troubles) and not simulated.leftovers()
