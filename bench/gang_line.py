"""A gang's line with 10, 100 and 1,000 real members: the barrier, a failure that reaches all, a stop that reaches all.

Node 0 is a process of its own, the other members share a few: each has its membership, channel and connection over TCP,
as in a pod, and no ranks. Times are those of the last member, from one clock of this machine.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import resource
import secrets
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from longboat.launcher.gang.follower import GangFollower
from longboat.launcher.gang.membership import GangLeader
from longboat.launcher.node.loop import POLLIN, EventLoop

SIZES = (10, 100, 1000)
TIMES = 3
PROCESSES = 4
RANKS = 8
LIMIT_S = 120.0


class SharedLoop:
    """The part of one member in a loop of many: timers have names of their own, and it looks after its own turns."""

    def __init__(self, loop: EventLoop, name: str) -> None:
        self.loop, self.name = loop, name
        self.unwatch, self.turn = loop.unwatch, loop.turn
        self.on_turn: Callable[[], None] = lambda: None

    def _turned(self, callback: Callable[[], object]) -> Callable[[], object]:
        return lambda: (callback(), self.on_turn())

    def watch(self, descriptor: int, callback: Callable[[], object], events: int = POLLIN) -> None:
        self.loop.watch(descriptor, self._turned(callback), events)

    def after(self, name: object, seconds: float, callback: Callable[[], object]) -> None:
        self.loop.after((self.name, name), seconds, self._turned(callback))

    def cancel(self, name: object) -> None:
        self.loop.cancel((self.name, name))


def state_of(loop: Any, index: int, nodes: int, port: int, token: str) -> Any:
    """What a membership asks of its launcher."""
    plan = SimpleNamespace(
        node=f"worker-{index}", peers=[{"node": f"worker-{each}", "address": "127.0.0.1"} for each in range(nodes)],
        deciding=[f"worker-{each}" for each in range(nodes)], grace_s=30.0, line_lost_s=60.0, line_port=port,
        line_token_file=token, address="127.0.0.1", run_timeout_s=None, wait_timeout_s=LIMIT_S, resume_from=None,
        restart=None, again=None, attempt=0, ends_together=False,
    )  # fmt: skip
    return SimpleNamespace(
        loop=loop, plan=plan, ranks=[], failure=None, sender=None, is_over=False, say=print, refused=print
    )


def raise_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def members(indices: list[int], nodes: int, port: int, token: str, wire: Any) -> None:
    """Some members of the gang in this process; tells when all of them have heard each order."""
    raise_limit()
    loop, heard = EventLoop(), {"go": 0, "end": 0}

    def obey(order: dict[str, Any]) -> None:
        heard[order["do"]] += 1
        if heard[order["do"]] == len(indices):
            wire.send((order["do"], time.monotonic()))

    made: dict[int, GangFollower] = {}
    for index in indices:
        state = state_of(SharedLoop(loop, str(index)), index, nodes, port, token)
        made[index] = GangFollower(state, obey, lambda reason: wire.send(("lost", reason)))
    for follower in made.values():
        follower.ready()
    loop.watch(wire.fileno(), lambda: serve(wire, made))
    while True:
        loop.turn()


def serve(wire: Any, made: dict[int, GangFollower]) -> None:
    """Rank 0 of this member fails now."""
    index = wire.recv()
    if index is None:
        os._exit(0)
    report = {"rank": index * RANKS, "exit_code": 3, "cause": "exit", "ended_by": None, "message": "exit code 3"}
    wire.send(("failed", time.monotonic()))
    made[index].tell({"is": "report", "report": report, "age_s": 0.0})


class MeasuredGang:
    def __init__(self, nodes: int) -> None:
        self.nodes, self.loop = nodes, EventLoop()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        file = tempfile.NamedTemporaryFile("w", suffix=".token")
        file.write(secrets.token_hex(16))
        file.flush()
        self.token = file
        self.events: list[tuple[str, float]] = []
        self.own: dict[str, float] = {}
        self.leader = GangLeader(state_of(self.loop, 0, nodes, self.port, file.name), self.obey)
        self.wires: list[Any] = []
        self.began = time.monotonic()
        count = min(PROCESSES, nodes - 1)
        for number in range(count):
            mine, theirs = multiprocessing.Pipe()
            indices = list(range(1 + number, nodes, count))
            process = multiprocessing.get_context("fork").Process(
                target=members, args=(indices, nodes, self.port, file.name, theirs), daemon=True
            )
            process.start()
            self.wires.append(mine)
            self.loop.watch(mine.fileno(), partial(self.note, mine))

    def note(self, wire: Any) -> None:
        self.events.append(wire.recv())

    def obey(self, order: dict[str, Any]) -> None:
        self.own[order["do"]] = time.monotonic()

    def until(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.nodes} nodes: it did not happen; {self.events[-3:]}")
            self.loop.after("bench", 0.5, lambda: None)
            self.loop.turn()

    def last(self, word: str) -> float:
        self.until(lambda: sum(name == word for name, _ in self.events) == len(self.wires) and word in self.own)
        return max(self.own[word], *(at for name, at in self.events if name == word))

    def come_together(self) -> tuple[float, float]:
        """Seconds until all have connected, and from then to the last that may start."""
        coordinator = self.leader.coordinator
        self.until(lambda: len(coordinator.missing()) == 1)
        ready = time.monotonic()
        self.leader.ready()
        return ready - self.began, self.last("go") - ready

    def fail(self) -> float:
        index = self.nodes - 1
        self.wires[(index - 1) % len(self.wires)].send(index)
        self.until(lambda: any(name == "failed" for name, _ in self.events))
        failed = next(at for name, at in self.events if name == "failed")
        # Who failed is not told to end; it has heard of it first.
        self.until(lambda: "end" in self.own)
        others = [wire for number, wire in enumerate(self.wires) if number != (index - 1) % len(self.wires)]
        self.until(lambda: sum(name == "end" for name, _ in self.events) >= len(others))
        return max(self.own["end"], *(at for name, at in self.events if name == "end"), failed) - failed

    def stop(self) -> float:
        began = time.monotonic()
        self.leader.stop(5.0)
        return self.last("end") - began

    def close(self) -> None:
        for wire in self.wires:
            wire.send(None)
        self.leader._listener.close()  # type: ignore[union-attr]
        self.token.close()


def figures_of(nodes: int) -> dict[str, float]:
    connect, barrier, failure, stop, cpu = [], [], [], [], []
    for _ in range(TIMES):
        before = time.process_time()
        gang = MeasuredGang(nodes)
        together = gang.come_together()
        connect.append(together[0])
        barrier.append(together[1])
        failure.append(gang.fail())
        cpu.append(time.process_time() - before)
        gang.close()
        gang = MeasuredGang(nodes)
        gang.come_together()
        stop.append(gang.stop())
        gang.close()
    named = {"all connected": connect, "barrier": barrier, "failure": failure, "stop": stop, "CPU of node 0": cpu}
    return {name: statistics.median(values) for name, values in named.items()}


def exponent(few: float, many: float, times: float) -> float:
    return math.log(max(many, 1e-6) / max(few, 1e-6)) / math.log(times)


def measure() -> dict[str, float]:
    raise_limit()
    by_size = {nodes: figures_of(nodes) for nodes in SIZES}
    figures = {f"{name}, {nodes:,} nodes, s": by_size[nodes][name] for name in by_size[SIZES[0]] for nodes in SIZES}
    first, last = SIZES[1], SIZES[-1]
    for name in by_size[first]:
        figures[f"{name}: exponent"] = exponent(by_size[first][name], by_size[last][name], last / first)
    return figures


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
