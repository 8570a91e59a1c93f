"""Restart in place: the launcher of a pod becomes that of the next attempt, by `exec`. What it keeps, and what it moves
out of the way.

The pod, its working copy, data and setup are kept. Files of the attempt before go to `attempts/<number>`; logs stay in
their folder, those of a later attempt with its number in their names (`0.out@1`), as on the pod's log. When ranks are
restarted is decided by node 0 (`gang.coordinator`).
"""

from __future__ import annotations

import os
import sys
import time

from ...location import entry_point
from ...node.jsonfiles import read_json, write_json
from ...node.lifeline import SIGNALS
from ...node.plan import resumed_from
from ...ranks.state import NodeFailure
from .. import termination

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any

    from ...ranks.state import LauncherState
else:
    import _signal as signal

EXIT_LOST = 208
AGAIN = "again"
"""Last word of the command line of a launcher that goes on."""
NEXT, EARLIER = "next.json", "attempts"
TOGETHER_S = 60.0
"""The launchers were all there a moment ago. If they are not all back this long after node 0, it is for new pods. Not
where one of them may be sending a checkpoint to an object store, and others wait for node 0, which may do the same."""
REPLACED_S = 300.0
"""For a pod that is made anew: 10 s until its Job does it, a place, its image. Once it has called, it has its time."""
LEAST_LEFT_S = 1.0  # of the run's time: a timeout of 0 would be none
POD_FOLDER, SHARED_MEMORY = "/longboat/node", "/dev/shm"
"""Only in a pod the shared memory is the node's own."""
_MOVED = ("outcome.json", "verdict.json", "ready.json", "beat.json", "stall.json", "metrics.jsonl", "steps")
_REMOVED = ("stop", "save", "ending.json")
_ATTEMPT = "LONGBOAT_ATTEMPT"


def go_on(state: LauncherState, order: dict[str, Any], is_terminated: bool) -> None:
    """Become the launcher of the next attempt. Returns only where that cannot be done.

    `is_terminated`: SIGTERM came after this one's ranks had ended, and is for the next one.
    """
    plan = state.plan
    before = plan.again or {}
    counts = {**(before.get("lines") or {}), **(state.pod_log.lines() if state.pod_log else {})}
    since = float(before.get("running_ns") or 0) or _first_start_ns(state)
    following = {
        "attempt": int(order["attempt"]),
        "first": int(before.get("first", plan.attempt)),
        "began": time.time(),
        "not_before": time.monotonic() + float(order.get("delay_s") or 0.0),
        "running_ns": since,
        "lines": counts,
        "ended": [*(before.get("ended") or []), _entry(state, order)],
        "places": order.get("places", before.get("places") or {}),
    }
    _become(state, following, is_terminated)


def join(state: LauncherState, under_way: dict[str, Any]) -> None:
    """Become a member of the attempt under way, or a spare of it, in a pod that is prepared. Returns only where that
    cannot be."""
    plan = state.plan
    before = plan.again or {}
    following = {
        "attempt": int(under_way["attempt"]),
        "first": int(before.get("first", plan.attempt)),
        "began": time.time(),
        "lines": {**(before.get("lines") or {}), **(state.pod_log.lines() if state.pod_log else {})},
        "ended": under_way["ended"],
        "places": under_way.get("places") or {},
    }
    _become(state, following, False)
    state.failure = NodeFailure("lost", EXIT_LOST, "it cannot join attempt %d" % (following["attempt"] + 1))


def _become(state: LauncherState, following: dict[str, Any], is_terminated: bool) -> None:
    plan = state.plan
    try:
        write_json(state.path(NEXT), following)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        if is_terminated:
            os.kill(os.getpid(), signal.SIGTERM)  # it waits, blocked, for the next one
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)  # input that the submitter passes on is the first attempt's
        env = {**os.environ, "JOB_COMPLETION_INDEX": plan.pod.rpartition("-")[2]}
        words = ["--pod", os.path.dirname(plan.directory), plan.role, AGAIN]
        os.execve(sys.executable, [sys.executable, "-I", "-S", entry_point(), *words], env)
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        state.say("cannot restart in place: %s" % (error.strerror or error))


