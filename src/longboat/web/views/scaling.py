"""The autoscaler for pages: what it reports, demand against capacity over time, and what other settings would cost."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from longboat.autoscaler.model.pools_file import read_pools
from longboat.autoscaler.model.snapshot import AutoscalerSettings, Pool
from longboat.autoscaler.observe.orders import OrderStore
from longboat.autoscaler.report.status import REFRESH_S, Report
from longboat.autoscaler.service import read_status
from longboat.core.errors import LongboatError, NotFound, UsageError
from longboat.core.runs import RunStatus
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.install.autoscaler_manifests import POOLS
from longboat.engines.kubernetes.install.install import lease_namespace
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP
from longboat.sdk.records import plain, show_moment
from longboat.simulator.generators import generate
from longboat.simulator.policies import policy_of
from longboat.simulator.replay import replay
from longboat.simulator.results import PolicyOutcome
from longboat.simulator.traces import Trace, TraceJob, read_trace, trace_of
from longboat.web.answers import Rejected
from longboat.web.places import ShownPlace, find_place

MOST_POINTS = 2880
"""Of the history: a day, two a minute."""
SAMPLE_S = 30.0  # as often as the autoscaler's report changes at least
DAY_S = 86400.0
WEEK_S = 7 * DAY_S
MOST_JOBS = 2000
"""Of a simulated trace: an answer within seconds, while somebody moves a slider."""
LONGEST_S = 20.0
"""Of one answer: others wait for it, and a page that waits longer looks broken."""
MOST_SIMULATED_S = 366 * DAY_S
"""Of a trace with its last job's end: a year is more than anybody plans by."""
SIMULATE = "longboat autoscaler simulate trace.csv --pools pools.yaml"
GENERATE = "generate:"
SILENT = 4 * REFRESH_S
LIMITS: Mapping[str, tuple[float, float]] = {"idle_s": (0, 86400), "spare": (0, 1000), "max": (0, 100_000)}

Listed = Sequence[tuple[ShownPlace, Sequence[RunStatus]]]


