"""Prometheus metrics of the loop, in the text format, and the HTTP server for them. Counts since the start."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.server import ThreadingHTTPServer

from longboat.autoscaler.model.plan import PoolNote
from longboat.autoscaler.model.turn import LoopTurn
from longboat.engines.shared import probe_server
from longboat.engines.shared.probe_server import Check, TextPage
from longboat.metrics.prometheus import TEXT, Family, LabelledValue, Labels, families

PREFIX = "longboat_autoscaler_"


class Metrics:
    """A listener of the loop. `text` may be asked for by another thread."""

    def __init__(self, is_leader: Callable[[], bool] = lambda: True) -> None:
        self._is_leader = is_leader
        self._lock = threading.Lock()
        self._turn: LoopTurn | None = None
        self._loops = self._failures = 0
        self._seconds = self._decide_s = 0.0
        self._actions: Counter[tuple[str, str]] = Counter()
        self._troubles: Counter[tuple[str, str]] = Counter()

    def turned(self, turn: LoopTurn) -> None:
        with self._lock:
            self._turn = turn
            self._loops += 1
            self._seconds += turn.total_s
            self._decide_s += turn.decide_s
            for result in turn.results:
                key = (result.action.kind, result.action.pool or "")
                (self._troubles if result.trouble else self._actions)[key] += result.action.count or 1

    def failed(self, message: str) -> None:
        with self._lock:
            self._failures += 1

    def text(self) -> str:
        with self._lock:
            return families(PREFIX, self._families())

    def _families(self) -> Iterator[Family]:
        yield "leader", "gauge", "1 while this process works.", [((), float(self._is_leader()))]
        yield "loops_total", "counter", "Loops that were finished.", [((), self._loops)]
        yield "loop_failures_total", "counter", "Loops that failed.", [((), self._failures)]
        yield "loop_seconds_total", "counter", "Time spent in loops.", [((), self._seconds)]
        yield "decide_cpu_seconds_total", "counter", "CPU time spent on deciding.", [((), self._decide_s)]
        yield "actions_total", "counter", "Done; machines where a pool grew.", _counted(self._actions)
        yield "actions_failed_total", "counter", "Decided and not done.", _counted(self._troubles)
        if self._turn is not None:
            yield from _of_turn(self._turn)


def _counted(counter: Mapping[tuple[str, str], int]) -> list[LabelledValue]:
    return [((("kind", kind), ("pool", pool)), float(count)) for (kind, pool), count in sorted(counter.items())]


def _of_turn(turn: LoopTurn) -> Iterator[Family]:
    plan, snapshot = turn.plan, turn.snapshot
    states = Counter((node.pool or "", node.state) for node in plan.nodes)
    yield "last_loop_timestamp_seconds", "gauge", "When the last loop was.", [((), turn.now)]
    yield (
        "nodes",
        "gauge",
        "Nodes by pool and state.",
        [((("pool", pool), ("state", state)), count) for (pool, state), count in sorted(states.items())],
    )
    by_pool: list[tuple[Labels, PoolNote]] = [((("pool", note.pool),), note) for note in plan.pools]
    yield (
        "machines",
        "gauge",
        "Machines, booting ones too.",
        [(labels, pool_note.size) for labels, pool_note in by_pool],
    )
    yield "machines_coming", "gauge", "Machines on their way.", [(labels, note.coming) for labels, note in by_pool]
    limits: list[LabelledValue] = [((("pool", pool.name),), float(pool.max)) for pool in snapshot.pools]
    yield "machines_max", "gauge", "What the pools file allows.", limits
    prices = {pool.name: pool.price for pool in snapshot.pools}
    costs = [(labels, note.size * prices.get(note.pool, 0.0)) for labels, note in by_pool]
    yield "price_per_hour", "gauge", "Of all machines of the pool.", costs
    waiting = Counter("run" if pending_item.run is not None else "pod" for pending_item in plan.waiting)
    served = Counter("run" if item.run is not None else "pod" for item in plan.waiting if item.expected is not None)
    kinds = ("pod", "run")
    yield "waiting", "gauge", "Who waits for a node.", [((("kind", kind),), waiting[kind]) for kind in kinds]
    yield (
        "waiting_served",
        "gauge",
        "Those for whom machines are on their way.",
        [((("kind", kind),), served[kind]) for kind in kinds],
    )
    yield from _of_backoffs(by_pool)


def _of_backoffs(pools: list[tuple[Labels, PoolNote]]) -> Iterator[Family]:
    refused: list[LabelledValue] = []
    until: list[LabelledValue] = []
    for labels, note in pools:
        for window in note.backoffs:
            where = (*labels, ("zone", window.zone or ""), ("kind", window.kind))
            refused.append((where, float(window.count)))
            until += [(where, window.until)] if window.until is not None else []
    yield (
        "machines_ordered",
        "gauge",
        "Machines that are no node yet.",
        [(labels, pool_note.ordered) for labels, pool_note in pools],
    )
    yield "refusals", "gauge", "Refusals in a row that are in backoff.", refused
    yield "backoff_until_timestamp_seconds", "gauge", "When the pool is asked again.", until
    off: list[LabelledValue] = [
        (labels, float(any(backoff.until is None for backoff in note.backoffs))) for labels, note in pools
    ]
    yield "pool_off", "gauge", "1: not asked until something changes.", off


def serve(port: int, metrics: Metrics, checks: Mapping[str, Check]) -> ThreadingHTTPServer:
    """GET /metrics, and `checks`: path -> what is wrong. Port 0: any free one."""
    return probe_server.serve(port, checks, option="--metrics-port", pages={"/metrics": TextPage(metrics.text, TEXT)})
