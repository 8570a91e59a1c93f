"""Kills of a drill: `rank=1@step=200`, `node`, `launcher=worker-1`. Parsed and checked against the job. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from longboat.core.errors import NotFound, UsageError
from longboat.core.jobs import Job, Value
from longboat.core.words import listing

KILL = re.compile(r"(rank|node|launcher)(?:=([A-Za-z0-9-]{1,80}))?(?:@step=(\d{1,18}))?")
EXAMPLES = "rank=1@step=200, node, node=worker-1, launcher@step=50"
MOST = 20  # each is an attempt of the run


class Kill(Value, frozen=True):
    """What is killed, and when."""

    kind: Literal["rank", "node", "launcher"]
    rank: int  # whose step is waited for: it itself, or the first rank of the node
    node: str
    step: int | None = None  # None: after a checkpoint, as the reference shows

    def __str__(self) -> str:
        victim = f"rank {self.rank}" if self.kind == "rank" else f"{self.kind} {self.node}"
        return victim if self.step is None else f"{victim} at step {self.step}"


def parse_kills(words: Sequence[str], job: Job) -> list[Kill]:
    """Raises UsageError for what is not understood, NotFound for a rank or node that the job does not have."""
    if len(words) > MOST:
        raise UsageError(f"{len(words)} kills in one drill", hint=f"at most {MOST}")
    return [parse_kill(word, job) for word in words or ("rank=0",)]


def parse_kill(word: str, job: Job) -> Kill:
    match = KILL.fullmatch(word)
    if match is None:
        raise UsageError(f"--kill {word}: not understood", hint=f"for example {EXAMPLES}")
    kind, name, step = match.groups()
    nodes = nodes_of(job)
    if kind == "rank":
        if not (name or "0").isdecimal():
            raise UsageError(f"--kill {word}: a rank is a number", hint="rank=1@step=200")
        rank = int(name or 0)
        node = next((node for node, ranks in nodes.items() if rank in ranks), None)
        if node is None:
            hint = f"its ranks are 0 to {job.ranks - 1}" if job.ranks > 1 else "it has one rank, 0"
            raise NotFound(f"--kill {word}: {job.name} has no rank {rank}", hint=hint)
    else:
        node = name or writer_of(job)
        if node not in nodes:
            raise NotFound(f"--kill {word}: {job.name} has no node {node}", hint=f"nodes: {listing(list(nodes), 8)}")
        rank = nodes[node][0]
    return Kill(kind=kind, rank=rank, node=node, step=None if step is None else int(step))  # type: ignore[arg-type]


def nodes_of(job: Job) -> dict[str, range]:
    """Every node with its ranks."""
    nodes, first = {}, 0
    for role in job.roles:
        for index in range(role.nodes):
            nodes[f"{role.name}-{index}"] = range(first, first + role.procs)
            first += role.procs
    return nodes


def writer_of(job: Job) -> str:
    """The first node of the first role that decides success: that which writes the checkpoints."""
    role = job.ends[0] if job.ends else job.roles[0].name
    return f"{role}-0"
