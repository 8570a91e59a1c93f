"""Two autoscalers as processes of their own: one works, the other takes over when the first is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from longboat.autoscaler.observe.orders import OrderStore
from longboat.kubeapi.kinds import LEASE
from tests.autoscaler.stages import Stage, wait_for
from tests.autoscaler.test_service import Command

pytestmark = [pytest.mark.cluster]


@contextmanager
def running(command: Command, name: str) -> Iterator[subprocess.Popen[str]]:
    command.environment["LONGBOAT_POD"] = name
    process = command.start("--log", "json")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def holder(stage: Stage) -> str:
    found = stage.client.find(LEASE, "longboat-autoscaler", namespace=stage.namespace) or {}
    return str((found.get("spec") or {}).get("holderIdentity") or "").rpartition("_")[0]


def test_one_works_and_the_other_takes_over_when_it_is_killed(stage: Stage, tmp_path: Path) -> None:
    command = Command(stage, tmp_path)
    with running(command, "first") as first:
        wait_for("the first leads", lambda: holder(stage) == "first")
        with running(command, "second") as second:
            stage.job("one", pods=2)
            wait_for("both run", lambda: len(stage.pods("Running")) == 2)
            assert holder(stage) == "first" and len(stage.machines()) == 2
            first.kill()
            out, _ = first.communicate()
            assert '"kind": "grow"' in out
            stage.job("two", pods=2)
            wait_for("all run", lambda: len(stage.pods("Running")) == 4)
            assert holder(stage) == "second"
            wait_for("no order is open", lambda: not OrderStore(stage.client, stage.namespace).load().orders)
            second.terminate()
            told, said = second.communicate(timeout=60)
    assert len(stage.machines()) == len(stage.nodes()) == 4, "nothing is ordered twice"
    assert said.splitlines()[0].endswith("second leads"), "it had stood by until then"
    assert told.count('"what": "action", "kind": "grow"') == 1
