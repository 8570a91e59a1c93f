"""What managed clusters keep of a machine."""

from __future__ import annotations

import pytest

from longboat.autoscaler.providers.reservations import GIB, reserved_cpus, reserved_memory


@pytest.mark.parametrize(("memory", "reserved"), [(4, 1.0), (8, 1.8), (16, 2.6), (128, 9.32), (228, 11.32)])
def test_shares_fall_with_the_size(memory: int, reserved: float) -> None:
    assert reserved_memory(memory * GIB) == pytest.approx(reserved * GIB)


@pytest.mark.parametrize(("cpus", "reserved"), [(1, 0.06), (2, 0.07), (4, 0.08), (8, 0.09), (208, 0.59)])
def test_processors(cpus: int, reserved: float) -> None:
    assert reserved_cpus(cpus) == pytest.approx(reserved)
