"""`longboat cluster down` tells what a cluster left in its project, and deletes users' data only when asked.

Names and labels of the things are those that GKE and its drivers give by their published sources.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.cli.main import enter
from longboat.clusters.addons.addon import PoolsText
from tests.clouds.gcp.simulated_gke import SimulatedGke
from tests.clouds.gcp.simulated_google import PROJECT, REGION
from tests.clouds.gcp.simulated_stored import ZONE
from tests.clusters.cloud.conftest import GKE_ACCOUNT

pytestmark = pytest.mark.clouds
Text = pytest.CaptureFixture[str]
NODES = "gke-lab-0123abcd-node"
BALANCER = "a0123456789abcdef0123456789abcdef"
UUID_SNAPSHOT = "snapshot-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
"""As Kubernetes' snapshotter names them."""


def keep_data(google: SimulatedGke) -> None:
    """A snapshot and a Filestore of claims, a disk in two zones, and those of others that look alike."""
    here = {"goog-k8s-cluster-name": "lab", "goog-k8s-cluster-location": REGION}
    google.keep("disks", "pvc-twice", f"regions/{REGION}", labels=here)
    google.keep(
        "disks", "pvc-afar", "zones/europe-west4-a", labels={**here, "goog-k8s-cluster-location": "europe-west4"}
    )
    google.keep("disks", "pvc-2", "zones/us-central1-a", labels={"goog-k8s-cluster-name": "lab-2"})
    google.keep("snapshots", UUID_SNAPSHOT, sourceDisk=f"{ZONE}/disks/pvc-1")
    google.keep("snapshots", "snapshot-2", sourceDisk=f"{ZONE}/disks/somebody")
    google.keep("snapshots", "snapshot-3", sourceDisk=f"{ZONE}/disks/gone", labels=here)
    files = {"storage_gke_io_cluster_name": "lab", "storage_gke_io_cluster_location": REGION}
    for name, cluster in (("pvc-files", files), ("others", {"storage_gke_io_cluster_name": "lab-2"})):
        place = f"locations/{REGION}-b"
        body = {"name": f"projects/{PROJECT}/{place}/instances/{name}", "labels": cluster}
        google.kept["instances"][place, name] = body


OTHERS = {"pvc-afar", "pvc-2", "snapshot-2", "others"}


def names(google: SimulatedGke) -> set[str]:
    return {name for kind in google.kept.values() for _, name in kind} | set(google.claims)


def test_data_of_claims_stays_until_it_is_asked_for(google: SimulatedGke, capfd: Text) -> None:
    assert enter(["cluster", "up"]) == 0
    google.claims = ["pvc-1"]
    keep_data(google)
    before = names(google)
    capfd.readouterr()
    assert enter(["cluster", "down", "lab", "--yes"]) == 0
    shown = capfd.readouterr().err
    kept = f"Filestore pvc-files, pvc-twice, pvc-1, snapshot {UUID_SNAPSHOT}, snapshot snapshot-3"
    assert f"kept, with what users stored, and paid for: {kept}" in shown
    assert names(google) == before
    assert enter(["cluster", "down", "lab", "--yes", "--purge-data"]) == 0
    assert names(google) == OTHERS
    assert "lab is gone; nothing else" in capfd.readouterr().err


def test_parts_of_load_balancers_are_told(google: SimulatedGke, capfd: Text) -> None:
    assert enter(["cluster", "up"]) == 0
    google.keep("firewalls", f"k8s-fw-{BALANCER}", targetTags=[NODES])
    google.keep("firewalls", "k8s-fw-l7--5ca1ab1e", targetTags=[NODES])
    google.keep("firewalls", "gke-lab-0123abcd-all", targetTags=[NODES])  # GKE's own, which it takes along
    google.keep("firewalls", "k8s-fw-of-another", targetTags=["gke-lab-2-0123abcd-node"])
    google.keep("firewalls", "k8s-fw-without")
    google.keep("forwardingRules", BALANCER, f"regions/{REGION}")
    google.keep("forwardingRules", "k8s-fw-default-web--5ca1ab1e")
    google.keep("forwardingRules", "of-another", f"regions/{REGION}")
    google.keep("addresses", BALANCER, f"regions/{REGION}")
    google.keep("addresses", "mine", labels={"longboat-cluster": "lab"})
    google.keep("addresses", "somebodys", f"regions/{REGION}", users=["x"])
    capfd.readouterr()
    assert enter(["cluster", "down", "lab", "--yes"]) == 205
    shown = capfd.readouterr().err
    left = [line.partition(": left: ")[2] for line in shown.splitlines() if ": left: " in line]
    assert left == [
        "address mine (global)",
        f"address {BALANCER} (regions/{REGION})",
        f"firewall rule k8s-fw-{BALANCER} (global)",
        "firewall rule k8s-fw-l7--5ca1ab1e (global)",
        "forwarding rule k8s-fw-default-web--5ca1ab1e (global)",
        f"forwarding rule {BALANCER} (regions/{REGION})",
    ]
    assert f"lab: 6 things of it are left in {PROJECT}" in shown


