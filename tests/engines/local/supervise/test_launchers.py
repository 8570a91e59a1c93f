"""Launchers of an attempt: all of them, or none."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import AttemptNode
from longboat.engines.local.supervise import launchers as module
from longboat.engines.local.supervise.attempt_folders import example_ports, layout_of
from longboat.engines.local.supervise.launchers import Launchers
from longboat.engines.local.supervise.processes import marked
from tests.engines.local.values import job, role


def test_a_node_that_cannot_start_leaves_none_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAUNCHER", tmp_path / "sleep.py")
    monkeypatch.setattr(module, "descendants", lambda pid: [])  # what else the tests have started is not ours
    (tmp_path / "sleep.py").write_text("import time; time.sleep(60)")
    uid = os.urandom(6).hex()
    record = LocalRecord(name="run", uid=uid, job=job(roles=(role(nodes=2),)), base="/", created=0.0, user="me")
    layout = layout_of(record, attempt=0, ports=example_ports(record))
    nodes = [AttemptNode(node, tmp_path / node.name) for node in layout.nodes]
    for pipe in (pipe for node in nodes for pipe in node.pipes()):
        pipe.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(pipe)

    def refuse() -> None:
        if started._pids:
            while not marked(uid):
                time.sleep(0.01)
            raise EngineError("no more processes")

    started = Launchers(nodes, record, attempt=0)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EngineError, match="no more processes"):
        started.start(dict(os.environ), [], before_node=refuse)
    assert marked(uid) == [] and len(os.listdir("/proc/self/fd")) == before
