"""Cluster files of the tools of former years become cluster files of today that load."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.cli.main import enter
from longboat.clouds.machine_types import shipped_table
from longboat.clusters.cloud.import_file import SUCCESSORS, import_cluster
from longboat.clusters.cluster_file import read_cluster
from longboat.clusters.spec import ClusterSpec

ACS_ENGINE = """
{"apiVersion": "vlabs", "properties": {
  "orchestratorProfile": {"orchestratorType": "Kubernetes", "orchestratorRelease": "1.8"},
  "masterProfile": {"count": 1, "dnsPrefix": "My_GPU_cluster", "vmSize": "Standard_D2_v2"},
  "agentPoolProfiles": [
    {"name": "agentpool1", "count": 1, "vmSize": "Standard_NC6", "availabilityProfile": "AvailabilitySet"},
    {"name": "cpu-pool-with-a-long-name", "count": 2, "vmSize": "Standard_D2_v3", "OSDiskSizeGB": 200,
     "customNodeLabels": {"role": "cpu"}}],
  "linuxProfile": {"adminUsername": "me"},
  "servicePrincipalProfile": {"clientId": "abc", "secret": "canary-of-the-principal"}}}
"""

JUJU = """
series: xenial
applications:
  easyrsa: {charm: "cs:~containers/easyrsa-12", num_units: 1}
  etcd: {charm: "cs:~containers/etcd-34", num_units: 3}
  flannel: {charm: "cs:~containers/flannel-20"}
  kubernetes-master: {charm: "cs:~containers/kubernetes-master-35", num_units: 1, constraints: "cores=2 mem=4G"}
  kubernetes-worker-cpu:
    charm: "cs:~containers/kubernetes-worker-40"
    num_units: 1
    constraints: "cores=4 mem=8G root-disk=64G"
    options: {labels: "cpuWorker=true"}
  kubernetes-worker-gpu:
    charm: "cs:~containers/kubernetes-worker-40"
    num_units: 3
    constraints: instance-type=p2.xlarge
relations:
- [etcd, easyrsa]
"""


def load(text: str, folder: Path) -> tuple[ClusterSpec, tuple[str, ...]]:
    imported = import_cluster(text, file="x.json")
    assert imported is not None
    (folder / "cluster.yaml").write_text(imported.text)
    return read_cluster(folder / "cluster.yaml"), imported.untranslated


def test_the_acs_engine_file(tmp_path: Path) -> None:
    spec, lost = load(ACS_ENGINE, tmp_path)
    assert (spec.name, spec.kind) == ("my-gpu-cluster", "azure")
    assert spec.cloud is not None
    gpu, cpu = spec.cloud.pools
    assert (gpu.name, gpu.type, gpu.count, gpu.gpus) == ("agentpool1", "Standard_NC4as_T4_v3", 1, 1)
    assert (cpu.name, cpu.count, cpu.disk_gib, cpu.labels) == ("cpupoolwitha", 2, 200, (("role", "cpu"),))
    assert (
        "agentPoolProfiles.0.vmSize: Standard_NC6 is of former years, Standard_NC4as_T4_v3 is written instead" in lost
    )
    assert "masterProfile: AKS has the control plane" in lost
    assert "canary" not in (tmp_path / "cluster.yaml").read_text()


def test_the_juju_bundle(tmp_path: Path) -> None:
    spec, lost = load(JUJU, tmp_path)
    assert spec.kind == "aws" and spec.cloud is not None
    cpu, gpu = spec.cloud.pools
    assert (cpu.name, cpu.type, cpu.count, cpu.disk_gib) == ("cpu", "t3.xlarge", 1, 64)
    assert cpu.labels == (("cpuWorker", "true"),)
    assert (gpu.name, gpu.type, gpu.count, gpu.gpus) == ("gpu", "g4dn.xlarge", 3, 1)
    assert {"etcd: EKS has the control plane", "flannel: EKS has a network of its own"} <= set(lost)


def test_what_is_neither() -> None:
    for text in ("run: python train.py", "[1]", "x: [", "properties: {}", "services: {web: {image: x}}", ""):
        assert import_cluster(text, file="x") is None


def test_pools_that_are_no_list_are_none_of_these() -> None:
    for pools in ("5", "{}", "null", "text"):
        assert import_cluster(f'{{"properties": {{"agentPoolProfiles": {pools}}}}}', file="x") is None


def test_a_number_of_machines_that_is_none_is_told(tmp_path: Path) -> None:
    for count, shown in (('"two"', "two"), ("-3", "-3"), ("2.5", "2.5"), ("[1]", "[1]")):
        text = (
            f'{{"properties": {{"agentPoolProfiles": [{{"name": "a", "count": {count}, "vmSize": "Standard_NC6"}}]}}}}'
        )
        imported = import_cluster(text, file="x")
        assert imported is not None
        assert f"agentPoolProfiles.0.count: {shown} is no number of machines; 1 is written" in imported.untranslated


def test_pools_that_are_empty_get_one_for_aks(tmp_path: Path) -> None:
    spec, _ = load(
        '{"properties": {"agentPoolProfiles": [{"name": "a", "count": 0, "vmSize": "Standard_NC6"}]}}', tmp_path
    )
    assert spec.cloud is not None and [pool.name for pool in spec.cloud.pools] == ["system", "a"]


def test_successors_are_in_the_tables() -> None:
    known = {*shipped_table("aws").machines, *shipped_table("azure").machines}
    assert set(SUCCESSORS.values()) <= known and not set(SUCCESSORS) & known


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bundle.yaml").write_text(JUJU)
    out = tmp_path / "cluster.yaml"
    assert enter(["import", str(tmp_path / "bundle.yaml"), "-o", str(out)]) == 0
    text = capfd.readouterr().err
    assert "longboat: read as a Juju bundle" in text and "not translated: easyrsa: EKS has the control plane" in text
    assert read_cluster(out).kind == "aws"
