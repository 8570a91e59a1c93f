"""The recipe of a distributed CNN is true: typed on this machine, in pods with an image per role, and at full size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from longboat.core.variables import cluster_text
from longboat.engines.engine import Submission
from longboat.specs.read import LoadedJob, read_job
from testbed import images, stages
from testbed.clusters import Cluster
from tests.conformance.clusters import ClusterPlace, open_cluster
from tests.docs import test_examples as pages
from tests.engines.kubernetes.benches import Bench
from tests.frameworks.conftest import environment
from tests.frameworks.test_pods import A_SHARE, RUN_TIMEOUT_S, load

EXAMPLE = pages.ROOT / "examples" / "cnn-ps"
PAGE = pages.DISTRIBUTED_CNN


def read(*files: str, cwd: Path = EXAMPLE, url: str = "https://example.org/digits.tar.gz") -> LoadedJob:
    return read_job([EXAMPLE / file for file in files], environment={"DATA_URL": url}, cwd=cwd)


def test_the_page_shows_the_files() -> None:
    shown = [yaml.safe_load(text) for kind, text in pages.blocks(PAGE) if kind == "yaml"]
    assert shown == [yaml.safe_load((EXAMPLE / name).read_text()) for name in ("job.yaml", "full.yaml")]


def test_the_evaluator_is_beside_the_cluster_and_does_not_decide() -> None:
    job = read("job.yaml", "full.yaml").job
    assert {role.name: (role.nodes, role.resources.gpus.count) for role in job.roles} == {
        "ps": (8, 0),
        "worker": (16, 1),
        "eval": (1, 0),
    }
    assert job.ends == ("worker",) and len({role.image for role in job.roles}) == 2
    sites = [(f"10.0.0.{number}", (1, 2)) for number in range(25)]
    assert {role: len(tasks) for role, tasks in json.loads(cluster_text(job, sites)).items()} == {"ps": 8, "worker": 16}


@pytest.mark.frameworks
def test_the_recipe(home: Path, tmp_path: Path) -> None:
    bins = [environment(name) / "bin" for name in ("tensorflow", "workbench")]
    path = os.pathsep.join([str(bins[0]), str(Path(sys.executable).parent), str(bins[1]), os.environ["PATH"]])
    given = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(bins[0].parent), "NO_COLOR": "1"}
    try:
        pages.run_page(PAGE, tmp_path / "folder", given)
    finally:
        program = str(Path(sys.executable).parent / "longboat")
        subprocess.run([program, "rm", "--all", "--force", "--yes"], env=given, check=True)


def archive(folder: Path) -> Path:
    path = folder / "digits.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(EXAMPLE.parent / "digits" / "digits.npz", "digits.npz")
    return path


@pytest.mark.frameworks
@pytest.mark.pods
@pytest.mark.soak
@pytest.mark.xdist_group("framework-images")
@pytest.mark.timeout(1200)
def test_in_pods_with_an_image_for_each_kind_of_role(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    with open_cluster(tmp_path, cluster, namespace, "kubernetes") as place:
        assert isinstance(place, ClusterPlace)
        for image in ("tensorflow", "numpy"):
            load(cluster.name, image)
        own = {
            "image": images.reference("tensorflow"),
            "roles": {"ps": A_SHARE, "worker": A_SHARE, "eval": {**A_SHARE, "image": images.reference("numpy")}},
            "volumes": {"/var/tensorflow": {"claim": "storage", "size": None}},
        }
        (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
        program = [str(Path(sys.executable).parent / "longboat"), "run", "--namespace", namespace, "--id", "cnn"]
        done = subprocess.run(
            [*program, str(EXAMPLE / "job.yaml"), str(tmp_path / "own.yaml")],
            env={**place.environment, "DATA_URL": place.url_of(archive(tmp_path))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
        )
        told = done.stdout + done.stderr
        assert done.returncode == 0, told
        assert "longboat: 2 ps, 3 worker, 1 eval; step 30" in done.stderr and "accuracy=0." in done.stderr, told
        assert done.stdout.count(" of 3: ") == 3 and "step 300: accuracy 0.9" in done.stdout, told
        (imported,) = place.storage.glob("data/digits.npz")
        assert imported.stat().st_size == (EXAMPLE.parent / "digits" / "digits.npz").stat().st_size


@pytest.mark.cluster
@pytest.mark.soak
def test_at_full_size_on_simulated_nodes(
    cluster: Cluster, namespace: str, tmp_path: Path, kwok_nodes: Callable[..., list[str]]
) -> None:
    kwok_nodes("2:h100x8")
    bench = Bench(cluster, namespace, tmp_path)
    annotations = {stages.PREFIX + "run-for": "1s", stages.PREFIX + "exit-code": "0"}
    pod = {"metadata": {"annotations": annotations}, "spec": {"nodeSelector": {"type": "kwok"}}}
    settings: dict[str, Any] = {"image": "x", "storage": {"path": "/kept"}, "pod": pod, "allow_host_paths": True}
    Path(bench.environment["LONGBOAT_HOME"], "config.yaml").write_text(json.dumps({"kubernetes": settings}))
    engine = bench.open()
    (tmp_path / "own.yaml").write_text(
        yaml.safe_dump({"volumes": {"/var/tensorflow": {"path": "/v", "claim": None, "size": None}}})
    )
    loaded = read("job.yaml", "full.yaml", str(tmp_path / "own.yaml"), cwd=tmp_path)
    try:
        run = engine.submit(Submission(job=loaded.job, base=loaded.base, environment=bench.environment))
        ended = engine.wait(run.name, timeout_s=RUN_TIMEOUT_S)
        assert (ended.phase, ended.nodes, ended.gpus) == ("succeeded", 25, 16), ended
    finally:
        engine.close()
        bench.close()
