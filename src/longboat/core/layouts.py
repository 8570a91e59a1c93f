"""The Layout: a Job laid out over nodes, with the environment every rank will see. Pure.

An engine says where the nodes are (`NodeSite`); this module says what runs there. The same Job and Sites give the same
Layout on every engine. The variables themselves are in `variables`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

from longboat.core.commands import simple_commands
from longboat.core.errors import InternalError
from longboat.core.frameworks import command_notices, mpirun_processes, names_mpirun, starter_of
from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.core.jobs import Command, Job, Role, Value
from longboat.core.variables import (
    SCRUBBED,
    NodeSeat,
    RankWorld,
    RunFacts,
    check_sizes,
    cluster_text,
    env_notices,
    is_loopback,
    node_env,
    rank_env,
    scrubbed,
)

__all__ = [
    "SCRUBBED",
    "Layout",
    "NodeLayout",
    "RankLayout",
    "NodeSite",
    "Starter",
    "lay_out",
    "notices",
    "ports_needed",
    "scrubbed",
]

Starter = Literal["longboat", "torchrun", "mpirun", "follower"]
"""Who starts the ranks of a node: the launcher itself, torchrun, mpirun (on the first node), or a remote mpirun."""

_PLAIN_COMMAND = lazy_pattern(r"[\w@%+=:,./ -]+")


class NodeSite(Value, frozen=True):
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


def lay_out(job: Job, *, run: str, uid: str, attempt: int, sites: Sequence[NodeSite]) -> Layout:
    """Lay the job out over the sites, one per node, roles in their order."""
    _check_sites(job, sites)
    addresses = tuple(site.address for site in sites)
    world_size = job.ranks
    facts = RunFacts(
        run=run,
        uid=uid,
        attempt=attempt,
        world_size=world_size,
        addresses=addresses,
        addresses_text=",".join(addresses),
        addresses_lines="\n".join(addresses),
        cluster=cluster_text(job, [(site.address, site.ports) for site in sites]),
        is_loopback=is_loopback(addresses),
    )
    check_sizes(facts)
    starters = [starter_of(job.framework, role.run) for role in job.roles]
    mpi_command = _mpi_command([role for role, starter in zip(job.roles, starters) if starter == "mpirun"])
    nodes: list[NodeLayout] = []
    for seat, starter in zip(_seats(job, starters, sites), _per_node(job, starters)):
        site = sites[seat.node_rank]
        nodes.append(_node(seat, site, facts, _node_starter(starter, seat), mpi_command))
    return Layout(run=run, uid=uid, attempt=attempt, world_size=world_size, nodes=tuple(nodes))


def notices(job: Job) -> tuple[str, ...]:
    """What the user should know about how commands, numbers and variables of the job fit together; stops nothing."""
    return command_notices(job) + env_notices(job)


def _node(seat: NodeSeat, site: NodeSite, facts: RunFacts, starter: Starter, mpi_command: Command | None) -> NodeLayout:
    command = mpi_command if starter == "mpirun" and mpi_command is not None else seat.role.run
    return NodeLayout(
        role=seat.role.name,
        index=seat.node_index,
        node_rank=seat.node_rank,
        address=site.address,
        ports=site.ports,
        starter=starter,
        command=command,
        env=node_env(seat, facts, starter),
        ranks=tuple(
            RankLayout(rank=seat.first_rank + local, local_rank=local, env=rank_env(seat, facts, starter, local))
            for local in range(seat.role.procs)
        ),
    )


def _seats(job: Job, starters: Sequence[str], sites: Sequence[NodeSite]) -> list[NodeSeat]:
    worlds = {starter: _world(job, starters, starter, sites) for starter in set(starters)}
    seats: list[NodeSeat] = []
    nodes_seen = dict.fromkeys(worlds, 0)
    ranks_seen = dict.fromkeys(worlds, 0)
    first_rank = 0
    for role, starter in zip(job.roles, starters):
        for index in range(role.nodes):
            seats.append(
                NodeSeat(
                    job=job,
                    role=role,
                    node_index=index,
                    node_rank=len(seats),
                    world_node_rank=nodes_seen[starter],
                    first_rank=first_rank,
                    world_first_rank=ranks_seen[starter],
                    ports=sites[len(seats)].ports,
                    world=worlds[starter],
                )
            )
            nodes_seen[starter] += 1
            ranks_seen[starter] += role.procs
            first_rank += role.procs
    return seats


def _world(job: Job, starters: Sequence[str], starter: str, sites: Sequence[NodeSite]) -> RankWorld:
    """All nodes of one starter meet at the first of them: an evaluator beside a torchrun role is a world of its own."""
    roles = [role for role, its_starter in zip(job.roles, starters) if its_starter == starter]
    first = next(position for position, its_starter in enumerate(_per_node(job, starters)) if its_starter == starter)
    return RankWorld(
        address=sites[first].address,
        port=sites[first].ports[0],
        nodes=sum(role.nodes for role in roles),
        size=sum(role.nodes * role.procs for role in roles),
        hosts=",".join(f"{role.name}-{index}:{_slots(role, roles)}" for role in roles for index in range(role.nodes)),
    )


def _slots(role: Role, roles: Sequence[Role]) -> int:
    """Processes that mpirun may start on a node. On a lone node it may start as many as its own command says."""
    is_alone = len(roles) == 1 and role.nodes == 1
    return max(role.procs, mpirun_processes(role.run) or 0) if is_alone else role.procs


def _per_node(job: Job, starters: Sequence[str]) -> list[str]:
    return [starter for role, starter in zip(job.roles, starters) for _ in range(role.nodes)]


def _node_starter(starter: str, seat: NodeSeat) -> Starter:
    if starter == "mpirun":
        return "mpirun" if seat.world_node_rank == 0 else "follower"
    return "torchrun" if starter == "torchrun" else "longboat"


def _mpi_command(roles: Sequence[Role]) -> Command | None:
    """The one mpirun of the run: the first role's own, or one that starts every role's command on its nodes."""
    if not roles or names_mpirun(roles[0].run):
        return None
    words: list[str] = ["mpirun"]
    for role in roles:
        separator = [":"] if len(words) > 1 else []
        words += [*separator, "-np", str(role.nodes * role.procs), *_program(role.run)]
    return tuple(words) if isinstance(roles[0].run, tuple) else shlex.join(words)


def _program(command: Command) -> tuple[str, ...]:
    """A command as words for mpirun, which knows no shell and takes a lone colon for its own."""
    if isinstance(command, tuple):
        return command if ":" not in command else ("/bin/sh", "-c", shlex.join(command))
    words = tuple(command.split())
    if _PLAIN_COMMAND.fullmatch(command) and ":" not in words and simple_commands(command) == [words]:
        return words
    return ("/bin/sh", "-c", command)


def _check_sites(job: Job, sites: Sequence[NodeSite]) -> None:
    needed = ports_needed(job)
    if len(sites) != len(needed):
        raise InternalError(f"the job has {len(needed)} nodes but {len(sites)} sites were given")
    for position, (site, ports) in enumerate(zip(sites, needed)):
        if len(site.ports) < ports:
            raise InternalError(f"node {position} needs {ports} ports but was given {len(site.ports)}")
