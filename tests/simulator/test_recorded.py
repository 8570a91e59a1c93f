"""A cluster recorded as snapshots: the trace it gives, and what it had."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from longboat.autoscaler.model.snapshot import POOL_LABEL, ClusterSnapshot, SeenNode, SeenPod
from longboat.autoscaler.model.snapshot_file import SavedSnapshot, write_saved
from longboat.core.errors import NotFound, UsageError
from longboat.fitting.model.pods import Pod, PodShape
from longboat.simulator.recorded import read_recording, recorded
from tests.simulator.worlds import GPU, hours, pool


def pod(name: str, gpus: int, node: str | None, **more: object) -> SeenPod:
    value = Pod(name=name, shape=PodShape(requests=((GPU, gpus),)), node=node, owner="Job")
    return SeenPod(pod=value, **{"created": 1000.0, **more})  # type: ignore[arg-type]


def seen(now: float, nodes: int, *pods: SeenPod) -> SavedSnapshot:
    shape = pool().machine
    made = [
        SeenNode(shape=msgspec.structs.replace(shape, name=f"n{n}", labels={POOL_LABEL: "a100"})) for n in range(nodes)
    ]
    return SavedSnapshot(now=now, snapshot=ClusterSnapshot(nodes=tuple(made), pods=pods, pools=(pool(),)))


def record(tmp_path: Path, *all_: SavedSnapshot) -> Path:
    for number, one in enumerate(all_):
        write_saved(one, tmp_path / f"{9 - number}.json")  # names say nothing about time
    return tmp_path


def test_jobs_and_machines_of_a_recorded_cluster(tmp_path: Path) -> None:
    gang = (pod("g-0", 8, "n1", gang="default/g"), pod("g-1", 8, "n2", gang="default/g"))
    path = record(
        tmp_path,
        seen(1000.0, 1, pod("a", 2, None)),
        seen(1300.0, 2, pod("a", 2, "n0"), *gang),
        seen(2300.0, 2, pod("a", 2, "n0"), *gang),
        seen(3300.0, 1, pod("a", 2, "n0", ended=2800.0)),
    )
    trace, real = recorded(read_recording(path))
    found = {job.name: (job.submitted, job.duration, job.gpus) for job in trace.jobs}
    assert found == {"default/a": (1000.0, 1500.0, 2), "default/g": (1000.0, 1000.0, 16)}
    assert real.figures.gpu_hours_provisioned == hours(8 * 300 + 16 * 1000 + 16 * 1000)
    assert real.figures.wait_p99_s == 300.0
    assert real.figures.jobs_finished == 2


def test_what_is_no_training_is_left_out(tmp_path: Path) -> None:
    service = Pod(name="s", shape=PodShape(requests=((GPU, 1),)), node="n0", owner="ReplicaSet")
    daemon = pod("d", 1, "n0", daemon="kube-system/d")
    both = (SeenPod(pod=service), daemon, pod("t", 1, "n0"))
    trace, _ = recorded(read_recording(record(tmp_path, seen(1.0, 1, *both), seen(2.0, 1, *both))))
    assert [job.name for job in trace.jobs] == ["default/t"]


def test_missing_and_too_short_recordings_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        read_recording(tmp_path / "nothing.json")
    with pytest.raises(NotFound, match=r"no \*.json"):
        read_recording(tmp_path)
    record(tmp_path, seen(1.0, 1))
    with pytest.raises(UsageError, match="one snapshot"):
        read_recording(tmp_path)
    record(tmp_path, seen(1.0, 1), seen(2.0, 1))
    with pytest.raises(UsageError, match="no pod with GPUs"):
        recorded(read_recording(tmp_path))
