"""Which claims a provisioner serves, what they get, and which folders it may delete."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from longboat.clusters.provisioner.volumes import (
    PROVISIONER,
    VolumePlace,
    failure_event,
    has_ended,
    is_folder_name,
    is_wanted,
    refusal,
    volume_name,
    volume_object,
)

UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
NODE = VolumePlace(path="/srv/volumes", node="gpu-1", hostname="gpu-1.lan")
NFS = VolumePlace(path="/export", server="10.0.0.5")


def claim(*, node: str = "gpu-1", wanted: str = PROVISIONER, **spec: Any) -> dict[str, Any]:
    notes = {"volume.kubernetes.io/storage-provisioner": wanted, "volume.kubernetes.io/selected-node": node}
    body = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}},
        "storageClassName": "longboat-local",
        **spec,
    }
    return {"metadata": {"name": "data", "namespace": "team", "uid": UID, "annotations": notes}, "spec": body}


def released(place: VolumePlace, **changes: Any) -> dict[str, Any]:
    volume = copy.deepcopy(volume_object(claim(), place))
    return {**volume, "status": {"phase": "Released"}, **changes}


def test_a_claim_is_served_by_the_node_that_the_scheduler_chose() -> None:
    assert is_wanted(claim(), NODE) and not is_wanted(claim(node="gpu-2"), NODE)
    assert is_wanted(claim(node="gpu-2"), NFS)  # a server is reached from everywhere


def test_claims_of_others_and_those_that_have_a_volume_are_left() -> None:
    assert not is_wanted(claim(wanted="ebs.csi.aws.com"), NODE)
    assert not is_wanted(claim(volumeName="pv-1"), NODE)
    going = claim()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not is_wanted(going, NODE)
    assert not is_wanted({"metadata": {"name": "x", "uid": UID}, "spec": {}}, NODE)


def test_a_folder_of_a_node_binds_its_pods_to_that_node() -> None:
    volume = volume_object(claim(), NODE)
    assert volume["metadata"]["name"] == f"pvc-{UID}" and volume["spec"]["local"] == {"path": f"/srv/volumes/pvc-{UID}"}
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-1.lan"]}]
    assert volume["spec"]["claimRef"]["uid"] == UID and volume["spec"]["capacity"] == {"storage": "5Gi"}


def test_a_folder_of_a_server_is_for_all_nodes() -> None:
    spec = volume_object(claim(accessModes=["ReadWriteMany"]), NFS)["spec"]
    assert spec["nfs"] == {"server": "10.0.0.5", "path": f"/export/pvc-{UID}"} and "nodeAffinity" not in spec
    assert spec["accessModes"] == ["ReadWriteMany"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"volumeMode": "Block"}, "no block devices"),
        ({"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}, "no copies"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "no labels to select"),
        ({"accessModes": ["ReadWriteMany"]}, "ReadWriteMany: a folder belongs to one node"),
        ({"accessModes": ["ReadWriteOncePod"]}, ""),
    ],
)
def test_what_a_folder_cannot_be_is_told(spec: dict[str, Any], reason: str) -> None:
    told = refusal(claim(**spec), NODE)
    assert (reason in told) if reason else told == ""


def test_the_only_node_and_a_server_can_share() -> None:
    shared = claim(accessModes=["ReadWriteMany"])
    assert refusal(shared, NFS) == ""
    assert refusal(shared, VolumePlace(path="/v", node="desk", hostname="desk", is_only_node=True)) == ""


def test_only_a_volume_of_ours_that_was_released_here_ends() -> None:
    assert has_ended(released(NODE), NODE) and has_ended(released(NFS), NFS)
    assert not has_ended(released(NODE, status={"phase": "Bound"}), NODE)
    assert not has_ended(released(NODE), VolumePlace(path="/srv/volumes", node="gpu-2", hostname="gpu-2"))
    assert not has_ended(released(NODE), VolumePlace(path="/elsewhere", node="gpu-1", hostname="gpu-1.lan"))
    kept = released(NODE)
    kept["spec"]["persistentVolumeReclaimPolicy"] = "Retain"
    assert not has_ended(kept, NODE)
    foreign = released(NODE)
    foreign["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] = "somebody"
    assert not has_ended(foreign, NODE)


@pytest.mark.parametrize("name", ["..", "", "pvc-", "pvc-../../etc", f"pvc-{UID}/..", f"x-{UID}", f"pvc-{UID.upper()}"])
def test_no_other_name_is_ever_a_folder_to_delete(name: str) -> None:
    volume = released(NODE)
    volume["metadata"]["name"] = name
    assert not is_folder_name(name) and not has_ended(volume, NODE)
    assert is_folder_name(volume_name(claim()))


def test_a_failure_is_an_event_of_the_claim() -> None:
    event = failure_event(claim(), "x" * 5000, now="2026-01-01T00:00:00Z", name="data.1")
    assert event["involvedObject"]["uid"] == UID and event["reason"] == "ProvisioningFailed"
    assert event["metadata"]["namespace"] == "team" and len(event["message"]) <= 1024
