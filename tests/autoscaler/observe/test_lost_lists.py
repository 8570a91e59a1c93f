"""A provider whose list breaks while machines boot: nothing is bought twice, and nothing is forgotten too soon."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.autoscaler.observe import instances
from longboat.autoscaler.observe import orders as memories
from longboat.autoscaler.observe.orders import OrderStore
from longboat.autoscaler.providers.exec import ExecProvider
from longboat.kubeapi import watch
from longboat.kubeapi.client import Client
from testbed.proxy import ApiProxy
from tests.autoscaler.providers.test_provider import CLOUD, settings
from tests.autoscaler.stages import QUICK, Stage, job_of, wait_for

pytestmark = [pytest.mark.cluster]

OVERRIDE = """
import pathlib, runpy, sys
said = pathlib.Path({folder!r}, "said")
if sys.argv[1] == "list" and said.exists():
    print(said.read_text())
    sys.exit()
runpy.run_path({cloud!r}, run_name="__main__")
"""


class Rack:
    """The cloud in a folder, whose list can be made to say something else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "rack.py"
        program.write_text(OVERRIDE.format(folder=str(folder), cloud=str(CLOUD)))
        command = (sys.executable, str(program))
        self.provider = ExecProvider("metal", settings(folder, list=(*command, "list")))

    def says(self, text: str | None) -> None:
        if text is None:
            (self.folder / "said").unlink()
        else:
            (self.folder / "said.new").write_text(text)
            (self.folder / "said.new").rename(self.folder / "said")

    @property
    def machines(self) -> list[dict[str, Any]]:
        path = self.folder / "machines"
        return json.loads(path.read_text()) if path.exists() else []


def orders(stage: Stage) -> tuple[memories.PlacedOrder, ...]:
    return OrderStore(stage.client, stage.namespace).load().orders


def test_eight_machines_are_not_bought_again(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (memories, instances):
        monkeypatch.setattr(module, "LAG_S", 0.0)  # the list has shown them before
    rack = Rack(tmp_path)
    pool = stage.pool("gpu", provider="metal", boot_s=600.0, max=20)
    config = stage.config(pool, pace=msgspec.structs.replace(QUICK, distrust_s=6.0))
    labels = {"longboat.dev/run": "train", "longboat.dev/attempt": "0"}
    stage.client.create(job_of("train", stage.namespace, {"longboat.dev/pool": pool.name}, pods=8, labels=labels))
    with stage.scaling(config, provider={"metal": rack.provider}) as told:
        wait_for("they are ordered", lambda: sum(len(one.machines) for one in orders(stage)) == 8)
        rack.says("{}")
        before = len(told.turns)
        wait_for("it is an error", lambda: any("missing required field" in text for text in blind(told.turns[-1])))
        wait_for("loops go on", lambda: len(told.turns) > before + 3)
        assert len(rack.machines) == 8 and sum(len(one.machines) for one in orders(stage)) == 8
        rack.says('{"machines": []}')
        wait_for("it is not believed", lambda: any("lacks 8 of 8" in text for text in blind(told.turns[-1])))
        assert len(rack.machines) == 8 and sum(len(one.machines) for one in orders(stage)) == 8
        rack.says(None)
        wait_for("they are back", lambda: not blind(told.turns[-1]))
        assert len(rack.machines) == 8
        rack.says('{"machines": []}')
        wait_for("it is believed in the end", lambda: len(rack.machines) == 16)


def blind(turn: Any) -> list[str]:
    return [one.message for one in turn.snapshot.failures if one.is_blind]


def test_an_order_outlives_a_pool_that_is_taken_out_of_the_file(stage: Stage, tmp_path: Path) -> None:
    rack = Rack(tmp_path)
    pool = stage.pool("gpu", provider="metal", boot_s=600.0)
    other = stage.pool("other")
    stage.job("train")
    providers = {"metal": rack.provider}
    with stage.scaling(stage.config(pool), provider=providers):
        wait_for("it is ordered", lambda: any(one.machines for one in orders(stage)))
    with stage.scaling(stage.config(other)) as told:
        wait_for("loops go on", lambda: len(told.turns) > 3)
        assert any(pool.name in text and "1 machine" in text for text in told.turns[-1].warnings)
    assert len(orders(stage)) == 1
    with stage.scaling(stage.config(pool), provider=providers) as told:
        wait_for("loops go on", lambda: len(told.turns) > 3)
        assert not told.results("grow")
    assert len(rack.machines) == 1


def test_nothing_is_decided_on_a_picture_that_is_not_fresh(
    stage: Stage, api_proxy: ApiProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"KUBECONFIG": str(api_proxy.kubeconfig)}
    with Client.open(namespace=stage.namespace, environment=environment) as client:
        with stage.scaling(stage.config(stage.pool("gpu")), client=client) as told:
            wait_for("it works", lambda: len(told.turns) > 2)
            monkeypatch.setattr(watch, "BLIND_S", 1.0)
            api_proxy.freeze()  # connections stay, and nothing comes any more
            wait_for("it is noticed", lambda: any("nothing was heard of" in text for text in told.failures))
            before = len(told.turns)
            stage.job("train")
            failures = len(told.failures)
            wait_for("it tries again and again", lambda: len(told.failures) > failures + 2)
            assert len(told.turns) == before and not told.results("grow") and not stage.machines()
            monkeypatch.undo()
            api_proxy.restore()
            wait_for("it runs", lambda: len(stage.pods("Running")) == 1)
