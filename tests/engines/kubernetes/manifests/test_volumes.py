from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.core.errors import Refused
from longboat.core.jobs import Checkpoints, Volume
from longboat.engines.kubernetes.manifests import volumes as storage
from longboat.engines.kubernetes.records import Storage
from tests.engines.kubernetes.manifest_samples import UID, job, record, role

FOLDER = f"longboat/train-{UID[:8]}"
CLAIM = Storage(claim="keep")


def places(volumes: list[Volume], to: str | None, chosen: Storage | None) -> tuple[Storage | None, storage.Places]:
    what = job(volumes=tuple(volumes), checkpoints=Checkpoints(to=to))
    found = storage.run_storage(what, chosen, run="train", uid=UID)
    return found, storage.places(what, found, run="train", uid=UID)


def test_without_a_storage_everything_goes_with_the_pod() -> None:
    found, kept = places([], "ckpt", None)
    assert found is None
    assert kept.checkpoints == "/longboat/node/checkpoints" and kept.artifacts == "/longboat/node/artifacts"
    assert kept.keep is None and not kept.is_lasting


def test_the_storage_of_the_context_has_a_folder_per_run() -> None:
    found, kept = places([], "ckpt", CLAIM)
    assert found == Storage(claim="keep", folder=FOLDER)
    assert kept.checkpoints == f"/longboat/storage/{FOLDER}/checkpoints"
    assert kept.artifacts == f"/longboat/storage/{FOLDER}/artifacts"
    assert kept.keep == f"/longboat/storage/{FOLDER}/logs" and kept.is_lasting


@pytest.mark.parametrize(
    ("target", "to", "place"),
    [
        ("/ckpt", "/ckpt", f"/ckpt/train-{UID[:8]}"),
        ("/ckpt", "/ckpt/deep/er", f"/ckpt/deep/er/train-{UID[:8]}"),
        ("ckpt", "./ckpt", f"/longboat/volumes/0/train-{UID[:8]}"),
        ("out", "out/checkpoints/", f"/longboat/volumes/0/checkpoints/train-{UID[:8]}"),
    ],
)
def test_checkpoints_inside_a_volume_stay_there_and_make_it_the_storage(target: str, to: str, place: str) -> None:
    found, kept = places([Volume(target=target, claim="mine")], to, None)
    assert found == Storage(claim="mine", folder=FOLDER)
    assert kept.checkpoints == place
    assert kept.keep == f"/longboat/storage/{FOLDER}/logs" and kept.is_lasting
    assert places([Volume(target=target, claim="mine")], to, CLAIM)[1].checkpoints == place


def test_a_folder_that_only_begins_alike_is_not_inside() -> None:
    assert places([Volume(target="/ckpt", claim="mine")], "/ckpt2", None)[0] is None


@pytest.mark.parametrize("chosen", [None, CLAIM])
def test_checkpoints_in_an_object_store_have_a_copy_on_the_node(chosen: Storage | None) -> None:
    found, kept = places([Volume(target="/data", claim="mine")], "s3://bucket/team/", chosen)
    assert kept.store == f"s3://bucket/team/train-{UID[:8]}" and kept.is_lasting
    assert kept.checkpoints == "/longboat/node/checkpoints"
    assert (kept.keep is not None) == (found is not None) == (chosen is not None)
    this = job(checkpoints=Checkpoints(to="s3://bucket/team/"))
    assert storage.links(record(this)) == {}
    assert storage.storage_notices(this, chosen) == []
    (notice,) = storage.storage_notices(msgspec.structs.replace(this, artifacts=("out/*",)), None)
    assert "artifacts and logs go" in notice and "checkpoints" not in notice
    (notice,) = storage.storage_notices(job(checkpoints=Checkpoints(to="./x")), None)
    assert "checkpoints, artifacts and logs go" in notice


def test_the_deepest_volume_holds_the_checkpoints() -> None:
    volumes = [Volume(target="/a", claim="outer"), Volume(target="/a/b", nfs="nas:/x")]
    assert places(volumes, "/a/b/c", None)[0] == Storage(nfs="nas:/x", folder=FOLDER)


@pytest.mark.parametrize("more", [{"scratch": True}, {"claim": "x", "read_only": True}])
def test_scratch_and_read_only_volumes_are_no_storage(more: dict[str, Any]) -> None:
    found, kept = places([Volume(target="/ckpt", **more)], "/ckpt", None)
    assert found is None and kept.keep is None


def test_checkpoints_in_scratch_are_not_lasting() -> None:
    assert not places([Volume(target="/ckpt", scratch=True)], "/ckpt", CLAIM)[1].is_lasting


