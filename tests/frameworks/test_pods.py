"""Unmodified scripts of real frameworks train in real pods, in several shapes, and resume after a rank was killed.

The images are made by the test set-up: torch of Debian packages, TensorFlow of wheels on top of Debian's Python.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import binaries, clusters, images, namespaces, node
from testbed.clusters import Cluster
from testbed.errors import Missing
from tests.conformance.clusters import open_cluster
from tests.frameworks.conftest import SCRIPTS, Ended
from tests.frameworks.test_training import SIGKILLED, Case, check_equal_parameters, job_of, starts

# In one process, which loads the images into the node once.
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.pods,
    pytest.mark.xdist_group("framework-images"),
    pytest.mark.timeout(1200),
]

RUN_TIMEOUT_S = 600.0
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
A_SHARE = {"cpus": 0.25}
"""A pod that asks for no CPU gets next to none where others work, and asking for some leads through the gate."""

ORDINARY = "torchrun, 2 pods of one process"
CASES = {
    ORDINARY: Case(
        "torch",
        "train_torch.py",
        {"run": "torchrun train_torch.py", "nodes": 2, "env": ONE_THREAD, **A_SHARE},
        2,
        "worker-1",
        "torch",
    ),
    "torchrun, 2 pods of 2 processes": Case(
        "torch",
        "train_torch.py",
        {"run": "torchrun train_torch.py", "nodes": 2, "procs": 2, "env": ONE_THREAD, **A_SHARE},
        4,
        "worker-1",
        "torch",
    ),
    "torchrun, one pod of 4 processes": Case(
        "torch",
        "train_torch.py",
        {"run": "torchrun train_torch.py", "procs": 4, "env": ONE_THREAD, **A_SHARE},
        4,
        "worker-0",
        "torch",
    ),
    "tensorflow parameter servers": Case(
        "tensorflow",
        "train_tensorflow_ps.py",
        {
            "run": "python train_tensorflow_ps.py",
            "roles": {
                "chief": {"nodes": 1, **A_SHARE},
                "worker": {"nodes": 2, **A_SHARE},
                "ps": {"nodes": 1, **A_SHARE},
            },
            "ends": ["chief"],
        },
        1,
        "chief-0",
        "tensorflow",
    ),
}

RunCase = Callable[[Case, dict[str, Any]], Ended]


@functools.cache
def load(cluster_name: str, image: str) -> None:
    """Once for each test process: an import takes as long the second time."""
    holder = namespaces.holder_of(clusters.get(cluster_name), node.name_of(0))
    assert holder is not None
    try:
        images.load([image], binaries.find(("tools", "containerd")), holder, node.SOCKET)
    except Missing as error:
        pytest.skip(str(error))


@pytest.fixture
def run_case(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[RunCase]:
    """Runs a job with the real command line in a namespace with a claim, in the image of its framework."""
    with open_cluster(tmp_path, cluster, namespace, "kubernetes") as place:
        project = tmp_path / "project"
        project.mkdir()

        def longboat(*words: str) -> subprocess.CompletedProcess[str]:
            program = [str(Path(sys.executable).parent / "longboat"), words[0], "--namespace", namespace, *words[1:]]
            return subprocess.run(
                program,
                cwd=project,
                env=dict(place.environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
            )

        def run(case: Case, job: dict[str, Any]) -> Ended:
            load(cluster.name, case.environment)
            shutil.copy(SCRIPTS / case.script, project)
            (project / "job.yaml").write_text(yaml.safe_dump({**job, "image": images.reference(case.environment)}))
            done = longboat("run", "job.yaml", "--id", "trial")
            status = longboat("status", "trial", "-o", "json")
            assert status.returncode == 0, done.stderr + status.stderr
            return Ended(done.returncode, done.stdout, done.stderr, json.loads(status.stdout))

        yield run


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_trains_in_pods_to_equal_parameters(case: Case, run_case: RunCase) -> None:
    ended = run_case(case, job_of(case, crash=False))
    check_equal_parameters(case, ended)
    assert starts(ended) == [0] * case.trainers
    assert ended.status["attempt"] == 1


@pytest.mark.parametrize(
    "case",
    [
        # The others are for `make soak`: imports of a framework take long in pods, and this one trains to the end too.
        pytest.param(case, id=name, marks=() if name == ORDINARY else (pytest.mark.soak,))
        for name, case in CASES.items()
    ],
)
def test_resumes_in_new_pods_after_a_rank_was_killed(case: Case, run_case: RunCase) -> None:
    ended = run_case(case, job_of(case, crash=True))
    check_equal_parameters(case, ended)
    assert starts(ended)[0] == 0, ended.log
    assert min(starts(ended)[-case.trainers :]) > 0, ended.log
    first, second = ended.status["attempts"]
    assert second.get("failure") is None
    assert (first["failure"]["exit_code"], first["failure"]["cause"]) == (SIGKILLED, "signal"), first
    assert first["failure"]["rank"]["node"] == case.victim, first
