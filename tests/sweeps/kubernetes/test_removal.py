"""Removal of a sweep from a cluster: its own runs, whatever uid its record claims."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.engines.kubernetes import expiry
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.observe.observe import snapshot_of
from longboat.engines.kubernetes.records import Storage
from longboat.kubeapi.kinds import CONFIG_MAP
from longboat.sweeps.drive import SweepDriver
from longboat.sweeps.kubernetes.removal import remove_cluster_sweep
from longboat.sweeps.kubernetes.store import ClusterSweep
from longboat.sweeps.kubernetes.trial_runs import ClusterTrials
from tests.sweeps.kubernetes.memory_cluster import (
    MemoryCluster,
    base_record,
    begin,
    let_runs_end,
    replace,
    runs_of,
    sweep_record,
)


class StoredRuns(KubernetesEngine):
    """An engine of a cluster in memory; what it is asked to remove is noted, and removed without its storage."""

    def __init__(self, client: Any) -> None:
        self.deleted: list[str] = []
        self._memory = client

    @property
    def client(self) -> Any:  # type: ignore[override]
        return self._memory

    def delete(self, run: str, *, purge: bool = False) -> None:
        self.deleted.append(run)
        self.client.delete(CONFIG_MAP, run)


@pytest.fixture
def cluster() -> MemoryCluster:
    """A sweep with two trials that go on."""
    client, record = MemoryCluster(), sweep_record()
    begin(client, record, base_record(record, storage=Storage(claim="kept", folder="x")))
    store = ClusterSweep(client, "s")  # type: ignore[arg-type]
    SweepDriver(ClusterTrials(store), store).advance()
    assert sorted(runs_of(client)) == ["s-t1", "s-t2"]
    return client


def test_the_uid_of_another_sweep_in_a_forged_record_removes_none_of_its_runs(cluster: MemoryCluster) -> None:
    bait = replace(sweep_record(), name="bait")
    begin(cluster, bait, base_record(bait, storage=Storage(claim="kept", folder="x")))
    engine = StoredRuns(cluster)
    remove_cluster_sweep(engine, "bait", purge=False)
    assert engine.deleted == [] and sorted(runs_of(cluster)) == ["s-t1", "s-t2"]
    assert ("ConfigMap", "bait.sweep") not in cluster.bodies and ("ConfigMap", "s.sweep") in cluster.bodies


def test_its_own_runs_go_with_their_storage_and_so_does_what_is_left_of_expired_ones(cluster: MemoryCluster) -> None:
    let_runs_end(cluster, {}, after=1)
    expiry.expire(cluster, snapshot_of(cluster.bodies["ConfigMap", "s-t1"], workloads=(), pods=()))  # type: ignore[arg-type]
    assert ("ConfigMap", "s-t1.expired") in cluster.bodies
    engine = StoredRuns(cluster)
    remove_cluster_sweep(engine, "s", purge=False)
    assert sorted(engine.deleted) == ["s-t1", "s-t2"] and cluster.bodies == {}
