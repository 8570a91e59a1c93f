"""The Layout: a Job laid out over nodes, with the environment every rank will see. Pure.

An engine says where the nodes are (`Site`); this module says what runs there. The same Job and Sites give the same
Layout on every engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from longboat.core.jobs import Command, Job, Value

Starter = Literal["longboat", "torchrun", "mpirun", "follower"]
"""Who starts the ranks of a node: the launcher itself, torchrun, mpirun (on the first node), or a remote mpirun."""


class Site(Value, frozen=True):
    """Where one node is: its address and the ports it may listen on, 1 + procs of them (coordinator first)."""

    address: str
    ports: tuple[int, ...]


class RankLayout(Value, frozen=True):
    rank: int  # unique in the run, counted over roles in their order
    local_rank: int
    env: dict[str, str]  # what only this rank sees


class NodeLayout(Value, frozen=True):
    role: str
    index: int  # within the role
    node_rank: int  # within the run
    address: str
    ports: tuple[int, ...]
    starter: Starter
    command: Command
    env: dict[str, str]  # what every process of the node sees
    ranks: tuple[RankLayout, ...]  # starter torchrun/mpirun: the ranks that the starter is going to start here

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


class Layout(Value, frozen=True):
    run: str
    uid: str
    attempt: int
    world_size: int
    nodes: tuple[NodeLayout, ...]


def ports_needed(job: Job) -> list[int]:
    """How many ports each node must be given, in the order of `lay_out`."""
    return [1 + role.procs for role in job.roles for _ in range(role.nodes)]


def lay_out(job: Job, *, run: str, uid: str, attempt: int, sites: Sequence[Site]) -> Layout:
    """Lay the job out over the sites, one per node, roles in their order."""
    raise NotImplementedError
