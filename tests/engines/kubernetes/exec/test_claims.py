"""Claims of a real cluster: listed with their users, made, refused, removed, measured."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from longboat.core.errors import EngineError, NotFound, Refused, UsageError
from longboat.engines.kubernetes.exec.claims import (
    claims_of_run,
    create_volume,
    find_volume,
    list_volumes,
    remove_volume,
    view_of,
    wanted,
)
from longboat.engines.kubernetes.exec.disk_benchmark import (
    BenchmarkSize,
    DiskFigures,
    compare_figures,
    meanings,
    probe,
)
from longboat.engines.kubernetes.exec.pod_exec import Remote
from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.records import State, Storage
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP, POD, PVC, STORAGE_CLASS, VOLUME
from tests.engines.kubernetes.speaking import IMAGE, record_of, speak, until, until_running


@pytest.fixture
def storage_class(client: Client) -> Iterator[Callable[..., str]]:
    """Makes a class without a provisioner, and a volume of it on the node's disk where one is wanted."""
    made: list[tuple[Any, str]] = []

    def make(*, binding: str = "Immediate", size: str | None = None) -> str:
        name = f"test-{secrets.token_hex(4)}"
        body: dict[str, Any] = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        client.create({**body, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": binding})
        made.append((STORAGE_CLASS, name))
        if size is not None:
            spec = {
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": name,
                "hostPath": {"path": f"/var/lib/{name}", "type": "DirectoryOrCreate"},
            }
            client.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
            made.append((VOLUME, name))
        return name

    yield make
    for kind, name in reversed(made):
        client.delete(kind, name)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": "Data"}, "name"),
        ({"name": "../x"}, "name"),
        ({"size": "many"}, "size"),
        ({"size": "0"}, "size"),
        ({"access": "RW"}, "RWX (ReadWriteMany)"),
        ({"storage_class": "a b"}, "class"),
    ],
)
def test_what_is_no_volume_is_said(given: dict[str, str], told: str) -> None:
    fields = {"name": "data", "size": "1Gi", **given}
    with pytest.raises(UsageError) as caught:
        wanted(fields.pop("name"), fields.pop("size"), **fields)
    assert told in caught.value.message + (caught.value.hint or "")


def test_a_claim_as_users_see_it() -> None:
    claim = {
        "metadata": {"name": "data", "creationTimestamp": "2026-11-15T07:00:00Z"},
        "spec": {
            "resources": {"requests": {"storage": "5Gi"}},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "fast",
        },
        "status": {"phase": "Bound", "capacity": {"storage": "8Gi"}, "accessModes": ["ReadWriteMany", "ReadOnlyMany"]},
    }

    def pod(name: str, phase: str, mounted: str) -> dict[str, Any]:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": mounted}}, {"name": "w", "emptyDir": {}}]
        return {"metadata": {"name": name}, "spec": {"volumes": volumes}, "status": {"phase": phase}}

    pods = [pod("b", "Running", "data"), pod("a", "Pending", "data"), pod("c", "Succeeded", "data")]
    run = record_of("ns", storage=Storage(claim="data"))
    found = view_of(claim, [*pods, pod("d", "Running", "other")], [run])
    assert (found.size, found.access, found.storage_class) == ("8Gi", ("RWX", "ROX"), "fast")
    assert (found.pods, found.runs, found.phase) == (("a", "b"), ("train",), "Bound")
    assert claims_of_run(record_of("ns")) == set()
    ending = {**claim, "metadata": {"name": "data", "deletionTimestamp": "2026-11-15T07:00:00Z"}}
    assert view_of(ending, (), ()).phase == "Terminating"


def figures(**changed: Any) -> DiskFigures:
    given = {
        "size": 1 << 28,
        "write_bytes_per_s": 1e9,
        "read_bytes_per_s": 2e9,
        "files": 1000,
        "file_size": 100_000,
        "creates_per_s": 500.0,
        "reads_per_s": 4000.0,
        "free": 10**12,
        "total": 10**13,
    }
    return DiskFigures(**{**given, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "10 GB takes 10 s to write and 5.0 s to read"),
        ({}, "Reading 100 GB of large files once takes 50 s"),
        ({}, "1,000 images of 100 KB per second, for one busy GPU: yes, one process reads 4,000."),
        ({"reads_per_s": 1500.0}, "just so"),
        ({"reads_per_s": 120.0}, "9 loader workers may do"),
        ({"reads_per_s": 10.0}, "no, one process reads 10; pack the images"),
        ({"reads_per_s": 0.2}, "no, one process reads 0"),
        ({"read_bytes_per_s": 5e7}, "Large reads are slow here"),
        ({"read_bytes_per_s": 5e7}, "takes 33 min"),
        ({"read_bytes_per_s": 1e6}, "takes 27.8 h"),
        ({"read_bytes_per_s": 2e10}, "machine's memory"),
        ({"is_cold": False}, "machine's memory"),
        ({"free": 10**9}, "few checkpoints fit"),
    ],
)
def test_what_figures_mean(changed: dict[str, Any], said: str) -> None:
    assert said in " ".join(meanings(figures(**changed)))


