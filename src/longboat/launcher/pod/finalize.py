"""The end of a pod's node: logs and reports into the run's storage, artifacts, the termination message.

Nothing in here changes how the node ended; what cannot be kept is told on the log.
"""

from __future__ import annotations

import os

from .. import vendored
from ..node.plan import resumed_from
from ..ranks.state import LauncherState
from ..sampling.series_file import NAME
from . import checkpoints, termination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..ranks.ranks import Rank

MOST_METRICS, MOST_NAME = 20, 64
"""Of a termination message, which has 4096 bytes for everything."""
MOST_VALUE = 1e15
"""A message with a number of 10^16 or more is believed by nobody; a loss that has diverged is such a number."""


def close(state: LauncherState, outcome: dict[str, Any], gang: dict[str, Any] | None) -> None:
    """Save logs, artifacts and the termination message; only plans of pods ask for these."""
    plan = state.plan
    for wanted, work in ((plan.artifacts, collect), (plan.keep, keep)):
        if wanted:
            try:
                work(state)
            except Exception as error:  # whatever it is, the message below must be written
                state.say("not kept: %s" % error)
    if plan.wait_kind == "line" and plan.checkpoint_dir and plan.node_rank == 0 and state.sender is None:
        checkpoints.prune(plan.checkpoint_dir, plan.keep_checkpoints, plan.attempt)
    if state.sender is not None:
        announce(state, outcome, gang)  # should this process be killed while it sends
        state.sender.finish()
    announce(state, outcome, gang)


def announce(state: LauncherState, outcome: dict[str, Any], gang: dict[str, Any] | None) -> None:
    """Write the termination message."""
    if state.plan.termination:
        termination.write(state.plan.termination, termination.compose(facts(state, outcome, gang)))


def facts(state: LauncherState, outcome: dict[str, Any], gang: dict[str, Any] | None) -> dict[str, Any]:
    """The fields of the termination message before it is cut to size."""
    plan = state.plan
    started = [rank.started for rank in state.ranks if rank.started]
    reports = [rank.report for rank in state.ranks if rank.report is not None]
    again = plan.again or {}
    ended = {key: outcome[key] for key in ("exit_code", "cause", "message", "ended", "ended_by", "first", "tail")}
    if gang is not None and gang.get("reason") == "stop":  # also where this node had ended before
        ended["ended_by"] = "stop"
    return {
        "node": plan.node,
        "attempt": plan.attempt,
        **ended,
        "started": min(started) if started else None,
        "ranks": [[each["rank"], each["exit_code"], each["ended_by"], each["step"]] for each in reports],
        "metrics": latest_metrics(state.ranks),
        "usage": latest_usage(state.ranks),
        "resumed_from": resumed_from(plan),
        "checkpoint": checkpoints.kept(plan.directory, plan.checkpoint_dir, plan.checkpoint_store),
        "lines": {**(again.get("lines") or {}), **state.pod_log.lines()} if state.pod_log else None,
        **({"began": again["began"], "restarts": again["ended"]} if again else {}),
        "gang": gang,
    }


def _furthest(ranks: list[Rank]) -> Rank | None:
    return max(ranks, key=lambda rank: (-1 if rank.step is None else rank.step, -rank.rank), default=None)


def latest_usage(ranks: list[Rank]) -> dict[str, object]:
    """How fast that rank stepped in the end, and which of its metrics were no finite numbers."""
    furthest = _furthest(ranks)
    usage = furthest.usage if furthest is not None else {}
    kept: dict[str, object] = {name: usage[name] for name in ("steps_per_s", "pace_steps") if name in usage}
    bad = usage.get("not_finite")
    if isinstance(bad, dict):
        kept["not_finite"] = {name[:MOST_NAME]: step for name, step in list(bad.items())[:MOST_METRICS]}
    return kept


def latest_metrics(ranks: list[Rank]) -> dict[str, float]:
    """Metrics of the rank with the highest step, finite numbers only."""
    furthest = _furthest(ranks)
    metrics = furthest.metrics if furthest is not None else {}
    return {name[:MOST_NAME]: value for name, value in list(metrics.items())[:MOST_METRICS] if abs(value) < MOST_VALUE}


def keep(state: LauncherState) -> None:
    """Copy logs, reports and the outcome to `<keep>/<attempt>/<node>`."""
    import shutil

    plan = state.plan
    target = os.path.join(str(plan.keep), str(plan.attempt), plan.node)
    os.makedirs(os.path.join(target, "logs"), exist_ok=True)
    for name in sorted(os.listdir(state.path("logs"))):
        stream, _, mark = name.replace(".idx", "").partition("@")  # of attempts before this one: kept when they ended
        if mark == plan.mark[1:]:
            kept = stream + (".idx" if name.endswith(".idx") else "")
            shutil.copyfile(state.path("logs", name), os.path.join(target, "logs", kept))
    for name in sorted(os.listdir(plan.directory)):
        if name in ("outcome.json", "verdict.json", NAME) or (name.startswith("rank-") and name.endswith(".json")):
            shutil.copyfile(state.path(name), os.path.join(target, name))
    _sync(target)


def _sync(folder: str) -> None:
    """Flush to the storage: the pod's machine may be switched off at once."""
    durable = vendored.load("bundles.durable")
    durable.sync_tree(folder)
    for _ in range(2):  # <keep>/<attempt>, and <keep>, or the folders above an artifact: they may be new as well
        folder = os.path.dirname(folder)
        durable.sync_folder(folder)


def collect(state: LauncherState) -> None:
    """Copy the job's `artifacts` from the working copy to `<artifacts>/<node>/`."""
    plan = state.plan
    if not plan.artifacts_dir:
        return
    for real, name in vendored.load("bundles.workdir").find_artifacts(plan.workdir, plan.artifacts):
        os.makedirs(plan.artifacts_dir, exist_ok=True)
        target = os.path.join(plan.artifacts_dir, plan.node, name)
        vendored.load("bundles.merging").merge(real, target, plan.artifacts_dir)
    made = os.path.join(plan.artifacts_dir, plan.node)
    if os.path.isdir(made):
        _sync(made)
