"""What stays of an add-on for the sake of its users."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.clusters.addons.addon import addon_of
from longboat.clusters.addons.remove import (
    UserData,
    custom_kind,
    is_addons_own,
    kept_lines,
    purge_data,
    remove_addons,
)
from longboat.clusters.spec import ADDON_LABEL
from longboat.core.errors import EngineError
from longboat.engines.kubernetes.names import SYSTEM
from longboat.kubeapi.client import ObjectList
from longboat.kubeapi.errors import ObjectNotFound
from longboat.kubeapi.kinds import (
    CONFIG_MAP,
    CRON_JOB,
    JOB,
    JOBSET,
    LOCAL_QUEUE,
    NAMESPACE,
    NODE,
    POD,
    PVC,
    SECRET,
    STATEFUL_SET,
    VOLUME,
    Kind,
)


def volume(name: str, claim: str | None) -> dict[str, Any]:
    reference = {"claimRef": {"namespace": "team", "name": claim}} if claim else {}
    return {"metadata": {"name": name}, "spec": {"local": {"path": f"/v/{name}"}, **reference}}


def test_nothing_of_users_is_no_line() -> None:
    assert kept_lines(UserData()) == []


def test_what_is_kept_is_named_with_the_way_to_delete_it() -> None:
    queue = {"metadata": {"name": "x", "namespace": "team"}}
    data = UserData({"jobsets.jobset.x-k8s.io": (JOBSET, [queue])}, [volume("pv-1", "b"), volume("pv-2", "a")])
    assert kept_lines(data) == [
        "kept: jobsets.jobset.x-k8s.io with 1 object of users, team/x for one",
        "kept: the volume of team/b, /v/pv-1",
        "kept: the volume of team/a, /v/pv-2",
        "--purge-data deletes what is kept",
    ]
    server = {"metadata": {"name": "pv"}, "spec": {"nfs": {"server": "nas", "path": "/export/pv"}}}
    assert kept_lines(UserData(volumes=[server]))[0] == "kept: a volume, nas:/export/pv"


def test_many_volumes_are_counted() -> None:
    lines = kept_lines(UserData(volumes=[volume(f"pv-{number}", "x") for number in range(30)]))
    assert len(lines) == 22 and lines[-2] == "kept: 10 more volumes"


def test_a_definition_is_listed_in_the_version_it_is_stored_in() -> None:
    versions = [{"name": "v1beta1", "storage": False}, {"name": "v1beta2", "storage": True}]
    names = {"kind": "ClusterQueue", "plural": "clusterqueues"}
    definition = {"spec": {"group": "kueue.x-k8s.io", "names": names, "scope": "Cluster", "versions": versions}}
    kind = custom_kind(definition)
    assert kind.path(name="a") == "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/a"


class SmallCluster:
    """An API server with these objects; what is deleted is gone, and written down with its precondition."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.bodies = list(bodies)
        self.deleted: list[tuple[str, str, str | None]] = []

    def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str = "", **_: Any
    ) -> ObjectList[dict[str, Any]]:  # fmt: skip
        if kind == JOBSET:
            raise ObjectNotFound("no such kind")
        bodies = [body for body in self.bodies if body["kind"] == kind.kind]
        bodies = [body for body in bodies if labels != ADDON_LABEL or addon_of(body)]
        return ObjectList([body for body in bodies if namespace in (None, body["metadata"].get("namespace"))], "1")

    def find(self, kind: Kind, name: str, *, namespace: str | None = None) -> dict[str, Any] | None:
        return next(
            (body for body in self.list(kind, namespace=namespace).items if body["metadata"]["name"] == name), None
        )

    def delete(self, kind: Kind, name: str, *, namespace: str | None = None, uid: str | None = None, **_: Any) -> None:
        self.deleted.append((kind.kind, name, uid))
        self.bodies = [
            body
            for body in self.bodies
            if (body["kind"], body["metadata"]["name"]) != (kind.kind, name)
            and not (kind == PVC and uid and (body.get("spec") or {}).get("claimRef", {}).get("uid") == uid)
        ]


def body_of(kind: Kind, name: str, namespace: str = "team", **fields: Any) -> dict[str, Any]:
    return {"kind": kind.kind, "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"}, **fields}


