"""An autoscaler that is killed, after any of its writes or at any moment: demand is served and no machine is left."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from longboat.autoscaler.observe.orders import OrderStore
from longboat.kubeapi.kinds import JOB
from tests.autoscaler.nursery import KILLED
from tests.autoscaler.stages import Stage, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

ROOT = Path(__file__).resolve().parents[2]
KILLS = 100


class Nursery:
    def __init__(self, stage: Stage, pools: Path) -> None:
        path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])
        environment = {**os.environ, **stage.environment, "PYTHONPATH": path}
        command = [sys.executable, "-m", "tests.autoscaler.nursery", stage.namespace, str(pools)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, op: str, **more: Any) -> int | None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"op": op, **more}) + "\n")
        self.process.stdin.flush()
        code: int | None = json.loads(self.process.stdout.readline())["code"]
        return code

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture
def killable_autoscaler(stage: Stage, tmp_path: Path) -> Iterator[Nursery]:
    machine = {"cpus": 32, "memory": "256Gi", "gpus": 8}
    pools = [{"name": stage.name("gpu"), "max": 6, "boot": "20s", "zones": ["a", "b"], "machine": machine}]
    path = tmp_path / "pools.yaml"
    path.write_text(yaml.safe_dump({"pools": pools, "settings": {"idle": "0s"}}))
    found = Nursery(stage, path)
    yield found
    found.close()


def is_over(stage: Stage, *jobs: str) -> bool:
    """All have ended, and nothing is left of what was made for them."""
    return (
        all(stage.is_done(name) for name in jobs)
        and not stage.machines()
        and not stage.nodes()
        and not OrderStore(stage.client, stage.namespace).load().orders
    )


def check_untouched(stage: Stage, *jobs: str) -> None:
    """No pod of a training was taken away: all ended well, at the first attempt."""
    for name in jobs:
        status = stage.client.get(JOB, name, namespace=stage.namespace)["status"]
        assert status.get("failed", 0) == 0, name
    pods = stage.pods()
    assert all(one["status"]["phase"] == "Succeeded" for one in pods)
    assert len({one["metadata"]["name"] for one in pods}) == len(pods)


def test_after_every_single_write_a_new_one_finishes(stage: Stage, killable_autoscaler: Nursery) -> None:
    """Two machines are made in two zones and deleted again; the autoscaler dies after its n-th write, n = 1, 2, ..."""
    jobs: list[str] = []
    labels = {"longboat.dev/attempt": "0"}
    for after in range(1, 100):
        name = f"train-{after}"
        stage.job(name, pods=2, run_for="0.2s", labels={**labels, "longboat.dev/run": name})
        jobs.append(name)
        killable_autoscaler.ask("start", after=after)
        wait_for(
            f"death after write {after}",
            lambda name=name: killable_autoscaler.ask("poll") is not None or is_over(stage, name),  # type: ignore[misc]
        )
        code = killable_autoscaler.ask("kill")
        if code != KILLED:
            assert is_over(stage, name)
            break
        killable_autoscaler.ask("start")
        wait_for(f"the next one finishes what ended after write {after}", lambda: is_over(stage, jobs[-1]))
        killable_autoscaler.ask("kill")
    assert len(jobs) > 12, "so many writes are made in any case"
    check_untouched(stage, *jobs)
    assert all(len(pods) == 2 for pods in pods_by_job(stage).values())


def pods_by_job(stage: Stage) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pod in stage.pods():
        found.setdefault(pod["metadata"]["labels"]["job-name"], []).append(pod["metadata"]["name"])
    return found


def test_killed_a_hundred_times_at_random(stage: Stage, killable_autoscaler: Nursery) -> None:
    chance = random.Random(20261115)
    jobs: dict[str, int] = {}
    seen: dict[str, set[str]] = {}  # pods that were ever there: those of a node that is gone go after a while
    most = 0
    for number in range(KILLS):
        if number % 8 == 0:
            name, pods = f"train-{number}", chance.choice([1, 1, 2, 3])
            labels = {"longboat.dev/run": name, "longboat.dev/attempt": "0"} if pods > 1 else {}
            stage.job(name, pods=pods, run_for=f"{chance.uniform(0.5, 4):.1f}s", labels=labels)
            jobs[name] = pods
        killable_autoscaler.ask("start")
        time.sleep(chance.uniform(0.05, 0.8))
        assert killable_autoscaler.ask("kill") == -9
        most = max(most, len(stage.machines()))
        note_pods(stage, seen)
    killable_autoscaler.ask("start")
    wait_for("all is over", lambda: is_over(stage, *jobs))
    killable_autoscaler.ask("kill")
    assert 0 < most <= 6
    check_untouched(stage, *jobs)
    note_pods(stage, seen)
    assert {name: len(pods) for name, pods in seen.items()} == jobs


def note_pods(stage: Stage, seen: dict[str, set[str]]) -> None:
    for job, pods in pods_by_job(stage).items():
        seen.setdefault(job, set()).update(pods)
