"""Comparison of policies on one trace, each in a world of its own with the same pools and conditions."""

from __future__ import annotations

from collections.abc import Sequence

from longboat.autoscaler.model.snapshot import AutoscalerSettings, Pool
from longboat.simulator.policies import policy_of
from longboat.simulator.policies.oracle import NAME as ORACLE
from longboat.simulator.policies.oracle import oracle
from longboat.simulator.replay import replay
from longboat.simulator.results import PolicyOutcome
from longboat.simulator.traces import Trace
from longboat.simulator.world import USUAL, Conditions


def simulate(
    trace: Trace,
    pools: Sequence[Pool],
    settings: AutoscalerSettings,
    name: str,
    conditions: Conditions = USUAL,
    interval_s: float = 10.0,
) -> PolicyOutcome:
    if name == ORACLE:
        return oracle(trace, pools)
    policy = policy_of(name, settings, interval_s=interval_s, seed=conditions.seed)
    return replay(trace, pools, policy, conditions)