class ScalingHistory:
    """GPUs that were asked for and there, of each cluster, since the server was started."""

    def __init__(self) -> None:
        self._points: dict[str, deque[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._sampled: dict[str, float] = {}

    def note(self, name: str, point: dict[str, Any], now: float) -> None:
        """Keep a point, at most one in SAMPLE_S."""
        with self._lock:
            if now - self._sampled.get(name, 0.0) >= SAMPLE_S * 0.9:
                self._sampled[name] = now
                self._points.setdefault(name, deque(maxlen=MOST_POINTS)).append(point)

    def of(self, name: str) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._points.get(name, ()))


def autoscalers(listed: Listed, history: ScalingHistory) -> dict[str, Any]:
    """One entry for each cluster that has an autoscaler, or cannot be asked."""
    shown = []
    for place, runs in listed:
        if not isinstance(place.engine, KubernetesEngine):
            continue
        try:
            client = place.engine.client
            report, leader = read_status(client, lease_namespace(client))
            if report is None:
                continue
            pools = read_pools_of(client)
        except LongboatError as error:
            shown.append({"name": place.name, "ok": False, "error": error.message})
            continue
        now = time.time()
        history.note(place.name, {"time": show_moment(now), **gpu_point(report, pools, runs)}, now)
        shown.append({"name": place.name, **autoscaler_of(report, leader, pools), "history": history.of(place.name)})
        shown[-1]["command"] = place.command("autoscaler", "status")
        shown[-1]["ok"] = report.at > client.now() - SILENT and not report.trouble
    return {"clusters": shown}


def autoscaler_of(report: Report, leader: str | None, pools: Sequence[Pool]) -> dict[str, Any]:
    """`autoscaler status -o json` with prices and times that a page can show. Pure."""
    prices = {pool.name: pool.price for pool in pools}
    shown: list[dict[str, Any]] = [
        {
            "name": pool.note.pool,
            "reason": pool.note.reason,
            "size": pool.note.size,
            "coming": pool.note.coming,
            "min": pool.min,
            "max": pool.max,
            "states": pool.states,
            "price": prices.get(pool.note.pool),
            "blocked_until": show_moment(pool.note.blocked_until),
        }
        for pool in report.pools
    ]
    known = [entry for entry in shown if entry["price"]]
    cost = sum(entry["price"] * entry["size"] for entry in known)
    return {
        "error": report.trouble or None,
        "seen": show_moment(report.at),
        "leader": leader,
        "pools": shown,
        "orders": plain(report.orders),
        "pending": plain(report.waiting),
        "waiting_count": report.waiting_count,
        "warnings": list(report.warnings),
        "decisions": [
            {"time": show_moment(action.at), "text": action.text, "trouble": action.trouble or None}
            for action in report.deeds
        ],
        "cost_per_hour": round(cost, 4) if known else None,
    }


def retry_pools(place: ShownPlace) -> dict[str, Any]:
    """`autoscaler retry`: pools that are off or in back-off are asked again at once."""
    if not isinstance(place.engine, KubernetesEngine):
        raise NotFound(f"{place.title} has no autoscaler")
    client = place.engine.client
    return {"retried": OrderStore(client, lease_namespace(client)).retry(())}


def gpu_point(report: Report, pools: Sequence[Pool], runs: Iterable[RunStatus]) -> dict[str, int]:
    """GPUs asked for by unfinished runs, GPUs of machines in pools, GPUs that runs wait for. Pure."""
    gpus = {pool.name: pool.machine.devices for pool in pools}
    opened = [run for run in runs if not run.is_final]
    return {
        "demand": sum(run.gpus for run in opened),
        "capacity": sum(gpus.get(pool.note.pool, 0) * pool.note.size for pool in report.pools),
        "waiting": sum(run.gpus for run in opened if run.phase == "pending"),
    }


def read_pools_of(client: Client) -> tuple[Pool, ...]:
    """The pools of an installed autoscaler; none where its file may not be read."""
    return pools_text(client)[0]


def pools_text(client: Client) -> tuple[tuple[Pool, ...], AutoscalerSettings]:
    try:
        body = client.find(CONFIG_MAP, POOLS, namespace=lease_namespace(client))
        text = ((body or {}).get("data") or {}).get("pools.yaml")
        return parsed_pools(str(text)) if text else ((), AutoscalerSettings())
    except LongboatError:
        return (), AutoscalerSettings()


def parsed_pools(text: str) -> tuple[tuple[Pool, ...], AutoscalerSettings]:
    """Raises UsageError with all mistakes."""
    with file_of(text, "pools.yaml") as file:
        return read_pools(file)


@contextmanager
def file_of(text: str, name: str) -> Iterator[Path]:
    """A file for what reads files. Errors are of the text that was sent, not of where it was put."""
    with tempfile.TemporaryDirectory(prefix="longboat-") as folder:
        file = Path(folder) / name
        file.write_text(text)
        try:
            yield file
        except LongboatError as error:
            raise UsageError(error.message.replace(f"{folder}{os.sep}", ""), hint=error.hint) from None


# what if


class WhatIf:
    """Simulations, one at a time; the last answers are kept while sliders move to and fro."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[bytes, dict[str, Any]] = {}

    def answer(self, listed: Listed, asked: Mapping[str, Any]) -> dict[str, Any]:
        trace = chosen_trace(listed, asked)
        pools, settings = chosen_pools(listed, asked)
        after_pools, after = changed(pools, settings, asked)
        if not self._lock.acquire(timeout=LONGEST_S):
            raise Rejected(429, "a simulation is under way", hint="try again when it has ended")
        try:
            check = limit_check(time.monotonic() + LONGEST_S)
            before = self._figures(trace, pools, settings, check)
            return {
                "trace": {"name": trace.name, "jobs": len(trace.jobs)},
                "settings": {
                    "idle_s": after.idle_s,
                    "spare": after.spare,
                    "max": sum(pool.max for pool in after_pools),
                },
                "before": before,
                "after": self._figures(trace, after_pools, after, check),
            }
        finally:
            self._lock.release()

    def _figures(
        self, trace: Trace, pools: Sequence[Pool], settings: AutoscalerSettings, check: Callable[[float], None]
    ) -> dict[str, Any]:
        key = msgspec.json.encode([trace, pools, settings])
        if key not in self._known:
            if len(self._known) >= 32:
                self._known.clear()
            self._known[key] = figures(replay(trace, pools, policy_of("longboat", settings), check=check))
        return self._known[key]


def limit_check(deadline: float) -> Callable[[float], None]:
    """For `replay`: raises UsageError once the trace lasts too long, or to simulate it does. `deadline`: monotonic."""

    def check(passed_s: float) -> None:
        if passed_s > MOST_SIMULATED_S or time.monotonic() > deadline:
            days = f"more than {MOST_SIMULATED_S / DAY_S:.0f} days"
            taken = days if passed_s > MOST_SIMULATED_S else f"more than {LONGEST_S:g} s to simulate"
            raise UsageError(f"the trace takes {taken}", hint=f"fewer or shorter jobs; or {SIMULATE}")

    return check


def figures(outcome: PolicyOutcome) -> dict[str, Any]:
    counted = outcome.figures
    idle = max(0.0, counted.gpu_hours_provisioned - counted.gpu_hours_requested)
    step = max(1, len(outcome.points) // 1000)
    return {
        "cost": counted.cost,
        "wait_p50_s": counted.wait_p50_s,
        "wait_p99_s": counted.wait_p99_s,
        "gpu_hours": counted.gpu_hours_provisioned,
        "idle_gpu_hours": idle,
        "jobs_finished": counted.jobs_finished,
        "unfinished": outcome.unfinished,
        "timeline": [[point.moment, point.demand, point.capacity] for point in outcome.points[::step]],
    }


def chosen_trace(listed: Listed, asked: Mapping[str, Any]) -> Trace:
    """A generator's name, CSV text, or what ran here within the last week."""
    text = asked.get("trace")
    if text is None:
        return last_week([run for _, runs in listed for run in runs], time.time())
    if not isinstance(text, str):
        raise UsageError("trace: expected a text", hint="generate:philly, or the lines of a CSV file")
    if text.startswith(GENERATE):
        jobs = asked.get("jobs", 300)
        if isinstance(jobs, bool) or not isinstance(jobs, int) or not 1 <= jobs <= MOST_JOBS:
            raise UsageError(f"jobs: expected 1 to {MOST_JOBS}")
        return generate(text.removeprefix(GENERATE), seed=0, jobs=jobs)
    with file_of(text, "trace.csv") as file:
        trace = read_trace(file)
    if len(trace.jobs) > MOST_JOBS:
        raise UsageError(
            f"the trace has {len(trace.jobs)} jobs, and {MOST_JOBS} are simulated here",
            hint=SIMULATE,
        )
    return trace


def last_week(runs: Iterable[RunStatus], now: float) -> Trace:
    """Runs with GPUs that began within a week, as a trace. Pure."""
    jobs = [
        TraceJob(
            name=run.name, submitted=run.created, duration=max(1.0, (run.ended or now) - run.started), gpus=run.gpus
        )
        for run in runs
        if run.gpus and run.started is not None and run.created > now - WEEK_S
    ]
    if not jobs:
        raise NotFound("no run with GPUs began within the last week", hint="give a trace: generate:philly, or a CSV")
    return trace_of("the last week", sorted(jobs, key=lambda job: job.submitted)[-MOST_JOBS:])


def chosen_pools(listed: Listed, asked: Mapping[str, Any]) -> tuple[tuple[Pool, ...], AutoscalerSettings]:
    """Pools given as YAML, or those of the autoscaler of a shown cluster."""
    text = asked.get("pools")
    if isinstance(text, str) and text:
        return parsed_pools(text)
    places = [place for place, _ in listed]
    if asked.get("cluster"):
        places = [find_place(places, str(asked["cluster"]))]
    for place in places:
        if isinstance(place.engine, KubernetesEngine):
            pools, settings = pools_text(place.engine.client)
            if pools:
                return pools, settings
    raise NotFound("no autoscaler's pools are known here", hint="give the text of a pools file as `pools`")


def changed(
    pools: Sequence[Pool], settings: AutoscalerSettings, asked: Mapping[str, Any]
) -> tuple[tuple[Pool, ...], AutoscalerSettings]:
    """The pools and settings that are tried. Raises UsageError. Pure."""
    given: dict[str, float] = {}
    for name, (low, high) in LIMITS.items():
        value = asked.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise UsageError(f"{name}: {value!r} is not a number from {low:g} to {high:g}")
        given[name] = value
    if "idle_s" in given:
        settings = msgspec.structs.replace(settings, idle_s=float(given["idle_s"]))
    if "spare" in given:
        settings = msgspec.structs.replace(settings, spare=int(given["spare"]))
    if "max" in given:
        most = int(given["max"])
        pools = [msgspec.structs.replace(pool, max=most, min=min(pool.min, most)) for pool in pools]
    return tuple(pools), settings
