"""The folders of an attempt: addresses, plans, links that stay inside."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from longboat.core.errors import EngineError
from longboat.core.layouts import ports_needed
from longboat.engines.local.queue.machine import Gpu
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.attempt_folders import (
    AttemptPreparation,
    Environment,
    example_ports,
    layout_of,
)
from longboat.engines.shared.home import Home
from tests.engines.local.values import job, role


def record(tmp_path: Path, nodes: int = 2) -> LocalRecord:
    made = job(roles=(role(nodes=nodes, gpus=1, memory=1 << 30),))
    return LocalRecord(
        name="run", uid="ab12", job=made, base="/", created=0, user="u", checkpoint_dir=str(tmp_path / "c")
    )


def prepared(tmp_path: Path, before_node: Callable[[], None] = lambda: None) -> AttemptPreparation:
    own = record(tmp_path)
    layout = layout_of(own, attempt=0, ports=example_ports(own))
    return AttemptPreparation(Home(tmp_path / "home"), RunFiles(tmp_path / "home/runs/run"), own, layout, before_node)


def test_example_ports_are_as_many_as_needed(tmp_path: Path) -> None:
    own = record(tmp_path)
    assert [len(ports) for ports in example_ports(own)] == ports_needed(own.job)


def test_the_plan_of_each_launcher(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    preparation = prepared(tmp_path)
    preparation.make(
        gpus=[(Gpu(id="GPU-a", index=0),), (Gpu(id="GPU-b", index=1),)],
        links={"data/in": tmp_path / "volume"},
        environment=Environment(setup="pip install x", path=("/venv/bin",), variables={"VIRTUAL_ENV": "/venv"}),
        resume_from="/c/step-3",
    )
    plans = [json.loads(node.plan.read_text()) for node in preparation.nodes]
    assert [plan["env"]["CUDA_VISIBLE_DEVICES"] for plan in plans] == ["GPU-a", "GPU-b"]
    assert [plan["node"] for plan in plans] == ["worker-0", "worker-1"]
    for plan, node in zip(plans, preparation.nodes):
        assert plan["path_prepend"] == ["/venv/bin"] and plan["env"]["VIRTUAL_ENV"] == "/venv"
        assert (plan["setup"], plan["resume_from"], plan["memory_limit"]) == ("pip install x", "/c/step-3", 1 << 30)
        assert sorted(plan["wait"]["files"]) == ["worker-0", "worker-1"]
        assert (node.work / "data" / "in").resolve() == tmp_path / "volume"
        assert all(stat.S_ISFIFO(pipe.stat().st_mode) for pipe in node.pipes())
        assert {Path(plan[name]).is_dir() for name in ("directory", "workdir", "scratch")} == {True}


def test_a_link_of_the_code_that_leaves_its_folder_is_in_the_working_copy(tmp_path: Path) -> None:
    own = msgspec.structs.replace(record(tmp_path, nodes=1), outside={"sets/data": "/mnt/x"})
    layout = layout_of(own, attempt=0, ports=example_ports(own))
    preparation = AttemptPreparation(Home(tmp_path / "home"), RunFiles(tmp_path / "home/runs/run"), own, layout)
    preparation.make(gpus=[()], links={}, environment=Environment(), resume_from=None)
    assert os.readlink(preparation.nodes[0].work / "sets" / "data") == "/mnt/x"


@pytest.mark.parametrize("target", ["../out", "a/../../out", ".", "/abs"])
def test_a_link_stays_inside_the_working_copy(tmp_path: Path, target: str) -> None:
    (tmp_path / "volume").mkdir()
    with pytest.raises(EngineError, match="outside"):
        prepared(tmp_path).make(
            gpus=[(), ()], links={target: tmp_path / "volume"}, environment=Environment(), resume_from=None
        )


def test_of_many_nodes_not_all_are_made_when_the_run_is_stopped(tmp_path: Path) -> None:
    made: list[int] = []

    def stop_before_the_second() -> None:
        if made:
            raise EngineError("stopped")
        made.append(1)

    preparation = prepared(tmp_path, stop_before_the_second)
    with pytest.raises(EngineError, match="stopped"):
        preparation.make(gpus=[(), ()], links={}, environment=Environment(), resume_from=None)
    assert [node.plan.exists() for node in preparation.nodes] == [True, False]
