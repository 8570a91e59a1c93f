"""Clusters made by `longboat cluster up`, hosts by steps, as its log of steps tells; also while one is under way."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import msgspec

from longboat.clusters.apply.step_log import STEPS_FILE, StepEvent
from longboat.clusters.spec import ClusterSpec
from longboat.clusters.spec_store import known_clusters, load_spec
from longboat.core.guards.decoding import decode
from longboat.engines.shared.home import Home
from longboat.sdk.records import show_moment

MOST_BYTES = 4 << 20
"""Of one log of steps: hundreds of hosts stay far below."""
AT_WORK_S = 900.0
"""A step that has begun and was silent for longer belongs to an `up` that was killed."""
STATES = {"started": "running", "waiting": "waiting", "done": "done", "failed": "failed", "skipped": "skipped"}


def clusters() -> dict[str, Any]:
    home = Home()
    shown = []
    for name in known_clusters(home):
        spec = load_spec(name, home)
        if spec is None:
            continue
        file = home.root / "clusters" / f"{name}.logs" / STEPS_FILE
        events, changed = read_events(file)
        shown.append(cluster_of(spec, events, changed, time.time()))
    return {"clusters": shown}


def read_events(file: Path) -> tuple[list[StepEvent], float | None]:
    events = []
    try:
        with file.open("rb") as opened:
            data, changed = opened.read(MOST_BYTES), file.stat().st_mtime
    except OSError:
        return [], None
    for line in data.splitlines():
        with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeError):
            events.append(decode(line, StepEvent))
    return events, changed


def cluster_of(spec: ClusterSpec, events: list[StepEvent], changed: float | None, now: float) -> dict[str, Any]:
    """Hosts with their steps, the last word of each. Pure."""
    steps: dict[str, dict[str, dict[str, Any]]] = {host.name: {} for host in spec.hosts}
    for event in events:
        if event.state in STATES:
            steps.setdefault(event.host, {})[event.step] = {
                "name": event.step,
                "state": STATES[event.state],
                "seconds": event.seconds or None,
                "reason": event.text or None,
            }
    known = {host.name: host for host in spec.hosts}
    hosts = [
        {
            "name": name,
            "address": known[name].address if name in known else None,
            "role": known[name].role if name in known else None,
            "state": state_of(list(each.values())),
            "steps": list(each.values()),
        }
        for name, each in steps.items()
    ]
    states = {host["state"] for host in hosts}
    is_recent = changed is not None and now - changed < AT_WORK_S
    is_at_work = bool(states & {"running", "waiting"})
    phase = "failed" if "failed" in states else "ready"
    if is_at_work:
        phase = "running" if is_recent else "interrupted"
    return {
        "name": spec.name,
        "kind": spec.kind,
        "phase": phase if events else "unknown",
        "changed": show_moment(changed),
        "hosts": hosts,
        "command": f"longboat cluster status {spec.name}",
    }


def state_of(steps: list[dict[str, Any]]) -> str:
    """The state of a host: what is wrong before what goes on before what is done. Pure."""
    states = [step["state"] for step in steps]
    return next(
        (state for state in ("failed", "running", "waiting") if state in states), "done" if states else "waiting"
    )