def test_volumes_of_every_kind_are_mounted_where_they_are_asked_for() -> None:
    volumes = (
        Volume(target="/data", claim="datasets", read_only=True),
        Volume(target="in", nfs="nas.example.org:/export/in"),
        Volume(target="/host/", path="/srv/x/"),
        Volume(target="tmp", scratch=True),
        Volume(target="ram", scratch=True, medium="memory", size=1 << 30),
        Volume(target="again", claim="datasets"),
    )
    made, mounts = storage.pod_volumes(record(job(volumes=volumes), storage=Storage(claim="keep", folder=FOLDER)))
    assert made == [
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "datasets"}},
        {"name": "volume-1", "nfs": {"server": "nas.example.org", "path": "/export/in"}},
        {"name": "volume-2", "hostPath": {"path": "/srv/x", "type": "Directory"}},
        {"name": "volume-3", "emptyDir": {}},
        {"name": "volume-4", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "storage", "persistentVolumeClaim": {"claimName": "keep"}},
    ]
    assert mounts == [
        {"name": "volume-0", "mountPath": "/data", "readOnly": True},
        {"name": "volume-1", "mountPath": "/longboat/volumes/1"},
        {"name": "volume-2", "mountPath": "/host"},
        {"name": "volume-3", "mountPath": "/longboat/volumes/3"},
        {"name": "volume-4", "mountPath": "/longboat/volumes/4"},
        {"name": "volume-0", "mountPath": "/longboat/volumes/5"},
        {"name": "storage", "mountPath": "/longboat/storage"},
    ]


def test_a_volume_that_is_the_storage_too_is_one_volume_of_the_pod() -> None:
    what = job(volumes=(Volume(target="/ckpt", claim="mine"),))
    made, mounts = storage.pod_volumes(record(what, storage=Storage(claim="mine", folder=FOLDER)))
    assert [volume["name"] for volume in made] == ["volume-0"]
    assert [mount["mountPath"] for mount in mounts] == ["/ckpt", "/longboat/storage"]


def test_relative_targets_and_checkpoints_are_linked_into_the_working_copy() -> None:
    volumes = (Volume(target="/abs", claim="a"), Volume(target="in/data", claim="b"))
    what = job(volumes=volumes, checkpoints=Checkpoints(to="./ckpt"))
    assert storage.links(record(what)) == {"in/data": "/longboat/volumes/1", "ckpt": "/longboat/node/checkpoints"}
    inside = job(volumes=(Volume(target="ckpt", claim="b"),), checkpoints=Checkpoints(to="ckpt/x"))
    assert storage.links(record(inside)) == {"ckpt": "/longboat/volumes/0"}
    for to in ("/abs", "../up", "~/home"):
        assert storage.links(record(job(checkpoints=Checkpoints(to=to)))) == {}


def test_folders_of_nodes_need_an_opt_in() -> None:
    what = job(volumes=(Volume(target="/x", path="/srv/x"),))
    with pytest.raises(Refused, match="volumes./x: mounting /srv/x of the nodes was not allowed") as refused:
        storage.check_volumes(what, allow_host_paths=False)
    assert refused.value.hint is not None and "allow_host_paths" in refused.value.hint
    storage.check_volumes(what, allow_host_paths=True)


@pytest.mark.parametrize("path", ["./data", "data", "~/data"])
def test_folders_of_the_submitter_are_never_mounted(path: str) -> None:
    with pytest.raises(Refused, match="the machine you submit from"):
        storage.check_volumes(job(volumes=(Volume(target="x", path=path),)), allow_host_paths=True)


def test_claims_that_are_described_are_made() -> None:
    volumes = (
        Volume(target="/a", claim="old"),
        Volume(target="/b", claim="new", size=100 << 30, storage_class="fast", access="ReadOnlyMany"),
        Volume(target="/c", claim="other", size=10**9),
        Volume(target="/d", claim="other"),
    )
    new, other = storage.claims(job(role(nodes=2), volumes=volumes), "space")
    assert new["metadata"]["name"] == "new" and new["metadata"]["namespace"] == "space"
    assert new["spec"] == {
        "accessModes": ["ReadOnlyMany"],
        "resources": {"requests": {"storage": "100Gi"}},
        "storageClassName": "fast",
    }
    assert other["spec"] == {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1G"}}}
    (alone,) = storage.claims(job(volumes=volumes[2:3]), "space")
    assert alone["spec"]["accessModes"] == ["ReadWriteOnce"]
