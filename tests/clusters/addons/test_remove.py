"""What stays of an add-on for the sake of its users."""

from __future__ import annotations

from typing import Any

from longboat.clusters.addons.remove import UserData, custom_kind, kept_lines
from longboat.kubeapi.kinds import JOBSET


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
