"""The training of an episode, and what its ranks wrote down about themselves beside their run.

A rank notes with a sync what it has printed once it is printed, stands still at the step of the episode's blow until it
is let go, and holds a lock as long as it lives, so that two of one rank are seen.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from storm_plan import Episode

TRAINER = """
import fcntl, hashlib, json, os, sys, time
import longboat
folder, steps, every = os.environ["WITNESS"], int(os.environ["STEPS"]), int(os.environ["EVERY"])
rank, attempt = int(os.environ["RANK"]), int(os.environ["LONGBOAT_ATTEMPT"])
holds = json.loads(os.environ["HOLDS"])
side = os.open(f"{folder}/rank-{attempt}-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

def note(*words):
    os.write(side, (" ".join(map(str, words)) + "\\n").encode())
    os.fsync(side)

lock = open(f"{folder}/lock-{rank}", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("overlap")
begin = 0
if longboat.resume_from():
    text = open(os.path.join(longboat.resume_from(), "state.json")).read()
    state = json.loads(text)
    if hashlib.sha256(state["data"].encode()).hexdigest() != state["sha256"]:
        note("damaged")
    begin = state["step"]
note("start", os.getpid(), begin)
for step in range(begin + 1, steps + 1):
    if holds.get(str(attempt)) == step:
        note("held", step)
        order = f"{folder}/order-{attempt}"
        while True:
            if os.path.exists(order):
                words = open(order).read().split()
                if words[0] == "all":
                    break
                if words[0] == str(rank):
                    sys.exit(int(words[1]))
            time.sleep(0.01)
    os.write(1, b"line %d\\n" % step)
    note("line", step)
    longboat.step(step, loss=1 / step)
    if step % every == 0:
        with longboat.checkpoint(step) as place:
            data = "weights %d " % step * 200
            sum_ = hashlib.sha256(data.encode()).hexdigest()
            open(os.path.join(place, "state.json"), "w").write(json.dumps({"step": step, "data": data, "sha256": sum_}))
    time.sleep(0.01)
note("end")
"""


def job_of(episode: Episode, witness: str, **more: object) -> dict[str, object]:
    holds = {} if episode.is_wild else {str(blow.attempt): blow.step for blow in episode.blows}
    variables = {
        "WITNESS": witness,
        "STEPS": str(episode.steps),
        "EVERY": str(episode.every),
        "HOLDS": json.dumps(holds),
    }
    return {
        "name": "train",
        "run": ["python", "train.py"],
        "nodes": episode.nodes,
        "procs": episode.procs,
        "grace": "3s",
        "env": variables,
        "checkpoints": {"keep": 100},
        "retries": {"count": episode.retries, "backoff": "0s", "restart": episode.restart},
        **({"gpus": episode.gpus} if episode.gpus else {}),
        **({"setup": "sleep 0.5"} if episode.seed % 4 == 0 else {}),
        **more,
    }


class Witness:
    """What ranks noted, read from outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)

    def notes(self, attempt: int, rank: int) -> list[list[str]]:
        try:
            text = (self.folder / f"rank-{attempt}-{rank}").read_text()
        except FileNotFoundError:
            return []
        return [line.split() for line in text.splitlines() if text.endswith("\n") or line != text.splitlines()[-1]]

    def said(self, attempt: int, rank: int, word: str) -> list[list[str]]:
        return [words for words in self.notes(attempt, rank) if words[0] == word]

    def printed(self, attempt: int, rank: int) -> list[int]:
        return [int(words[1]) for words in self.said(attempt, rank, "line")]

    def starts(self) -> list[tuple[int, int]]:
        """Attempt and rank of every start, one that came twice twice."""
        names = [path.name.split("-") for path in self.folder.glob("rank-*")]
        pairs = sorted((int(attempt), int(rank)) for _, attempt, rank in names)
        return [pair for pair in pairs for _ in self.said(*pair, "start")]

    def complaints(self) -> list[str]:
        bad = [(word, *pair) for pair in sorted(set(self.starts())) for word in ("overlap", "damaged")]
        return [f"rank {rank} of attempt {at}: {word}" for word, at, rank in bad if self.said(at, rank, word)]

    def stand_still(self, episode: Episode, attempt: int) -> bool:
        return all(self.said(attempt, rank, "held") for rank in range(episode.ranks))

    def order(self, attempt: int, text: str) -> None:
        draft = self.folder / f".order-{attempt}"
        draft.write_text(text)
        os.rename(draft, self.folder / f"order-{attempt}")


class NeverHappened(Exception):
    """Something that must happen was waited for in vain."""


def until(holds: Callable[[], object], about: str, within_s: float = 240.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            raise NeverHappened(about)
        time.sleep(0.03)
