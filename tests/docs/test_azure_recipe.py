"""The recipe of training and serving on Azure: its cluster against a simulated Azure, its runs on real pods, its
autoscaler on a real API server with simulated nodes, whose machines are those of the simulated Azure.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from longboat.autoscaler.providers.provider import MachineRequest
from longboat.cli.main import enter
from testbed import binaries, clusters, images, namespaces, node
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.autoscaler.conftest import stage
from tests.autoscaler.providers.aws.test_end_to_end import Boots
from tests.autoscaler.providers.conftest import azure as machines
from tests.autoscaler.stages import Stage, wait_for
from tests.clouds.azure.simulated_aks import SimulatedAks
from tests.clouds.azure.simulated_azure import GROUP, SUBSCRIPTION, SimulatedAzure
from tests.clusters.cloud.azure.conftest import azure as clusters_of_azure
from tests.clusters.cloud.conftest import installed
from tests.docs.test_examples import FILE_NAME, ROOT, blocks, cluster_environment, run_block

__all__ = ["clusters_of_azure", "installed", "machines", "stage"]
PAGE = ROOT / "docs" / "recipes" / "azure-train-serve.md"
CLUSTER, SERVING, JOBS, GROWN, ENDED, SHRUNK = [text for kind, text in blocks(PAGE) if kind == "console"]
POOL = "agentpool1"


def write_files(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for _, text in blocks(PAGE):
        if name := FILE_NAME.match(text):
            (folder / name[1]).write_text(text)


@pytest.mark.clouds
def test_the_cluster_on_a_simulated_azure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    azure: SimulatedAks = request.getfixturevalue("clusters_of_azure")
    pools = request.getfixturevalue("installed")
    folder = tmp_path / "folder"
    write_files(folder)
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    run_block(CLUSTER, folder, {**os.environ, "PATH": path})
    monkeypatch.chdir(folder)
    text = Path("cluster.yaml").read_text()
    Path("cluster.yaml").write_text(text.replace("[gpu, controller, ", "["))  # no API server shows GPUs there
    for words in (["up"], ["status"], ["down", "--yes"]):
        assert enter(["cluster", *words]) == 0, words
    assert azure.group is None and azure.resources == {} and "resource_group: longboat-lab" in pools[0].text


@pytest.fixture
def environment(cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> dict[str, str]:
    return cluster_environment(cluster, namespace, kubectl, tmp_path)


def give_numpy(cluster: Cluster) -> None:
    """The image of the page: one of the tests under that name."""
    holder = namespaces.holder_of(clusters.get(cluster.name), node.name_of(0))
    assert holder is not None
    programs = binaries.find(("tools", "containerd"))
    images.load(["numpy"], programs, holder, node.SOCKET)
    command = [str(programs["ctr"]), "-a", node.SOCKET, "-n", "k8s.io", "images", "tag", "--force"]
    namespaces.run(holder, [*command, images.reference("numpy"), "registry.example.org/numpy:2"])


@pytest.mark.pods
@pytest.mark.slow
@pytest.mark.soak
def test_it_trains_and_serves_on_real_pods(
    cluster: Cluster, namespace: str, environment: dict[str, str], home: Path, tmp_path: Path
) -> None:
    give_numpy(cluster)
    folder = tmp_path / "folder"
    write_files(folder)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    make = ["longboat", "volume", "create", "models", "--host-path", f"/var/lib/longboat-{namespace}", "--on", "lab"]
    subprocess.run(make, env=environment, check=True)
    try:
        run_block(SERVING, folder, environment)
    finally:
        subprocess.run(["longboat", "rm", "--all", "--force", "--yes", "--on", "lab"], env=environment, check=True)
        subprocess.run(["longboat", "volume", "rm", "models", "--yes", "--on", "lab"], env=environment, check=True)


@contextlib.contextmanager
def autoscaler(stage: Stage, environment: dict[str, str], folder: Path) -> Iterator[Path]:
    """`longboat autoscaler run` as a process of its own; gives its log."""
    provider = {"cluster": "lab", "resource_group": GROUP, "subscription": SUBSCRIPTION}
    pools = {"providers": {"azure": provider}, "settings": {"idle": "2s"}}
    (folder / "pools.yaml").write_text(yaml.safe_dump(pools))
    command = ["longboat", "autoscaler", "run", "--pools", "pools.yaml", "--interval", "1s", "--home", stage.namespace]
    log = folder.parent / "autoscaler.log"
    with open(log, "wb") as file:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield log
    finally:
        process.terminate()
        assert process.wait(60) in (0, 130, 143, -15), log.read_text()[-2000:]


@pytest.mark.cluster
@pytest.mark.clouds
@pytest.mark.slow
@pytest.mark.soak
def test_the_pool_goes_from_one_node_to_two_and_back(
    environment: dict[str, str], home: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    azure: SimulatedAzure = request.getfixturevalue("machines")
    stage: Stage = request.getfixturevalue("stage")
    stage.prefix = POOL
    azure.add_pool(POOL, "Standard_NC4as_T4_v3", zone="1", most=2, tags={"min": "1"})
    environment |= {name: os.environ[name] for name in os.environ if name.startswith(("AZURE_", "IDENTITY_"))}
    folder = tmp_path / "folder"
    write_files(folder)
    provider = azure.provider()
    (pool,) = provider.discover().pools
    provider.grow(pool, MachineRequest(token="first", count=1))
    boots = Boots(stage, azure, pool)  # type: ignore[arg-type]
    with boots.joining(), autoscaler(stage, environment, folder) as log:
        wait_for("the first node", lambda: len(stage.nodes()) == 1)
        run_block(JOBS, folder, environment)
        wait_for("both run", lambda: len(stage.pods("Running")) == 2)
        run_block(GROWN, folder, environment)
        assert len(boots.machines()) == 2
        run_block(ENDED, folder, environment)
        wait_for("the second is gone", lambda: len(stage.nodes()) == 1 and len(boots.machines()) == 1)
        run_block(SHRUNK, folder, environment)
        text = log.read_text()
    assert azure.leftovers() == [], "a network interface or a disk is left"
    assert len(azure.disks) == 1 and len(azure.interfaces) == 1
    states = re.findall(rf"^\S+ node node=({POOL}-\S+) state=(\S+)", text, re.MULTILINE)
    assert {state for _, state in states} >= {"busy", "idle-unschedulable"}, text
    kinds = re.findall(r"^\S+ action kind=(\S+)", text, re.MULTILINE)
    assert kinds.index("grow") < kinds.index("cordon") < kinds.index("delete"), kinds
    every_loop_names_every_node(text)


def every_loop_names_every_node(text: str) -> None:
    """A loop ends with its pools: before each such line there is one for every node that the pool has."""
    named: set[str] = set()
    loops = 0
    for line in text.splitlines():
        if match := re.match(rf"\S+ node node=({POOL}-\S+) state=", line):
            named.add(match[1])
        elif match := re.match(rf"\S+ pool pool={POOL} size=(\d+) coming=(\d+)", line):
            assert len(named) >= int(match[1]) - int(match[2]), line
            named, loops = set(), loops + 1
    assert loops > 3, text