def test_a_good_storage_has_no_warnings() -> None:
    assert len(meanings(figures())) == 3


@pytest.mark.pods
def test_from_making_to_removal(client: Client, namespace: str, storage_class: Callable[..., str]) -> None:
    name = storage_class(size="5Gi")
    made = create_volume(client, wanted("data", "1Gi", access="RWX", storage_class=name), timeout_s=60)
    assert (made.phase, made.size, made.storage_class, made.note) == ("Bound", "5Gi", name, "")
    with pytest.raises(Refused, match="already"):
        create_volume(client, wanted("data", "1Gi"), timeout_s=1)

    speak(client, "time.sleep(600)", storage={"persistentVolumeClaim": {"claimName": "data"}})
    until_running(client)
    record = record_of(namespace, storage=Storage(claim="data"))
    client.apply(objects.record_object(record, State(phase="running")))
    (seen,) = list_volumes(client)
    assert (seen.name, seen.pods, seen.runs) == ("data", ("train-a0-worker-0",), ("train",))
    with pytest.raises(Refused) as caught:
        remove_volume(client, "data")
    assert "run train, pod train-a0-worker-0" in caught.value.message
    assert client.find(PVC, "data") is not None

    client.delete(POD, "train-a0-worker-0", grace_s=0)
    client.patch(CONFIG_MAP, "train", {"data": {"state": '{"phase": "succeeded"}'}})
    until("the pod is gone", lambda: client.find(POD, "train-a0-worker-0") is None)
    remove_volume(client, "data")
    assert client.find(PVC, "data") is None
    for lost in ("data", "../data"):
        with pytest.raises(NotFound):
            find_volume(client, lost)


@pytest.mark.pods
def test_claims_that_wait_and_claims_in_vain(client: Client, storage_class: Callable[..., str]) -> None:
    late = create_volume(
        client, wanted("late", "1Gi", storage_class=storage_class(binding="WaitForFirstConsumer")), timeout_s=60
    )
    assert late.phase == "Pending" and "first uses it" in late.note
    with pytest.raises(EngineError) as caught:
        create_volume(client, wanted("vain", "1Gi", storage_class=storage_class()), timeout_s=0.5)
    assert "is not bound" in caught.value.message and "volume rm vain" in (caught.value.hint or "")
    with pytest.raises(Refused) as refused:
        create_volume(client, wanted("none", "1Gi", storage_class="no-such-class"), timeout_s=60)
    assert "no-such-class" in refused.value.message
    assert [view.name for view in list_volumes(client)] == ["late", "vain"]


@pytest.mark.pods
def test_a_probe_measures_and_leaves_nothing(client: Client, namespace: str, storage_class: Callable[..., str]) -> None:
    create_volume(client, wanted("data", "1Gi", storage_class=storage_class(size="1Gi")), timeout_s=60)
    found = probe(client, Storage(claim="data"), image=IMAGE, extent=BenchmarkSize(size=8 << 20, files=50))
    assert (found.size, found.files, found.file_size) == (8 << 20, 50, 100_000)
    rates = (found.write_bytes_per_s, found.read_bytes_per_s, found.creates_per_s, found.reads_per_s)
    assert all(rate > 0 for rate in rates) and 0 < found.free <= found.total
    until("the helper is gone", lambda: client.list(POD).items == [])
    pod = speak(client, "time.sleep(600)", storage={"persistentVolumeClaim": {"claimName": "data"}})
    until_running(client)
    assert Remote(client, namespace, pod).names("/longboat/storage") == []
    with pytest.raises(EngineError, match="MiB are free"):
        probe(client, Storage(claim="data"), image=IMAGE, extent=BenchmarkSize(size=1 << 50))


def test_volumes_side_by_side() -> None:
    """What is faster on which, by how much, and what helps where small files are slow."""
    efs = figures(write_bytes_per_s=100e6, read_bytes_per_s=300e6, reads_per_s=80.0)
    disk = figures(write_bytes_per_s=800e6, read_bytes_per_s=320e6, reads_per_s=8000.0)
    said = compare_figures({"efs": efs, "disk": disk})
    assert said[:3] == (
        "Checkpoints are written fastest on disk: 8.0 times as fast as on efs.",
        "Large files are read about as fast on all of them.",
        "Small files are read fastest on disk: 100.0 times as fast as on efs.",
    )
    assert len(said) == 4 and said[3].startswith("efs: each small file costs 12 ms") and "Tar shards" in said[3]