def _first_start_ns(state: LauncherState) -> float:
    """When the run's ranks first started, on the clock that does not jump; 0: nobody knows."""
    started = [rank.started for rank in state.ranks if rank.started]
    return time.monotonic_ns() - max(0.0, time.time() - min(started)) * 1e9 if started else 0.0


def _entry(state: LauncherState, order: dict[str, Any]) -> dict[str, Any]:
    """The attempt that has ended, in few words, and which members have other pods in the next one."""
    plan, ended = state.plan, order["ended"]
    ended = {**ended, **{key: order[key] for key in ("replaced", "spares") if order.get(key)}}
    started = [rank.started for rank in state.ranks if rank.started]
    steps = [rank.step for rank in state.ranks if rank.step is not None]
    return {
        **ended,
        "attempt": plan.attempt,
        "began": (plan.again or {}).get("began"),
        "running": min(started) if started else None,
        "ended": time.time(),
        "resumed_from": resumed_from(plan),
        "step": max(steps) if steps else None,
    }


def places_in(root: str) -> dict[str, str]:
    """Which pod plays which node in the attempt that goes on here. Raises OSError, ValueError."""
    places = read_json(os.path.join(root, "node", NEXT)).get("places") or {}
    return {str(pod): str(node) for pod, node in places.items()}


def take_over(raw: dict[str, Any]) -> dict[str, Any]:
    """The plan of the attempt that goes on in this pod, its files in order. Raises OSError, ValueError."""
    folder = str(raw["directory"])
    again = read_json(os.path.join(folder, NEXT))
    attempt = int(again["attempt"])
    _put_aside(folder, attempt - 1)
    _empty(str(raw["scratch"]))
    if folder == POD_FOLDER:
        free_shared_memory(
            SHARED_MEMORY, min((end["running"] for end in again["ended"] if end["running"]), default=None)
        )
    wait = dict(raw["wait"])
    if int(raw["node_rank"]) == 0 and not raw.get("checkpoint_store"):
        longest_s = REPLACED_S if again["ended"][-1].get("replaced") else TOGETHER_S
        wait["timeout_s"] = min(float(wait["timeout_s"]), longest_s)
    if wait.get("run_timeout_s") is not None and again.get("running_ns"):
        used_s = (time.monotonic_ns() - float(again["running_ns"])) / 1e9
        wait["run_timeout_s"] = max(LEAST_LEFT_S, float(wait["run_timeout_s"]) - used_s)
    ranks = [{**rank, "env": _renumbered(rank.get("env") or {}, attempt)} for rank in raw["ranks"]]
    env = _renumbered(raw["env"], attempt)
    begun = {"node": raw["node"], "attempt": attempt, "began": again["began"], "restarts": again["ended"]}
    termination.write(str(raw["termination"]), termination.compose_begun(begun))
    return {**raw, "attempt": attempt, "again": again, "wait": wait, "ranks": ranks, "env": env, "stdin": False}


def _renumbered(env: dict[str, str], attempt: int) -> dict[str, str]:
    env = {name: value for name, value in env.items() if name != "LONGBOAT_WORLD_SIZE_CHANGED"}  # as just before it
    return {**env, _ATTEMPT: str(attempt)} if _ATTEMPT in env else env


def _empty(folder: str) -> None:
    """Remove what the ranks left behind in their TMPDIR."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def free_shared_memory(folder: str, since: float | None) -> None:
    """Remove segments that killed ranks left behind, by their age and owner; no process that uses them is left."""
    for name in os.listdir(folder) if since is not None and os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        try:
            segment = os.lstat(path)
            if segment.st_uid == os.getuid() and segment.st_mtime >= float(since or 0.0) and not os.path.isdir(path):
                os.unlink(path)
        except OSError:
            pass


def _put_aside(folder: str, attempt: int) -> None:
    """Move the files of an attempt to a folder of their own; again after this was interrupted, too."""
    aside = os.path.join(folder, EARLIER, str(attempt))
    os.makedirs(aside, exist_ok=True)
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name in _MOVED or (name.startswith("rank-") and name.endswith(".json")):
            if not os.path.isdir(os.path.join(aside, name)):
                os.rename(path, os.path.join(aside, name))
        elif name in _REMOVED:
            os.unlink(path)
