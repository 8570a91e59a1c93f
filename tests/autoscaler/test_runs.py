"""A run of Longboat's own engine: it waits at the gate, gets machines, runs and ends, and the machines go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.autoscaler.model.provider_settings import KwokSettings
from longboat.autoscaler.report.events import Events
from longboat.autoscaler.report.status import Reporter, read_report
from longboat.core.errors import Refused
from testbed import stages
from testbed.clusters import Cluster
from tests.autoscaler.stages import Stage, wait_for
from tests.engines.kubernetes.benches import Bench

pytestmark = [pytest.mark.cluster]


@pytest.fixture
def bench(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(cluster, namespace, tmp_path)
    yield made
    made.close()


def settle(bench: Bench, stage: Stage) -> None:
    """Pods go to the pool, run for a second there and end well; a storage, so that nobody asks them for logs."""
    annotations = {stages.PREFIX + "run-for": "1s", stages.PREFIX + "exit-code": "0"}
    pod = {
        "metadata": {"annotations": annotations},
        "spec": {"nodeSelector": {"longboat.dev/pool": stage.name("gpu")}},
    }
    chosen = {"image": "x", "storage": {"path": "/kept"}, "pod": pod}
    Path(bench.environment["LONGBOAT_HOME"], "config.yaml").write_text(json.dumps({"kubernetes": chosen}))


def test_from_no_machine_at_all_a_run_gets_its_machines_and_they_go_with_it(bench: Bench, stage: Stage) -> None:
    settle(bench, stage)
    said: list[str] = []
    engine = bench.open()
    try:
        submission = bench.submission("", name="train", nodes=3, gpus=8)
        with pytest.raises(Refused, match="no node offers a GPU"):
            engine.submit(submission)
        told_of = Reporter(stage.client, stage.namespace, "me", said.append)
        events = Events(stage.client, stage.namespace, said.append)
        slow = KwokSettings(ready_after_s=5.0)
        with stage.scaling(stage.config(stage.pool("gpu")), slow, listeners=(told_of, events)) as told:
            wait_for("it is known", lambda: read_report(stage.client, stage.namespace) is not None)
            run = engine.submit(submission).name
            assert any("longboat may add" in text for text in bench.notices), bench.notices
            wait_for("it has the machines", lambda: len(stage.nodes()) == 3)
            words = f"autoscaler: waits for 3 machines of pool {stage.name('gpu')}, ordered at "
            wait_for("its owner is told of them", lambda: words in engine.status(run).reason)
            assert words in " ".join(one.reason for one in engine.list())
            assert words in str(engine.explain(run))
            ended = engine.wait(run, timeout_s=90)
            assert (ended.phase, ended.exit_code) == ("succeeded", 0), ended
            wait_for("no machine is left", lambda: not stage.nodes() and not stage.machines())
        assert [result.action.runs for result in told.results("grow")] == [(f"{stage.namespace}/train",)]
        gangs = [gang for turn in told.turns for gang in turn.snapshot.gangs]
        assert any(gang.is_suspended and len(gang.pods) == 3 for gang in gangs), "it waited at the gate"
        assert not told.results("drain") and said == []
        assert all(one["status"]["phase"] == "Succeeded" for one in stage.pods())
    finally:
        engine.close()
