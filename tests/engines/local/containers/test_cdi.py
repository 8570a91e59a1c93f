"""Devices of CDI specifications, as nvidia-ctk and others write them."""

from __future__ import annotations

import json
from pathlib import Path

from longboat.engines.local.containers.cdi import device_names
from longboat.engines.local.containers.choice import device_of
from longboat.engines.local.queue.machine import Gpu

NVIDIA = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
    - containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
      name: "0"
    - containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
      name: GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c
    - containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
      name: all
containerEdits:
    env:
        - NVIDIA_VISIBLE_DEVICES=void
"""


def test_names_of_all_specifications(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(NVIDIA)
    other = {"cdiVersion": "0.5.0", "kind": "example.org/nic", "devices": [{"name": "eth1"}]}
    (tmp_path / "nic.json").write_text(json.dumps(other))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "notes.txt").write_text("kind: x\n")
    assert device_names([tmp_path, tmp_path / "none"]) == {
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c",
        "nvidia.com/gpu=all",
        "example.org/nic=eth1",
    }


def test_a_gpu_by_its_uuid_else_by_its_number() -> None:
    gpu = Gpu(id="GPU-1", index=3)
    both = frozenset({"nvidia.com/gpu=GPU-1", "nvidia.com/gpu=3"})
    assert device_of(gpu, both) == "nvidia.com/gpu=GPU-1"
    assert device_of(gpu, frozenset({"nvidia.com/gpu=3", "nvidia.com/gpu=all"})) == "nvidia.com/gpu=3"
    assert device_of(gpu, frozenset({"nvidia.com/gpu=0", "nvidia.com/gpu=all"})) is None