def test_a_disk_of_a_node_that_stays_is_told(google: SimulatedGke, capfd: Text) -> None:
    assert enter(["cluster", "up"]) == 0
    google.keeps_node_disks = True
    capfd.readouterr()
    assert enter(["cluster", "down", "lab", "--yes"]) == 205
    shown = capfd.readouterr().err
    assert "left: disk boot-gone (zones/us-central1-b)" in shown and "1 thing of it is left" in shown
    google.keeps_node_disks = False
    assert enter(["cluster", "down", "lab", "--yes"]) == 0


def test_a_project_without_filestore(google: SimulatedGke, capfd: Text) -> None:
    google.has_filestore = False
    assert enter(["cluster", "up"]) == 0
    assert enter(["cluster", "down", "lab", "--yes"]) == 0


def test_what_google_cannot_list_now_is_not_taken_for_gone(google: SimulatedGke, capfd: Text) -> None:
    assert enter(["cluster", "up"]) == 0
    google.unreachable = ["europe-west4-a", f"{REGION}-b"]
    capfd.readouterr()
    assert enter(["cluster", "down", "lab", "--yes", "--purge-data"]) == 205 and google.cluster is not None
    assert f"Filestore does not answer for {REGION}-b: what is there is not known" in capfd.readouterr().err
    google.unreachable = ["europe-west4-a"]
    assert enter(["cluster", "down", "lab", "--yes"]) == 0, capfd.readouterr().err


def test_rights_that_a_cluster_elsewhere_may_share_stay_while_its_place_does_not_answer(
    google: SimulatedGke, capfd: Text, installed: list[PoolsText]
) -> None:
    path = Path("cluster.yaml")
    path.write_text(path.read_text().replace("addons: []", "addons: [autoscaler]\nimage: registry.example.org/lb:1"))
    assert enter(["cluster", "up"]) == 0
    google.missing = ["europe-west4-a"]
    capfd.readouterr()
    assert enter(["cluster", "down", "lab", "--yes"]) == 205 and google.rights_of(PROJECT, GKE_ACCOUNT)
    assert "GKE does not answer for europe-west4-a" in capfd.readouterr().err
    google.missing = []
    assert enter(["cluster", "down", "lab", "--yes"]) == 0, capfd.readouterr().err


def test_what_is_another_ones_stays_whatever_it_is_called(google: SimulatedGke, capfd: Text) -> None:
    """A person's backup of a claim's disk; of a cluster of the same name elsewhere what bears no label of its place."""
    assert enter(["cluster", "up"]) == 0
    google.claims = ["pvc-1"]
    afar = {"goog-k8s-cluster-name": "lab"}
    google.keep("snapshots", "backup", sourceDisk=f"{ZONE}/disks/pvc-1")
    google.keep("snapshots", UUID_SNAPSHOT, sourceDisk=f"{ZONE}/disks/pvc-1")
    google.keep("disks", "pvc-3", "zones/europe-west4-a", labels={"longboat-cluster": "lab"})
    google.keep("disks", "pvc-4", "regions/europe-west4", labels=afar)
    source = ZONE.replace(f"{REGION}-b", "europe-west4-a")
    google.keep("snapshots", "snapshot-5", sourceDisk=f"{source}/disks/pvc-3", labels=afar)
    google.keep("addresses", "web", "regions/europe-west4", labels={"longboat-cluster": "lab"})
    place = "locations/europe-west4-b"
    body = {"name": f"projects/{PROJECT}/{place}/instances/files", "labels": {"storage_gke_io_cluster_name": "lab"}}
    google.kept["instances"][place, "files"] = body
    others = {"backup", "pvc-3", "pvc-4", "snapshot-5", "web", "files"}
    capfd.readouterr()
    assert enter(["cluster", "down", "lab", "--yes", "--purge-data"]) == 0, capfd.readouterr().err
    assert names(google) == others


def test_load_balancers_of_a_cluster_of_the_same_name_are_not_ours(google: SimulatedGke, capfd: Text) -> None:
    assert enter(["cluster", "up"]) == 0
    google.elsewhere = [{"name": "lab", "location": "europe-west4", "id": "fedcba98" + "0" * 32}]
    google.keep("firewalls", f"k8s-fw-{BALANCER}", targetTags=["gke-lab-fedcba98-node"])
    google.keep("forwardingRules", BALANCER, "regions/europe-west4")
    assert enter(["cluster", "down", "lab", "--yes"]) == 0, capfd.readouterr().err
