"""Templates of clusters on Azure: what a file becomes, held against the types of Azure's own client library."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from longboat.cli.main import enter
from longboat.clusters.cloud.azure.template import make_template, parameter_values, system_pool
from longboat.clusters.cloud.spec import CloudSpec
from longboat.clusters.cluster_file import read_cluster
from longboat.core.errors import JobError
from tests.clusters.cloud import servers
from tests.storage.realstores import Unavailable

FILE = """
name: lab
kind: azure
region: westeurope
network: {access: [192.0.2.0/24]}
pools:
- name: gpu
  type: Standard_NC24ads_A100_v4
  min: 0
  max: 4
  spot: true
  zones: ["1"]
  labels: {a: b}
  taints: ["x=y:NoSchedule"]
- {name: system, type: Standard_D4s_v5, count: 2, disk: 200Gi}
tags: {team: vision}
"""


def spec_of(text: str, folder: Path) -> CloudSpec:
    (folder / "cluster.yaml").write_text(text)
    cloud = read_cluster(folder / "cluster.yaml").cloud
    assert cloud is not None
    return cloud


def filled(value: Any, parameters: dict[str, Any]) -> Any:
    """A template with its parameters put in, as Azure does it."""
    if isinstance(value, dict):
        return {key: filled(each, parameters) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, parameters) for each in value]
    match = re.fullmatch(r"\[parameters\('(\w+)'\)\]", value) if isinstance(value, str) else None
    return parameters[match[1]] if match else value


@pytest.fixture(scope="session")
def aks_schema() -> dict[str, Any]:
    try:
        described = servers.azure_description("containerservice", "ManagedCluster")
    except Unavailable as reason:
        pytest.skip(str(reason))
    return {**described["bodies"]["ManagedCluster"], "$defs": described["$defs"]}


@pytest.mark.clouds
def test_azures_own_types_take_it(aks_schema: dict[str, Any], tmp_path: Path) -> None:
    spec = spec_of(FILE, tmp_path)
    template = make_template("lab", spec)
    (resource,) = filled(template["resources"], parameter_values(spec))
    assert resource.pop("type") == "Microsoft.ContainerService/managedClusters"
    assert re.fullmatch(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}", resource.pop("apiVersion"))
    validator = jsonschema.Draft202012Validator(aks_schema)
    del resource["name"]  # part of the URL, not of the body
    assert [error.message for error in validator.iter_errors(resource)] == []
    resource["properties"]["agentPoolProfiles"][0]["vmsize"] = "x"
    assert [error.message for error in validator.iter_errors(resource)]


def test_pools(tmp_path: Path) -> None:
    spec = spec_of(FILE, tmp_path)
    (cluster,) = filled(make_template("lab", spec)["resources"], parameter_values(spec))
    gpu, system = cluster["properties"]["agentPoolProfiles"]
    assert (gpu["mode"], system["mode"]) == ("User", "System")
    assert (gpu["enableAutoScaling"], gpu["minCount"], gpu["maxCount"]) == (True, 0, 4)
    assert gpu["scaleSetPriority"] == "Spot" and gpu["gpuProfile"] == {"driver": "Install"}
    assert gpu["nodeLabels"] == {"longboat.dev/pool": "gpu", "nvidia.com/gpu.present": "true", "a": "b"}
    assert gpu["nodeTaints"] == ["x=y:NoSchedule"] and gpu["availabilityZones"] == ["1"]
    assert (system["count"], system["osDiskSizeGB"], "enableAutoScaling" in system) == (2, 200, False)
    assert cluster["properties"]["apiServerAccessProfile"] == {"authorizedIPRanges": ["192.0.2.0/24"]}
    assert cluster["tags"] == {"team": "vision", "longboat-cluster": "lab"}
    pool = system_pool(spec)
    assert pool is not None and pool.name == "system"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("count: 2", "spot: true"), "AKS needs a pool on demand"),
        (("name: system", "name: my-system"), "lower-case letters and digits"),
        (("Standard_D4s_v5", "Standard_D4s_v6"), "did you mean Standard_D4s_v5?"),
        (("westeurope", "west europe"), "expected a region such as westeurope"),
        (("network: {", "storage: efs\nnetwork: {"), "storage: unknown field"),
    ],
)
def test_mistakes(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=re.escape(message)):
        spec_of(FILE.replace(*change), tmp_path)


def test_it_is_written(tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spec_of(FILE, tmp_path)
    file = str(tmp_path / "cluster.yaml")
    assert enter(["cluster", "render", file, "-o", str(tmp_path / "out")]) == 0
    captured = capfd.readouterr().err
    assert "az deployment group create --resource-group longboat-lab" in captured and "USD per day" in captured
    parameters = json.loads((tmp_path / "out" / "parameters.json").read_text())["parameters"]
    assert set(parameters) == set(json.loads((tmp_path / "out" / "template.json").read_text())["parameters"])
    assert enter(["cluster", "check", file]) == 0
