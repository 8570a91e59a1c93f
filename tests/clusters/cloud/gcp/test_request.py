"""Requests that make clusters of GKE, held against Google's published description of its API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from longboat.cli.main import enter
from longboat.clouds.machine_types import shipped_table
from longboat.clusters.cloud.gcp.request import ACCELERATORS, make_request
from longboat.clusters.cluster_file import read_cluster
from longboat.core.errors import JobError
from tests.clouds.gcp.google_schema import convert
from tests.clusters.cloud import servers
from tests.storage.realstores import Unavailable

FILE = """
name: lab
kind: gcp
region: us-central1
network: {access: [192.0.2.0/24], name: research, subnet: nodes}
pools:
- {name: cpu, type: e2-standard-4, count: 2}
- name: gpu
  type: a2-highgpu-8g
  min: 0
  max: 4
  spot: true
  zones: [us-central1-c]
  placement_group: new
  labels: {a: b}
  taints: ["x=y:NoSchedule"]
- {name: held, type: a3-highgpu-8g, reservation: mine}
- {name: flex, type: a3-highgpu-8g, min: 0, max: 4, flex_start: true}
tags: {team: vision}
"""


def request_of(text: str, folder: Path) -> dict[str, Any]:
    (folder / "cluster.yaml").write_text(text)
    spec = read_cluster(folder / "cluster.yaml")
    assert spec.cloud is not None
    return make_request(spec.name, spec.cloud, shipped_table("gcp"))


@pytest.fixture(scope="session")
def gke_schema() -> dict[str, Any]:
    """Google's description as a JSON schema: fields that it does not have, and those that only it sets, are refused."""
    try:
        document = json.loads(servers.google_documents().joinpath("container.v1.json").read_text())
    except Unavailable as reason:
        pytest.skip(str(reason))
    definitions = {name: convert(body) for name, body in document["schemas"].items()}
    method = document["resources"]["projects"]["resources"]["locations"]["resources"]["clusters"]["methods"]["create"]
    assert (method["httpMethod"], method["path"]) == ("POST", "v1/{+parent}/clusters")
    return {"$ref": f"#/$defs/{method['request']['$ref']}", "$defs": definitions}


@pytest.mark.clouds
def test_googles_description_takes_it(gke_schema: dict[str, Any], tmp_path: Path) -> None:
    body = request_of(FILE, tmp_path)
    validator = jsonschema.Draft202012Validator(gke_schema)
    assert [error.message for error in validator.iter_errors(body)] == []
    body["cluster"]["nodePools"][0]["config"]["machinetype"] = "x"
    body["cluster"]["nodePools"][1]["placementPolicy"]["type"] = "CLOSE"
    assert len(list(validator.iter_errors(body))) == 2


def test_pools(tmp_path: Path) -> None:
    cluster = request_of(FILE, tmp_path)["cluster"]
    cpu, gpu, held, flex = cluster["nodePools"]
    assert flex["config"]["flexStart"] and flex["config"]["maxRunDuration"] == "604800s"
    assert flex["management"] == {"autoRepair": False} and "flexStart" not in gpu["config"]
    assert cluster["locations"] == ["us-central1-b", "us-central1-c"]
    assert (cpu["initialNodeCount"], cpu["locations"], "autoscaling" in cpu) == (2, ["us-central1-b"], False)
    assert gpu["autoscaling"] == {"enabled": True, "totalMinNodeCount": 0, "totalMaxNodeCount": 4}
    (accelerator,) = gpu["config"]["accelerators"]
    assert (accelerator["acceleratorType"], accelerator["acceleratorCount"]) == ("nvidia-tesla-a100", "8")
    assert gpu["config"]["taints"] == [{"key": "x", "value": "y", "effect": "NO_SCHEDULE"}]
    assert gpu["placementPolicy"] == {"type": "COMPACT"} and gpu["config"]["spot"] is True
    assert held["config"]["reservationAffinity"]["values"] == ["mine"]
    assert (cluster["network"], cluster["subnetwork"]) == ("research", "nodes")
    assert cluster["resourceLabels"] == {"team": "vision", "longboat-cluster": "lab"}
    assert cluster["addonsConfig"]["gcpFilestoreCsiDriverConfig"]["enabled"], "claims of many machines"


def test_every_gpu_of_the_table_has_a_name() -> None:
    machines = shipped_table("gcp").machines.values()
    assert {(each.gpu, each.gpu_memory_gib) for each in machines if each.gpus} <= set(ACCELERATORS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[us-central1-c]", "[europe-west4-a]"), "europe-west4-a is not a zone of us-central1"),
        (("flex_start: true", "flex_start: true, spot: true"), "flex_start is neither for spot"),
        (("min: 0, max: 4, flex", "count: 1, flex"), "a pool with flex_start begins with no machines"),
        (("team: vision", "Team: Vision"), "labels of Google Cloud are lower-case"),
        (("e2-standard-4", "e2-standard-5"), "did you mean e2-standard-"),
        (("region: us-central1", "region: us-central-1"), "expected a region such as us-central1"),
    ],
)
def test_mistakes(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=message):
        request_of(FILE.replace(*change), tmp_path)


def test_it_is_written(tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    request_of(FILE, tmp_path)
    file = str(tmp_path / "cluster.yaml")
    assert enter(["cluster", "render", file, "-o", str(tmp_path / "out")]) == 0
    assert "locations/us-central1/clusters" in capfd.readouterr().err
    assert json.loads((tmp_path / "out" / "request.json").read_text())["cluster"]["name"] == "lab"
    assert enter(["cluster", "check", file]) == 0
