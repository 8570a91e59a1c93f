"""Many detached gangs on simulated nodes: one controller serves them all, and the API server is not flooded."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longboat.engines.kubernetes.record_store import read_record
from longboat.kubeapi.kinds import CONFIG_MAP
from testbed import api, stages
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.controlling import controlled

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

GANGS = 60
WITHIN_S = 1200.0


def test_sixty_detached_gangs(
    cluster: Cluster, namespace: str, tmp_path: Path, kwok_nodes: Callable[..., list[str]]
) -> None:
    """They ask for 1 to 8 GPUs in 1 to 4 pods; there are 40. Every fifth fails in vain."""
    kwok_nodes("5:h100x8")
    bench = Bench(cluster, namespace, tmp_path)
    config = Path(bench.environment["LONGBOAT_HOME"], "config.yaml")

    def settings(code: int) -> None:
        annotations = {stages.PREFIX + "run-for": "1s", stages.PREFIX + "exit-code": str(code)}
        # With a storage nobody asks simulated nodes for the last lines of their pods.
        chosen = {"image": "x", "storage": {"path": "/kept"}, "pod": {"metadata": {"annotations": annotations}}}
        config.write_text(json.dumps({"kubernetes": chosen}))

    chance = random.Random(3)
    wanted = [
        bench.submission("", name=f"gang-{number}", nodes=chance.randint(1, 4), gpus=chance.randint(1, 2))
        for number in range(GANGS)
    ]
    settings(0)
    good = bench.open()
    good.settings  # noqa: B018  # read once, before they are changed
    settings(1)
    bad = bench.open()
    said: list[str] = []
    with controlled(bench.environment, namespace, said):
        with ThreadPoolExecutor(4) as pool:
            engines = [bad if number % 5 == 0 else good for number in range(GANGS)]
            list(pool.map(lambda pair: pair[0].submit(pair[1]), zip(engines, wanted)))

        def phases() -> list[str]:
            records = good.client.list(CONFIG_MAP, labels="longboat.dev/kind=run").items
            return [read_record(body)[1].phase for body in records]

        def are_over() -> bool:
            return set(phases()) <= {"succeeded", "failed"}

        api.wait_for("all have ended", are_over, WITHIN_S, every_s=2.0)
    found = phases()
    assert (found.count("succeeded"), found.count("failed")) == (GANGS * 4 // 5, GANGS // 5)
    assert said == []
    for engine in (good, bad, bench.engine):
        engine.close()
