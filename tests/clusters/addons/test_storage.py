"""Objects of the add-on storage, for folders of nodes and for a server."""

from __future__ import annotations

from typing import Any

from longboat.clusters.addons.addon import AddonInputs
from longboat.clusters.addons.storage import make, storage_objects
from longboat.clusters.spec import VolumeStorage
from tests.clusters.worlds import cluster

IMAGE = "registry.example.org/longboat:1"


def by_kind(**fields: Any) -> dict[str, dict[str, Any]]:
    return {body["kind"]: body for body in storage_objects(cluster(**fields), IMAGE, is_default=True)}


def test_folders_of_nodes_are_made_by_a_pod_on_each_of_them() -> None:
    bodies = by_kind()
    pod = bodies["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    source = {"path": "/var/lib/longboat-volumes", "type": "DirectoryOrCreate"}
    assert pod["volumes"][1] == {"name": "volumes", "hostPath": source}
    words = pod["containers"][0]["command"]
    assert words[words.index("--path") + 1] == "/var/lib/longboat-volumes" and "--only-node" not in words
    assert bodies["StorageClass"]["volumeBindingMode"] == "WaitForFirstConsumer"
    assert bodies["Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_a_folder_of_the_user_s_is_never_closed_but_one_of_our_own_in_it() -> None:
    """The provisioner takes its folder away from everybody but root."""
    pod = by_kind(storage=VolumeStorage(path="/home/lab"))["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["volumes"][1]["hostPath"]["path"] == "/home/lab/longboat-volumes"
    words = pod["containers"][0]["command"]
    assert words[words.index("--path") + 1] == "/home/lab/longboat-volumes"


def test_a_server_is_served_by_one_pod() -> None:
    bodies = by_kind(storage=VolumeStorage(kind="nfs", server="10.0.0.5", path="/export"))
    pod = bodies["Deployment"]["spec"]["template"]["spec"]
    assert pod["volumes"][1] == {"name": "volumes", "nfs": {"server": "10.0.0.5", "path": "/export"}}
    words = pod["containers"][0]["command"]
    assert words[words.index("--server") + 1] == "10.0.0.5" and "DaemonSet" not in bodies
    assert bodies["StorageClass"]["volumeBindingMode"] == "Immediate"
    assert bodies["StorageClass"]["metadata"]["name"] == "longboat-nfs"


def test_the_only_node_shares_its_folders() -> None:
    words = by_kind(kind="local")["DaemonSet"]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert "--only-node" in words


def test_its_rights_are_few() -> None:
    """It reads no Secrets, and changes nothing but volumes."""
    rules = by_kind()["ClusterRole"]["rules"]
    writes = {
        (rule["resources"][0], verb) for rule in rules for verb in rule["verbs"] if verb not in ("get", "list", "watch")
    }
    assert writes == {("persistentvolumes", "create"), ("persistentvolumes", "delete"), ("events", "create")}
    container = by_kind()["DaemonSet"]["spec"]["template"]["spec"]["containers"][0]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert container["securityContext"]["readOnlyRootFilesystem"] and "privileged" not in container["securityContext"]


def test_the_class_is_told() -> None:
    manifest = make(AddonInputs(cluster(image=IMAGE)))
    assert manifest.notes == (
        "claims of the class longboat-local get folders of local-path /var/lib/longboat-volumes; the default class",
    )