def bound(name: str, claim: str, uid: str, host: str = "gpu-1", policy: str = "Delete") -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}
    spec = {
        "claimRef": {"namespace": "team", "name": claim, "uid": uid},
        "persistentVolumeReclaimPolicy": policy,
        "local": {"path": f"/v/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return {"kind": VOLUME.kind, "metadata": {"name": name}, "spec": spec}


def node_of(name: str, ready: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}]
    return {"kind": NODE.kind, "metadata": {"name": name, "labels": {}}, "status": {"conditions": conditions}}


def space_of(name: str, addon: str) -> dict[str, Any]:
    return {"kind": NAMESPACE.kind, "metadata": {"name": name, "uid": "u", "labels": {ADDON_LABEL: addon}}}


def user_of(claim: str) -> dict[str, Any]:
    return body_of(POD, f"of-{claim}", spec={"volumes": [{"persistentVolumeClaim": {"claimName": claim}}]})


def purge(client: Any, *, ends_cluster: bool = False, is_served: bool = True) -> tuple[tuple[str, ...], list[str]]:
    said: list[str] = []
    volumes = client.list(VOLUME).items
    purged = purge_data(client, UserData(volumes=volumes), said.append, ends_cluster=ends_cluster, is_served=is_served)
    return purged, said


def test_a_claim_that_only_has_the_name_of_another_is_left_with_its_pods() -> None:
    """The old one went and its volume stayed; the data of the new one are somewhere else."""
    volumes = (bound("pv-1", "data", "uid-data"), bound("pv-2", "again", "uid-of-the-first", host="gone"))
    claims = (body_of(PVC, "data"), body_of(PVC, "again"))
    client = SmallCluster(*volumes, *claims, user_of("data"), user_of("again"), node_of("gpu-1", "True"))
    purged, _ = purge(client, ends_cluster=True)
    assert client.deleted == [("Pod", "of-data", None), ("PersistentVolumeClaim", "data", "uid-data")]
    assert purged == ("pv-1", "pv-2")


def test_volumes_that_nobody_will_delete_are_told_and_not_waited_for() -> None:
    client = SmallCluster(
        bound("pv-1", "a", "uid-a", policy="Retain"), bound("pv-2", "b", "uid-b", host="gpu-2"),
        bound("pv-3", "c", "uid-c", host="gpu-3"), body_of(PVC, "a"), body_of(PVC, "b"),
        node_of("gpu-1", "True"), node_of("gpu-2", "Unknown"),
    )  # fmt: skip
    purged, said = purge(client)
    assert said == [
        "longboat: kept: the volume of team/a, /v/pv-1: its reclaim policy is Retain",
        "longboat: kept: the volume of team/b, /v/pv-2: its node gpu-2 does not answer",
        "longboat: kept: the volume of team/c, /v/pv-3: its node gpu-3 does not answer",
    ]
    assert purged == ("pv-2", "pv-3") and client.deleted == [("PersistentVolumeClaim", "b", "uid-b")]


def test_without_a_provisioner_claims_stay_unless_the_hosts_delete_the_folders() -> None:
    client = SmallCluster(bound("pv-1", "a", "uid-a"), body_of(PVC, "a"))
    with pytest.raises(EngineError, match="nobody is there to delete the folders of 1 volume"):
        purge(client, is_served=False)
    assert purge(client, is_served=False, ends_cluster=True) == (("pv-1",), [])
    assert client.deleted == []


@pytest.mark.parametrize(
    "kind", [CRON_JOB, STATEFUL_SET, JOB, CONFIG_MAP, SECRET, LOCAL_QUEUE, POD, PVC], ids=lambda kind: kind.kind
)
def test_a_namespace_of_ours_with_anything_of_users_is_kept(kind: Kind) -> None:
    said: list[str] = []
    space = space_of("kueue-system", "kueue")
    client: Any = SmallCluster(space, body_of(kind, "mine", "kueue-system"))
    assert remove_addons(client, said.append, purge=False).count == 0
    assert client.deleted == []
    assert (
        said[0]
        == f"longboat: namespace kueue-system is kept: {kind.kind} kueue-system/mine is there, which up did not make"
    )


def test_what_clusters_and_add_ons_write_themselves_keeps_no_namespace() -> None:
    space = space_of(SYSTEM, "autoscaler")
    token = body_of(SECRET, "token", SYSTEM, type="kubernetes.io/service-account-token")
    written = [body_of(CONFIG_MAP, name, SYSTEM) for name in ("kube-root-ca.crt", "longboat-autoscaler-status")]
    client: Any = SmallCluster(space, token, *written)
    assert remove_addons(client, lambda text: None, purge=False).count == 1
    assert is_addons_own(POD, {"metadata": {"name": "x", "namespace": "x", "deletionTimestamp": "now"}})
    assert not is_addons_own(CONFIG_MAP, body_of(CONFIG_MAP, "longboat-mine", "kueue-system"))
