"""A GPU that fails under a run: NVIDIA's own device plugin gives it up, and `status` and `explain` name it."""

from __future__ import annotations

import re

import pytest

from longboat.core.runs import LogQuery, NodeTrouble
from testbed import api, driver, faults, node
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import Bench

pytestmark = pytest.mark.pods("nvidia")
CODE = "import subprocess, time; subprocess.run(['nvidia-smi', '-L'], check=True); time.sleep(600)"


def test_a_failed_gpu_of_a_run_is_named(cluster: Cluster, bench: Bench) -> None:
    run = bench.engine.submit(bench.submission(CODE, gpus=2)).name

    def own_gpus() -> list[str]:
        lines = [line.data.decode() for line in bench.engine.logs(run, LogQuery())]
        return re.findall(r"UUID: (GPU-[0-9a-f-]+)\)", "".join(lines))

    def troubles() -> tuple[NodeTrouble, ...]:
        return bench.engine.status(run).node_troubles

    api.wait_for("it has two GPUs", lambda: len(own_gpus()) == 2, 240.0, every_s=0.5)
    own = own_gpus()
    numbers = [number for number in range(node.GPUS) if driver.uuid(1, number) in own]
    other = next(number for number in range(node.GPUS) if number not in numbers)
    with faults.gpu_error(cluster, other):
        api.wait_for("a GPU is lost", lambda: bool(troubles()), 120.0, every_s=0.5)
        (trouble,) = troubles()
        assert (trouble.node, trouble.ranks) == ("node-0", (0,))
        assert (trouble.what, trouble.follows) == (
            "reports 1 of 8 nvidia.com/gpu unhealthy",
            "not those of the run: it goes on",
        )
        driver.add_error(node.driver_root(cluster, 0), numbers[0], 79)
        wanted = f"reports 2 of 8 nvidia.com/gpu unhealthy, of the run: {driver.uuid(1, numbers[0])}"
        api.wait_for("its own is named", lambda: [one.what for one in troubles()] == [wanted], 120.0, every_s=0.5)
        assert any(wanted in fact for fact in bench.engine.explain(run).facts)
    bench.engine.stop(run, grace_s=0)
