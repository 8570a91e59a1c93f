"""Cluster files of the tools of former years become cluster files of today that load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longboat.cli.main import enter
from longboat.clouds.machine_types import shipped_table
from longboat.clusters.cloud.import_file import SUCCESSORS, import_cluster
from longboat.clusters.cloud.spec import CloudPool
from longboat.clusters.cluster_file import read_cluster
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import JobError

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


def pools_of(text: str, folder: Path) -> tuple[list[CloudPool], tuple[str, ...]]:
    spec, lost = load(text, folder)
    assert spec.cloud is not None
    return [*spec.cloud.pools], lost


def acs(*profiles: str, **more: str) -> str:
    pools = [json.loads(profile) for profile in profiles]
    return json.dumps({**more, "properties": {"agentPoolProfiles": pools}})


def test_the_region_of_the_file_is_its_own(tmp_path: Path) -> None:
    text = acs('{"name": "a", "count": 1, "vmSize": "Standard_NC6"}', location="West Europe")
    spec, lost = load(text, tmp_path)
    assert spec.cloud is not None and spec.cloud.region == "westeurope"
    assert not any(line.startswith("region") for line in lost)
    spec, lost = load(text.replace("West Europe", "x; rm -rf"), tmp_path)
    assert spec.cloud is not None and spec.cloud.region == "eastus"
    assert any(line.startswith("region: the file has none") for line in lost)


def test_pools_that_become_alike_get_names_of_their_own(tmp_path: Path) -> None:
    size = '"count": 0, "vmSize": "Standard_NC6"'
    names = ("gpupool", "gpu_pool", "averyverylongpool1", "averyverylongpool2", "system")
    pools, lost = pools_of(acs(*(f'{{"name": "{name}", {size}}}' for name in names)), tmp_path)
    expected = ["system2", "gpupool", "gpupool2", "averyverylon", "averyverylo2", "system"]
    assert [pool.name for pool in pools] == expected
    assert "agentPoolProfiles.1.name: another pool is called gpupool already; gpupool2 is written" in lost


def test_machines_with_windows_do_not_become_linux(tmp_path: Path) -> None:
    size = '"count": 1, "vmSize": "Standard_NC6"'
    windows = f'{{"name": "win", {size}, "osType": "Windows"}}'
    pools, lost = pools_of(acs(f'{{"name": "a", {size}, "osType": "Linux"}}', windows), tmp_path)
    assert [pool.name for pool in pools] == ["a"]
    assert "agentPoolProfiles.1: Windows machines; trainings run on Linux" in lost


WORKER = """
applications:
  kubernetes-worker-gpu:
    charm: kubernetes-worker
    %s
machines:
  '0': {constraints: instance-type=p2.xlarge}
"""


@pytest.mark.parametrize(
    ("text", "machine", "disk"),
    [
        ('constraints: "cores=8 mem=16384 root-disk=102400"', "g4dn.2xlarge", 100),
        ('constraints: "mem=16384M root-disk=0.5T arch=amd64"', "g4dn.xlarge", 512),
        ("to: ['0']", "g4dn.xlarge", 100),
        ('constraints: "cores=4 root-disk=8G"', "g4dn.xlarge", 20),
    ],
)
def test_sizes_and_places_of_juju(text: str, machine: str, disk: int, tmp_path: Path) -> None:
    (pool,), _ = pools_of(WORKER % text, tmp_path)
    assert (pool.type, pool.disk_gib) == (machine, disk)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('constraints: "cores=4096 mem=8T"', "no machine type of the table has 4096 CPUs and 8192 GiB with GPUs"),
        ('constraints: "zones=us-east-1a mem=8G"', "zones=us-east-1a is not used"),
        ('constraints: "mem=lots cores=4"', "mem=lots is no size; it is not used"),
        ("constraints: {cores: 4}", "{'cores': 4} is not used"),
        ("constraints: arch=arm64", "arch=arm64 is not used"),
    ],
)
def test_constraints_that_cannot_be_kept_are_told(text: str, message: str) -> None:
    imported = import_cluster(WORKER % text, file="x")
    assert imported is not None
    assert [line for line in imported.untranslated if message in line], imported.untranslated


def test_what_names_no_machine_is_refused_where_it_stands(tmp_path: Path) -> None:
    """Nothing is bought that nobody asked for."""
    for text in (acs('{"name": "a", "count": 1}'), WORKER % 'constraints: "cores=4096"'):
        with pytest.raises(JobError, match="expected a machine type"):
            load(text, tmp_path)


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
