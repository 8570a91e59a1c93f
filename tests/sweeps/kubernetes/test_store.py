"""What is read of a sweep's ConfigMap: bounded, about itself, and small enough for a thousand trials."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from longboat.core.jobs import Metric, Range, Sweep
from longboat.sweeps.kubernetes import sweep_objects
from longboat.sweeps.kubernetes.store import BadSweep, read_sweep
from longboat.sweeps.kubernetes.sweep_objects import MOST_PACKED, MOST_TRIALS, pack_state, sweep_map, unpack_state
from longboat.sweeps.trials import SweepState, SweepTrial
from tests.sweeps.kubernetes.memory_cluster import base_record, replace, sweep_record

NAMES = [f"metric_{number}" for number in range(16)]


def trials(count: int, metrics: int = 16) -> SweepState:
    """As hard to pack as they come: every number is another."""
    chance = Random(1)
    made = tuple(
        SweepTrial(
            number=number,
            params={name: chance.random() for name in ("lr", "width", "drop")},
            run=f"s-t{number}",
            phase="succeeded",
            is_submitted=True,
            metrics={name: chance.random() for name in [*NAMES, *map(str, range(metrics - 16))]},
            step=chance.randrange(10**6),
            attempts=1,
            created=chance.random() * 1e9,
            started=chance.random() * 1e9,
            ended=chance.random() * 1e9,
        )
        for number in range(1, count + 1)
    )
    return SweepState(trials=made, metric=Metric(name="metric_3"))


def test_a_thousand_trials_take_a_fraction_of_a_mebibyte() -> None:
    state = trials(1000)
    packed = pack_state(state)
    assert len(packed) < 500_000 and unpack_state(packed) == state


def test_what_does_not_fit_is_left_to_the_runs_and_the_metric_that_counts_stays() -> None:
    packed = pack_state(trials(MOST_TRIALS, metrics=40))
    assert len(base64.b64decode(packed)) <= MOST_PACKED
    kept = unpack_state(packed)
    assert len(kept.trials) == MOST_TRIALS and all("metric_3" in trial.metrics for trial in kept.trials)


def body_of(**fields: Any) -> dict[str, Any]:
    record = sweep_record(**fields)
    body = sweep_map(record, base_record(record), SweepState())
    return {**body, "metadata": {**body["metadata"], "uid": "1", "resourceVersion": "1"}}


def packed_trials(text: bytes, count: int) -> str:
    return base64.b64encode(gzip.compress(b'{"trials":[' + b",".join([text] * count) + b"]}", compresslevel=1)).decode()


HUGE = Sweep(space={"x": Range(low=0.0, high=1.0)}, method="random", trials=10**9)
FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "another name": lambda body: body["metadata"].update(name="t.sweep"),
    "another namespace": lambda body: body["metadata"].update(namespace="kube-system"),
    "no record": lambda body: body.update(data={}),
    "no run": lambda body: body["data"].pop("run"),
    "a run elsewhere": lambda body: body["data"].update(
        run=body["data"]["run"].replace('"namespace":"default"', '"namespace":"kube-system"')
    ),
    "no state": lambda body: body["binaryData"].update(state="AAAA"),
    "a bomb": lambda body: body["binaryData"].update(
        state=base64.b64encode(gzip.compress(b" " * (80 << 20), compresslevel=1)).decode()
    ),
    "a thousand times more trials than any": lambda body: body["binaryData"].update(
        state=packed_trials(b'{"number":1,"params":{"a":0},"run":"","metrics":{"b":0}}', 147_000)
    ),
    "a few more trials than any": lambda body: body["binaryData"].update(
        state=packed_trials(b'{"number":1,"params":{},"run":""}', MOST_TRIALS + 1)
    ),
    "trials that are not counted": lambda body: body["binaryData"].update(
        state=pack_state(SweepState(trials=(SweepTrial(number=7, params={"x": 1}, run="s-t7"),)))
    ),
    "more trials than planned": lambda body: body["binaryData"].update(state=pack_state(trials(5))),
    "a trial that ends after all clocks": lambda body: body["binaryData"].update(
        state=pack_state(SweepState(trials=(SweepTrial(number=1, params={"x": 1}, run="s-t1", ended=1e300),)))
    ),
    "an end before all clocks": lambda body: body["binaryData"].update(
        state=pack_state(SweepState(phase="failed", ended=-1e18))
    ),
    "wild numbers": lambda body: body["data"].update(
        sweep=body["data"]["sweep"].replace('"created":0.0', '"created":1e300')
    ),
    "more trials than anybody drives": lambda body: body.update(data=body_of(sweep=HUGE)["data"]),
}


@pytest.mark.parametrize("fault", FORGED)
def test_what_cannot_be_is_not_acted_upon(fault: str) -> None:
    body = body_of()
    assert read_sweep(body).record.name == "s"
    FORGED[fault](body)
    with pytest.raises(BadSweep):
        read_sweep(body)


@pytest.mark.parametrize("count", [MOST_TRIALS + 1, 147_000])
def test_too_many_trials_are_refused_before_one_is_made_of_any(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process reads the sweeps of all namespaces, with a few hundred MiB."""
    monkeypatch.setattr(sweep_objects, "STATES", None)
    with pytest.raises(ValueError, match="more trials than any"):
        unpack_state(packed_trials(b'{"number":1,"params":{"a":0},"run":"","metrics":{"b":0}}', count))


def test_the_largest_sweep_is_read_with_all_its_metrics() -> None:
    chance, state = Random(2), trials(MOST_TRIALS)
    rounded = tuple(  # as of a trainer that reports four digits: what a float has at most does not fit (see above)
        replace(trial, metrics={name: round(chance.random(), 4) for name in NAMES}) for trial in state.trials
    )
    state = replace(state, trials=rounded)
    assert unpack_state(pack_state(state)) == state
