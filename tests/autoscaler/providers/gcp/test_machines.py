"""What a machine of Google offers as a node: never more than GKE leaves."""

from __future__ import annotations

import pytest

from longboat.autoscaler.providers.gcp.machines import allocatable_memory, read_type

GIB = 1 << 30


@pytest.mark.parametrize(("memory", "documented"), [(4, 2.9), (16, 13.3), (64, 58.6)])
def test_memory_is_less_than_gke_documents(memory: int, documented: float) -> None:
    assert 0.8 * documented * GIB < allocatable_memory(memory * GIB) < documented * GIB


def test_types() -> None:
    body = {"name": "x", "guestCpus": 4, "memoryMb": 16384, "architecture": "ARM64"}
    kind = read_type(body)
    assert (kind.cpus, kind.memory, kind.gpus, kind.architecture) == (4, 16 * GIB, 0, "arm64")
    assert read_type({**body, "accelerators": [{"guestAcceleratorCount": 8}]}).gpus == 8
