"""What `up` asks of GKE, and what differs from the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.clouds.machine_types import shipped_table
from longboat.clusters.cloud.gcp.cluster_view import GkeView, read_cluster_view
from longboat.clusters.cloud.gcp.decide import decide_up, drift, quota_problems
from longboat.clusters.cloud.gcp.request import make_request
from longboat.clusters.cloud.spec import CloudSpec
from longboat.clusters.cluster_file import read_cluster
from longboat.core.errors import LongboatError
from tests.clusters.cloud.gcp.test_request import FILE

TABLE = shipped_table("gcp")


@pytest.fixture
def spec(tmp_path: Path) -> CloudSpec:
    (tmp_path / "cluster.yaml").write_text(FILE)
    cloud = read_cluster(tmp_path / "cluster.yaml").cloud
    assert cloud is not None
    return cloud


def view_of(spec: CloudSpec, **more: Any) -> GkeView:
    """The cluster as GKE shows it after it was made by the request; every pool has the machines of the file."""
    body = {**make_request("lab", spec, TABLE)["cluster"], "status": "RUNNING", "currentMasterVersion": "1.35.1-gke.5"}
    view = read_cluster_view({**body, **more})
    sizes = {pool.name: pool.count for pool in spec.pools}
    pools = tuple(msgspec.structs.replace(pool, size=sizes[pool.name]) for pool in view.pools)
    return msgspec.structs.replace(view, pools=pools)


def test_what_was_made_by_the_request_is_as_the_file_says(spec: CloudSpec) -> None:
    assert drift(spec, view_of(spec)) == [] and decide_up("lab", spec, TABLE, view_of(spec)) == ()
    (step,) = decide_up("lab", spec, TABLE, None)
    assert step.verb == "create_cluster" and step.body == make_request("lab", spec, TABLE)


def test_gkes_own_taint_of_gpus_is_no_difference(spec: CloudSpec) -> None:
    view = view_of(spec)
    taint = ("nvidia.com/gpu", "present", "NO_SCHEDULE")
    pools = tuple(msgspec.structs.replace(pool, taints=(*pool.taints, taint)) for pool in view.pools)
    assert drift(spec, msgspec.structs.replace(view, pools=pools)) == []


@pytest.mark.parametrize(
    ("change", "words", "verbs"),
    [
        ({"size": 5}, "cpu: it has 5 machines, the file has 2", ["resize_pool"]),
        ({"type": "e2-standard-8"}, "cpu: machines are e2-standard-8, the file has e2-standard-4", []),
        ({"max": 9, "is_managed": True}, "cpu: its range is (0, 9), the file has (0, 0)", ["limit_pool"]),
        ({"spot": True}, "cpu: spot is True, the file has False", []),
        ({"issue": "GCE_STOCKOUT"}, "cpu: GKE says: GCE_STOCKOUT", []),
        ({"name": "other", "labels": {}}, "the node pool other is not in the file", ["create_pool"]),
        (
            {"name": "old", "labels": {"longboat.dev/pool": "old"}},
            "cpu: there is no such",
            ["create_pool", "delete_pool"],
        ),
    ],
)
def test_differences(spec: CloudSpec, change: dict[str, Any], words: str, verbs: list[str]) -> None:
    """What GKE cannot change in a node pool is told and left."""
    view = view_of(spec)
    view = msgspec.structs.replace(view, pools=(msgspec.structs.replace(view.pools[0], **change), *view.pools[1:]))
    assert any(line.startswith(words) for line in drift(spec, view)), drift(spec, view)
    assert [step.verb for step in decide_up("lab", spec, TABLE, view)] == verbs


def test_differences_of_the_cluster(spec: CloudSpec) -> None:
    old = view_of(spec, currentMasterVersion="1.3.5", controlPlaneEndpointsConfig={})
    first, second = drift(spec, old)
    assert first == "Kubernetes is 1.3.5, the file has 1.35" and "reached from 0.0.0.0/0" in second


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"resourceLabels": {}}, "which Longboat did not make"),
        ({"status": "STOPPING"}, "is being taken down"),
        ({"status": "ERROR", "conditions": [{"message": "no quota"}]}, "was not made: no quota"),
    ],
)
def test_clusters_that_cannot_be_changed(spec: CloudSpec, more: dict[str, Any], words: str) -> None:
    with pytest.raises(LongboatError, match=words):
        decide_up("lab", spec, TABLE, view_of(spec, **more))


def test_quotas_are_judged_where_they_are_told(spec: CloudSpec) -> None:
    """Spot machines at the start are none here; CPUs are those of both other pools."""
    cpus = 2 * TABLE.machines["e2-standard-4"].cpus + TABLE.machines["a3-highgpu-8g"].cpus
    assert quota_problems(spec, TABLE, {}) == []
    assert quota_problems(spec, TABLE, {"CPUS": cpus, "NVIDIA_H100_GPUS": 8}) == []
    assert quota_problems(spec, TABLE, {"CPUS": cpus - 1, "NVIDIA_H100_GPUS": 7}) == [
        f"CPUS: {cpus} wanted, {cpus - 1} left",
        "NVIDIA_H100_GPUS: 8 wanted, 7 left",
    ]
