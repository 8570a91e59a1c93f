"""Quantities in every notation, against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.core.errors import UsageError
from longboat.fitting.model.quantities import (
    amount,
    amounts,
    is_gpu,
    is_scarce,
    largest,
    scarcity,
    show,
    show_number,
    total,
)

SUFFIXES = {
    "": Fraction(1),
    **{unit: Fraction(10) ** power for unit, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18))},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


@pytest.mark.parametrize(
    ("text", "milli", "whole"),
    [
        ("100m", 100, 1),
        ("1.5", 1500, 2),
        (".5", 500, 1),
        ("1.", 1000, 1),
        ("1e3", 1_000_000, 1000),
        ("1E3", 1_000_000, 1000),
        ("1E", 10**21, 10**18),
        ("1e-3", 1, 1),
        ("5E-1", 500, 1),
        ("64Gi", 64 * 2**30 * 1000, 64 * 2**30),
        ("0.5Ki", 512_000, 512),
        ("1Ei", 2**60 * 1000, 2**60),
        ("250000000n", 250, 1),
        ("1u", 1, 1),
        ("0", 0, 0),
        ("+2", 2000, 2),
        ("-1500m", -1500, -1),
        ("1k", 1_000_000, 1000),
    ],
)
def test_every_notation(text: str, milli: int, whole: int) -> None:
    assert amount("cpu", text) == milli
    assert amount("memory", text) == whole


def test_numbers_that_json_gave_as_such() -> None:
    assert amount("cpu", 2) == 2000
    assert amount("cpu", 0.1) == 100
    assert amount("nvidia.com/gpu", 8) == 8


@pytest.mark.parametrize(
    "text", ["", "x", "1K", "1 Gi", "1gi", "1e", "--1", "1.2.3", "Gi", ".", "1e3Ki", "1" * 80, "٣"]
)
def test_what_is_no_quantity_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="is no Kubernetes quantity") as caught:
        amount("memory", text)
    assert caught.value.hint


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(sorted(SUFFIXES)), st.booleans())
def test_exact_and_rounded_up(whole: int, fraction: int, suffix: str, is_cpu: bool) -> None:
    exact = Fraction(f"{whole}.{fraction:06d}") * SUFFIXES[suffix] * (1000 if is_cpu else 1)
    assert amount("cpu" if is_cpu else "memory", f"{whole}.{fraction:06d}{suffix}") == math.ceil(exact)


def test_mappings_are_sorted_and_without_zeros() -> None:
    assert amounts({"memory": "1Ki", "cpu": "1", "x.y/z": "0"}) == (("cpu", 1000), ("memory", 1024))
    assert amounts(None) == ()
    assert amounts({"cpu": "-1", "memory": "1Ki"}) == (("memory", 1024),), "less than nothing is nothing"
    assert total([(("cpu", 1),), (("cpu", 2), ("memory", 3))]) == (("cpu", 3), ("memory", 3))
    assert largest((("cpu", 1), ("memory", 9)), (("cpu", 4),)) == (("cpu", 4), ("memory", 9))


def test_what_is_scarce_and_in_which_order() -> None:
    gpus = [
        "nvidia.com/gpu",
        "amd.com/gpu",
        "nvidia.com/mig-1g.5gb",
        "gpu.intel.com/i915",
        "alpha.kubernetes.io/nvidia-gpu",
        "google.com/tpu",
        "aws.amazon.com/neuron",
        "habana.ai/gaudi",
        "huawei.com/Ascend910",
    ]
    assert all(is_gpu(name) and is_scarce(name) for name in gpus)
    others = ["vpc.amazonaws.com/efa", "rdma/hca", "example.com/fpga"]
    assert all(is_scarce(name) and not is_gpu(name) for name in others)
    assert not any(is_scarce(name) for name in ("cpu", "memory", "hugepages-2Mi", "ephemeral-storage"))
    assert sorted(["cpu", "rdma/hca", "memory", "nvidia.com/gpu"], key=scarcity)[0] == "nvidia.com/gpu"


def test_words() -> None:
    assert show("cpu", 1500) == "1.5 CPUs" and show("cpu", 1000) == "1 CPU"
    assert show("memory", 16 << 30) == "16Gi of memory"
    assert show("nvidia.com/gpu", 8) == "8 nvidia.com/gpu"
    assert show_number("memory", 0) == "0"
