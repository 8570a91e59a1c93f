"""What the machine has; the GPUs as LONGBOAT_GPUS states or narrows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.engines.local.queue import machine
from longboat.engines.local.queue.machine import Gpu, observe_gpus, observe_machine

FOUND = (Gpu(id="GPU-aa", index=0, type="H100"), Gpu(id="GPU-bb", index=1, type="H100"))


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (None, ["GPU-aa", "GPU-bb"]),
        ("", []),
        (" , ", []),
        ("1", ["GPU-bb"]),
        ("GPU-bb,0", ["GPU-bb", "GPU-aa"]),
        ("1,1, 1", ["GPU-bb"]),
        ("x,y", ["x", "y"]),
        ("x,0", ["x", "GPU-aa"]),
    ],
)
def test_stated_and_narrowed(monkeypatch: pytest.MonkeyPatch, stated: str | None, expected: list[str]) -> None:
    monkeypatch.setattr(machine, "_nvml_gpus", lambda: FOUND)
    seen = observe_gpus({} if stated is None else {"LONGBOAT_GPUS": stated})
    assert [gpu.id for gpu in seen] == expected
    assert [gpu.id for gpu in seen if gpu.is_stated] == [name for name in expected if not name.startswith("GPU")]


def test_this_machine(tmp_path: Path) -> None:
    seen = observe_machine(tmp_path / "not" / "yet", {"LONGBOAT_GPUS": ""})
    assert seen.cpus >= 1 and seen.memory > 1 << 20 and seen.disk > 0 and seen.gpus == ()
    assert list(tmp_path.iterdir()) == []
