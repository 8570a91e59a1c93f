"""Random trainings and what is done to them, drawn from a seed, and what must become of each. Pure.

An episode is one training. Each of its attempts but the last meets one blow at a known step: every rank stands still
there until the blow has fallen, so that the model says exactly what follows: exit code, first failing rank, the lines
of every rank, the checkpoint that the next attempt resumes from. In a wild episode blows fall at any moment, and the
model says only what may follow.
"""

from __future__ import annotations

import random
from typing import NamedTuple

WILD = 0.25
"""Share of the episodes whose blows fall at any moment."""
SIGKILLED, LOST, STOPPED = 137, 208, 143
SETUP_FAILED = 209
EFFECTS = {
    "rank": (SIGKILLED,),
    "launcher": (LOST,),
    "supervisor": (LOST,),
    "pod": (LOST,),
    "any": (SIGKILLED, LOST, SETUP_FAILED),
}
"""Exit codes that an attempt may end with when one of these was killed."""
COMMANDS = (
    ("ps", "-a"), ("status", "train"), ("logs", "train"), ("logs", "-f", "train"), ("explain", "train"),
    ("wait", "train"), ("checkpoint", "ls", "train"), ("metrics", "train"), ("prune", "--keep", "100"),
    ("top", "--once"), ("cp", "train:train.py", "copied.py"), ("exec", "train", "--", "true"),
)  # fmt: skip
"""Commands that are killed while a training goes on, and that change nothing about it."""


class Blow(NamedTuple):
    """What befalls an attempt. `step`: where its ranks wait for it. `at`: which rank, or node."""

    kind: str
    attempt: int
    step: int = 0
    at: int = 0
    code: int = 0


class KilledCommand(NamedTuple):
    """A command that is killed so long after its start, while this attempt stands still."""

    words: tuple[str, ...]
    attempt: int
    delay: float
    """As a share of the time that a command takes here."""


class Disturbance(NamedTuple):
    """A part that is killed and started again while this attempt stands still; the training goes on."""

    kind: str
    attempt: int


class Episode(NamedTuple):
    seed: int
    nodes: int
    procs: int
    gpus: int
    retries: int
    restart: str
    steps: int
    every: int
    """Steps from one checkpoint to the next."""

    blows: tuple[Blow, ...]
    commands: tuple[KilledCommand, ...]
    disturbances: tuple[Disturbance, ...]
    is_wild: bool
    is_stopped: bool

    @property
    def ranks(self) -> int:
        return self.nodes * self.procs


class ExpectedAttempt(NamedTuple):
    """`lines`: the steps that each rank prints, first and last; none where the last is below the first."""

    resumed: int
    last: int
    exit_code: int
    rank: int | None


class Expected(NamedTuple):
    phase: str
    exit_code: int
    attempts: tuple[ExpectedAttempt, ...]


def draw(seed: int, kinds: tuple[str, ...], parts: tuple[str, ...] = (), *, most_ranks: int = 4) -> Episode:
    """The episode of this seed. `kinds`: of blows that an engine knows; `parts`: what may be killed besides."""
    chance = random.Random(seed)
    nodes, procs = chance.choice([(n, p) for n in (1, 2, 3) for p in (1, 2) if n * p <= most_ranks])
    gpus = chance.choice((0, 0, 1)) if nodes <= 2 else 0
    steps, every = chance.randint(6, 14), chance.randint(1, 4)
    retries = chance.choice((0, 1, 2, 3))
    is_wild = chance.random() < WILD
    falls = chance.randint(0, retries + 1)
    blows: list[Blow] = []
    newest = 0
    for attempt in range(falls):
        if newest + 1 > steps:
            break
        step = chance.randint(newest + 1, steps)
        kind = chance.choice(kinds)
        at = chance.randrange(nodes * procs)
        blows.append(Blow(kind, attempt, step, at, chance.choice((1, 3, 42, 77)) if kind == "exit" else 0))
        newest = max(newest, (step - 1) // every * every)
    commands = tuple(
        KilledCommand(chance.choice(COMMANDS), chance.randint(0, max(0, len(blows) - 1)), chance.random() * 1.2)
        for _ in range(chance.randint(0, 3) if blows else 0)
    )
    disturbances = tuple(
        Disturbance(chance.choice(parts), chance.randrange(len(blows)))
        for _ in range(chance.randint(0, 2) if blows and parts else 0)
    )
    is_stopped = bool(blows) and not is_wild and chance.random() < 0.2
    return Episode(
        seed, nodes, procs, gpus, retries, chance.choice(("in-place", "in-place", "new")), steps, every,
        tuple(blows), commands, disturbances, is_wild, is_stopped,
    )  # fmt: skip


def takes_pods(episode: Episode) -> bool:
    """Whether a pod is deleted by force: what it had printed goes with it, unless its storage had it already."""
    return any(blow.kind == "pod" for blow in episode.blows)


def code_of(blow: Blow) -> int:
    return {"exit": blow.code, "rank": SIGKILLED}.get(blow.kind, LOST)


def expected(episode: Episode) -> Expected:
    """What must become of an episode whose blows fall where they were meant to. The last one may be a stop instead."""
    attempts: list[ExpectedAttempt] = []
    newest = 0
    for blow in episode.blows:
        is_stop = episode.is_stopped and blow is episode.blows[-1]
        rank = blow.at if blow.kind in ("exit", "rank") else None
        attempts.append(ExpectedAttempt(newest, blow.step - 1, STOPPED if is_stop else code_of(blow), rank))
        newest = max(newest, (blow.step - 1) // episode.every * episode.every)
        if is_stop:
            return Expected("stopped", STOPPED, tuple(attempts))
        if blow.attempt == episode.retries:
            return Expected("failed", code_of(blow), tuple(attempts))
    return Expected("succeeded", 0, (*attempts, ExpectedAttempt(newest, episode.steps, 0, None)))


def allowed_codes(episode: Episode, fallen: list[str], has_ended_well: bool) -> set[int]:
    """Of a wild episode: `fallen` are the kinds that hit somebody, `has_ended_well`: all ranks came to their end."""
    effects = {code for kind in fallen for code in EFFECTS.get(kind, ())}
    hits = sum(kind in EFFECTS for kind in fallen)
    if hits <= episode.retries:
        return {0}
    return effects | {0} if has_ended_well or hits > 1 or "any" in fallen else effects
