"""Heartbeats of launchers, whose content anybody may have written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from longboat.core.runs import RankUsage
from longboat.metrics.usage import gpus_of, usage_of

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


def test_known_numbers_are_taken() -> None:
    assert usage_of({"cpu": 1.5, "memory": "much", "other": 1, "not_finite": {"loss": 3, "x": "y"}}) == RankUsage(
        cpu=1.5, not_finite={"loss": 3}
    )
    (gpu,) = gpus_of([{"number": 3, "name": "H200", "gpu": 97, "gpu_power": True, "ranks": [0, "x"]}, 7], "worker-0")
    assert (gpu.node, gpu.number, gpu.model, gpu.use, gpu.power, gpu.ranks) == (
        "worker-0",
        "3",
        "H200",
        97.0,
        None,
        (0,),
    )


@given(values, st.dictionaries(st.sampled_from(["cpu", "not_finite", "ranks", "gpu", "number"]), values))
def test_nothing_that_is_told_is_an_error(value: object, fields: dict[str, object]) -> None:
    usage_of(value), usage_of(fields)
    gpus_of(value, "w"), gpus_of([value, fields], "w")
