"""Random trainings, killed at random, checked against a model after each. Prints a table, and every seed that failed.

python bench/reliability.py [--kills 1000 | --minutes 60] [--parallel 4] [--seed N]   on this machine
python bench/reliability.py --engine kubernetes|jobset|kueue [--clusters 2]           on test clusters of two nodes
python bench/reliability.py --replay SEED                                             one episode again

Clusters start from the testbed's cache: on a machine with no network that of `python -m testbed pack --profile ...`.
Exit code 1 if anything did not hold. What is checked: docs/reliability.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from storm_plan import Episode, draw

ENGINES = {"local": "storm_local", "kubernetes": "storm_pods", "jobset": "storm_pods", "kueue": "storm_pods"}

EVERY = 10
"""Trainings from one line of progress to the next."""


def vitals(pid: int) -> str:
    """Memory and open descriptors of a process."""
    try:
        kib = int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])
        return f"{kib / 1024:.0f} MiB, {len(os.listdir(f'/proc/{pid}/fd'))} descriptors"
    except (OSError, IndexError):
        return "gone"


class Tally:
    """What has been played so far."""

    def __init__(self, engine: Any, results: Path | None) -> None:
        self.engine, self.results = engine, results
        self.began = time.monotonic()
        self.kills: Counter[str] = Counter()
        self.failed: dict[int, list[str]] = {}
        self.episodes = 0
        self.lock = threading.Lock()

    def note(self, episode: Episode, kills: Counter[str], complaints: list[str]) -> None:
        with self.lock:
            self.episodes += 1
            self.kills += kills
            if complaints:
                self.failed[episode.seed] = complaints
                print(f"seed {episode.seed}: {episode}", *complaints, sep="\n    ", flush=True)
            if self.episodes % EVERY == 0:
                self.report()

    def report(self) -> None:
        """Also how whoever lives through all of it does: this process, which uses the engine, and the controller."""
        living = {"this process": os.getpid(), **self.engine.living()}
        states = "; ".join(f"{name}: {vitals(pid)}" for name, pid in living.items())
        took_s = time.monotonic() - self.began
        counts = f"{self.episodes} trainings, {self.kills.total()} kills, {len(self.failed)} wrong"
        print(f"{took_s:.0f} s: {counts}; {states}", flush=True)
        self.save(took_s)

    def save(self, took_s: float) -> None:
        if self.results is not None:
            counted = {"kills": dict(sorted(self.kills.items())), "trainings": self.episodes, "wrong": self.failed}
            half = self.results.with_name(f".{self.results.name}.half")
            half.write_text(json.dumps({"seconds": round(took_s), **counted}, indent=1))
            half.rename(self.results)

    def table(self, engine: str, seed: int) -> str:
        took_s = time.monotonic() - self.began
        self.save(took_s)
        lines = [f"| killed, {engine} | times |", "|---|---|"]
        lines += [f"| {kind} | {count} |" for kind, count in sorted(self.kills.items())]
        summary = f"{self.kills.total()} kills of {self.episodes} trainings in {took_s:.0f} s"
        return "\n".join([*lines, "", f"{summary}, {len(self.failed)} not as the model says; seed {seed}"])


def command_time(folder: Path) -> float:
    """How long a command takes on this machine now: kills of commands come as a share of it."""
    began = time.monotonic()
    environment = {**os.environ, "LONGBOAT_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "longboat", "ps"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - began


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=sorted(ENGINES), default="local")
    parser.add_argument("--kills", type=int, default=1000, help="until so many processes were killed")
    parser.add_argument("--minutes", type=float, default=None, help="for so long, however many that are")
    parser.add_argument("--clusters", type=int, default=1, help="of the Kubernetes engine, each with its share of them")
    parser.add_argument("--results", type=Path, default=None, metavar="FILE", help="counts and complaints as JSON")
    parser.add_argument("--parallel", type=int, default=4, help="trainings at a time")
    parser.add_argument("--seed", type=int, default=None, help="of the first training; the others follow from it")
    parser.add_argument("--replay", type=int, default=None, metavar="SEED", help="play this one training again")
    return parser.parse_args(words)


def leave(engine: Any, table: str) -> None:
    """Told to end: what was seen is told, and what the storm has made goes with it, whatever its players are at."""
    print(table, flush=True)
    engine.close()
    os._exit(143)


def storm(options: argparse.Namespace) -> int:
    engine: Any = importlib.import_module(ENGINES[options.engine])
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    engine.prepare(options.engine, options.clusters)
    tally = Tally(engine, options.results)
    signal.signal(signal.SIGTERM, lambda *_: leave(engine, tally.table(options.engine, seed)))
    ends = None if options.minutes is None else tally.began + options.minutes * 60
    seeds = random.Random(seed)
    root = Path(tempfile.mkdtemp(prefix="longboat-storm-"))
    command_s = command_time(root)
    print(f"seed {seed}, {options.parallel} at a time, a command takes {command_s:.2f} s", flush=True)

    def is_over() -> bool:
        with tally.lock:
            return bool(tally.kills.total() >= options.kills) if ends is None else time.monotonic() > ends

    def player() -> None:
        while not is_over():
            with tally.lock:
                number = options.replay if options.replay is not None else seeds.randrange(1 << 31)
            episode = draw(number, engine.KINDS, engine.PARTS)
            folder = Path(tempfile.mkdtemp(prefix=f"{number}-", dir=root))
            try:
                kills, complaints = engine.play(episode, folder, command_s)
            except Exception as error:  # the others go on; this one counts as wrong
                kills, complaints = Counter(), [f"{type(error).__name__}: {error}"]
            tally.note(episode, kills, complaints)
            if not complaints:
                shutil.rmtree(folder, ignore_errors=True)
            if options.replay is not None:
                return

    count = 1 if options.replay is not None else options.parallel
    with ThreadPoolExecutor(count) as players:
        for done in [players.submit(player) for _ in range(count)]:
            done.result()
    print(tally.table(options.engine, seed))
    if tally.failed:
        print(f"their folders are kept: {root}; again: python bench/reliability.py --replay SEED", file=sys.stderr)
    else:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(storm(parse()))
