"""`longboat autoscaler run|status|plan|explain` on a real cluster, as processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from longboat.kubeapi.kinds import CONFIG_MAP, LEASE
from tests.autoscaler.report.test_events import Hook, hook  # noqa: F401  (a fixture)
from tests.autoscaler.stages import Stage, wait_for

pytestmark = [pytest.mark.cluster]


class Command:
    def __init__(self, stage: Stage, folder: Path) -> None:
        machine = {"cpus": 32, "memory": "256Gi", "gpus": 8}
        pools = [{"name": stage.name("gpu"), "max": 4, "boot": "20s", "machine": machine}]
        (folder / "pools.yaml").write_text(yaml.safe_dump({"pools": pools, "settings": {"idle": "1h"}}))
        self.stage, self.folder = stage, folder
        self.environment = {**os.environ, **stage.environment, "LONGBOAT_HOME": str(folder / "home")}

    def words(self, verb: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "longboat", "autoscaler", verb, "--home", self.stage.namespace, *more]

    def __call__(self, verb: str, *more: str, code: int = 0) -> str:
        done = subprocess.run(
            self.words(verb, *more), env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def start(self, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words("run", "--pools", "pools.yaml", "--interval", "0.5s", *more),
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def command(stage: Stage, tmp_path: Path) -> Command:
    return Command(stage, tmp_path)


def test_run_scales_tells_and_ends_when_told(command: Command, hook: Hook) -> None:  # noqa: F811
    stage = command.stage
    stage.job("train")
    command.environment["LONGBOAT_AUTOSCALER_WEBHOOK"] = hook.url
    process = command.start("--metrics-port", "0", "--log", "json")
    assert process.stderr is not None
    first = process.stderr.readline()
    port = re.search(r"metrics at port (\d+)", first)
    assert port is not None, first
    wait_for("it runs", lambda: len(stage.pods("Running")) == 1)
    wait_for("the webhook was told", lambda: hook.bodies)
    with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=10) as answer:
        assert b"longboat_autoscaler_leader 1" in answer.read()
    wait_for("the status tells", lambda: f"pool {stage.name('gpu')} grows by 1" in command("status"))

    def size() -> int:
        shown = json.loads(command("status", "-o", "json"))
        assert shown["leader"]
        return int(shown["pools"][0]["note"]["size"])

    wait_for("the report tells the new size", lambda: size() == 1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "leads" in err
    records = [json.loads(line) for line in out.splitlines()]
    assert any(one["what"] == "node" and one["state"] == "busy" for one in records)
    assert stage.client.find(LEASE, "longboat-autoscaler", namespace=stage.namespace) is None
    assert "secret" not in out + err
    assert "nobody: no autoscaler runs" in command("status")


def test_a_dry_run_prints_the_plan_and_changes_nothing(command: Command) -> None:
    command.stage.job("train")
    out = command("run", "--pools", "pools.yaml", "--dry-run", "--once")
    assert f"planned kind=grow pool={command.stage.name('gpu')} count=1" in out
    assert not command.stage.nodes()
    assert command.stage.client.find(CONFIG_MAP, "longboat-autoscaler", namespace=command.stage.namespace) is None


def test_once_is_one_loop(command: Command) -> None:
    command.stage.job("train")
    command("run", "--pools", "pools.yaml", "--once")
    assert len(command.stage.machines()) == 1


def test_plan_and_explain_of_a_live_cluster_are_saved_and_replayed(command: Command) -> None:
    stage = command.stage
    stage.job("train")
    wait_for("its pod is there", lambda: stage.pods())
    live = json.loads(command("plan", "--pools", "pools.yaml", "-o", "json", "--save", "seen.json"))
    (action,) = live["actions"]
    assert (action["kind"], action["pool"], action["count"]) == ("grow", stage.name("gpu"), 1)
    assert json.loads(command("plan", "--snapshot", "seen.json", "-o", "json")) == live
    told = command("explain", stage.name("gpu"), "--pools", "pools.yaml")
    assert "grows by 1" in told
    pod = stage.pods()[0]["metadata"]["name"]
    assert "new machines are ordered" in command("explain", pod, "--pools", "pools.yaml")
    command("run", "--pools", "pools.yaml", "--once")
    wait_for("it runs", lambda: len(stage.pods("Running")) == 1)
    node = stage.nodes()[0]["metadata"]["name"]
    assert f"node {node} is busy" in command("explain", node, "--pools", "pools.yaml")


def test_mistakes(command: Command) -> None:
    assert "no autoscaler has ever worked here" in command("status", code=202)
    assert "--on excludes" in command("plan", "--on", "x", "--snapshot", "y", code=201)
    assert "not a time" in command("run", "--pools", "pools.yaml", "--interval", "soon", code=201)
    (command.folder / "other.yaml").write_text(
        "pools: [{name: a, provider: aws, max: 1, machine: {cpus: 1, memory: 1Gi}}]\n"
    )
    assert "no provider aws" in command("run", "--pools", "other.yaml", "--once", code=201)
