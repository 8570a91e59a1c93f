"""One role fails while another still ends: its last lines are there afterwards, on clusters with JobSet too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.records import Storage
from longboat.engines.kubernetes.settings import ClusterSettings
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS
from longboat.engines.kubernetes.submit.planned_pods import workload_kind, workload_notices
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.broken import job_of

ROLES = {"slow": {"nodes": 2, "run": ["python", "slow.py"]}, "chief": {"nodes": 1, "run": ["python", "chief.py"]}}
SLOW = """
import signal, sys, time
def leave(*_):
    time.sleep(4)
    print("last words", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("begun", flush=True)
time.sleep(600)
"""


def served(*, denied: tuple[Any, ...] = (), **groups: tuple[str, ...]) -> ClusterFacts:
    names = {"jobset.x-k8s.io": ("v1alpha2",), **groups}
    return ClusterFacts(namespace="team", version="v1.36.4", groups=names, denied=denied)


def test_which_workload_keeps_the_logs(tmp_path: Path) -> None:
    two, one = job_of(tmp_path, roles={"a": {}, "b": {}}), job_of(tmp_path, nodes=2)
    jobs = tuple(permission for permission in PERMISSIONS if permission.need == "job")
    claim = Storage(claim="keep")
    assert workload_kind(two, served(), queue=None, storage=None) == "job"
    assert workload_kind(one, served(), queue=None, storage=None) == "jobset"
    assert workload_kind(two, served(), queue=None, storage=claim) == "jobset"
    assert workload_kind(two, served(), queue="research", storage=None) == "jobset"
    assert workload_kind(two, served(denied=jobs), queue=None, storage=None) == "jobset"
    nothing = ClusterFacts(namespace="team", version="v1.36.4")
    assert workload_kind(one, nothing, queue=None, storage=claim) == "job"

    kueue = served(**{"kueue.x-k8s.io": ("v1beta2",)})
    (notice,) = workload_notices(two, ClusterSettings(queue="q"), kueue)
    assert "JobSet removes the pods of the other roles" in notice
    assert workload_notices(two, ClusterSettings(queue="q", storage=claim), kueue) == []
    assert workload_notices(one, ClusterSettings(queue="q"), kueue) == []
    assert workload_notices(two, ClusterSettings(), kueue) == []


@pytest.fixture
def bench(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Bench]:
    found = Bench(cluster, namespace, tmp_path)
    yield found
    found.close()


@pytest.mark.pods("controllers")
def test_the_last_lines_of_a_slower_role_are_kept_on_a_cluster_with_jobset(bench: Bench) -> None:
    chief = "import sys, time\nprint('about to fail', flush=True)\ntime.sleep(2)\nsys.exit(7)\n"
    submission = bench.submission("", roles=ROLES, grace="20s", run=None)
    folder = bench.root / "code"
    (folder / "chief.py").write_text(chief)
    (folder / "slow.py").write_text(SLOW)
    run = bench.engine.submit(submission)
    ended = bench.engine.wait(run.name, timeout_s=180)
    assert ended.phase == "failed" and ended.exit_code == 7
    lines = [(line.node, line.data) for line in bench.engine.logs(run.name, LogQuery())]
    for node in ("slow-0", "slow-1"):
        assert [data for name, data in lines if name == node] == [b"begun\n", b"last words\n"], bench.notices
    assert (b"about to fail\n") in [data for name, data in lines if name == "chief-0"]
