"""The containers of an attempt, as commands."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longboat.engines.local.containers import attempt


def test_who_the_user_is_is_asked_once_for_all_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(attempt, "user_of", lambda program: asked.append(program) or "7:7")
    monkeypatch.setattr(attempt, "program_path", lambda program, _environment: f"/bin/{program}")
    job = SimpleNamespace(role=lambda _name: SimpleNamespace(image="i"), roles=(), volumes=())
    own = {"in_place": None, "outside": {}, "mounts": {}, "checkpoint_store": None, "checkpoint_dir": str(tmp_path)}
    record: Any = SimpleNamespace(containers="docker", job=job, name="r", uid="00aa", **own)
    files: Any = SimpleNamespace(directory=tmp_path)
    layout = SimpleNamespace(role="worker")
    nodes: Any = [
        SimpleNamespace(name=f"worker-{n}", layout=layout, directory=tmp_path, plan=tmp_path / "plan.json")
        for n in range(3)
    ]
    containers = attempt.AttemptContainers(record, files, 0)
    containers._images["i"] = "sha256:0"
    starts = containers.starts(nodes, [(), (), ()], (), {})
    assert asked == ["docker"]
    assert ["--user=7:7" in start.command for start in starts.values()] == [True] * 3
