"""The environment variables a rank sees, framework by framework. Pure; docs/environment.md is the same in words.

This module knows names and values. Which node and rank there are is decided in `layouts`; what a machine adds (folders,
GPU ids, paths of files) comes from the engine and the launcher.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from longboat.core.elastic.sizes import ranks_before
from longboat.core.errors import Refused
from longboat.core.jobs import EVALUATOR_ROLES, Job, Role, Scalar

SCRUBBED: tuple[str, ...] = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "PET_*", "TORCHELASTIC_*",
    "TF_CONFIG", "POD_NAME", "CLUSTER_CONFIG", "JAX_COORDINATOR_ADDRESS", "JAX_LOCAL_DEVICE_IDS", "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID", "OMPI_*", "PRTE_*", "PMIX_*", "PMI_*", "I_MPI_*", "HYDRA_*", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_*", "SLURM_*", "SLURMD_*", "SKYPILOT_*", "DSTACK_*", "LONGBOAT_*",
)  # fmt: skip
"""Names (and, with a star, beginnings of names) that say which process of which job this is: never inherited."""

_KEPT = ("LONGBOAT_HOME",)  # a command of ours inside a rank finds the same runs

TRACE_STEPS = "LONGBOAT_TRACE_STEPS"
"""Set by a drill, for a job: ranks write a line for each step."""

_IDENTITY = frozenset(
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK")
    + ("ROLE_WORLD_SIZE", "PET_NODE_RANK", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES")
)
_IDENTITY_PREFIXES = ("LONGBOAT_", "OMPI_COMM_WORLD_")
_TENSORFLOW_IDENTITY = frozenset(("TF_CONFIG", "POD_NAME", "CLUSTER_CONFIG"))

VARIABLE_LIMIT = 131_071
"""Bytes of NAME=value that Linux passes to a program in one variable."""

JAX_PLAIN_URI = "0.0;tcp://0.0.0.0:0"
"""Makes an argument-less jax.distributed.initialize() read OMPI_COMM_WORLD_*; the coordinator is given apart."""


class RankWorld(NamedTuple):
    """The nodes whose ranks meet: all those with the same starter."""

    address: str
    port: int
    nodes: int
    size: int
    hosts: str  # "worker-0:2,worker-1:2": node and its processes


class NodeSeat(NamedTuple):
    """One node as its variables see it."""

    job: Job
    role: Role
    node_index: int  # in its role
    node_rank: int  # in the run
    world_node_rank: int  # in its World
    first_rank: int  # in the run
    world_first_rank: int  # in its World
    ports: tuple[int, ...]
    world: RankWorld


class RunFacts(NamedTuple):
    """What is the same for every rank of the run, computed once and shared."""

    run: str
    uid: str
    attempt: int
    world_size: int
    addresses: tuple[str, ...]
    addresses_text: str  # separated by commas
    addresses_lines: str  # separated by newlines
    cluster: str  # TensorFlow's cluster as JSON, which is a Python literal too; empty for other frameworks
    is_loopback: bool


def is_scrubbed(name: str) -> bool:
    """Whether a variable of the submitter or of the machine must not reach a rank."""
    if name in _KEPT:
        return False
    return any(name.startswith(entry[:-1]) if entry.endswith("*") else name == entry for entry in SCRUBBED)


def scrubbed(environment: Iterable[str]) -> list[str]:
    """The names of an environment that an engine must unset before a rank inherits it, sorted."""
    return sorted(name for name in environment if is_scrubbed(name))


def is_identity(job: Job, name: str) -> bool:
    """Whether a variable says which process this is, so that a job's `env` cannot set it."""
    if job.framework == "tensorflow" and name in _TENSORFLOW_IDENTITY:
        return True
    return name in _IDENTITY or (name.startswith(_IDENTITY_PREFIXES) and name != TRACE_STEPS)


def env_notices(job: Job) -> tuple[str, ...]:
    """One line for every variable of the job's `env` that is not passed on."""
    return tuple(
        f"role {role.name}: env {name} is not passed on: Longboat numbers the ranks"
        for role in job.roles
        for name in sorted(role.env)
        if is_identity(job, name)
    )


def param_variable(name: str) -> str:
    """`LONGBOAT_PARAM_WEIGHT_DECAY` of `weight-decay`."""
    return f"LONGBOAT_PARAM_{re.sub('[.-]', '_', name).upper()}"


def param_variables(params: Mapping[str, Scalar]) -> dict[str, str]:
    """A variable for each parameter, and one with all of them as JSON."""
    if not params:
        return {}
    import json  # not at the start: most jobs need none

    each = {param_variable(name): show_param(value) for name, value in params.items()}
    return {**each, "LONGBOAT_PARAMS": json.dumps(dict(params))}


def show_param(value: Scalar) -> str:
    """As a command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def host_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def is_loopback(addresses: Sequence[str]) -> bool:
    return all(address.startswith("127.") or address in ("::1", "localhost") for address in addresses)


def cluster_text(job: Job, sites: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    """TensorFlow's cluster: role to `host:port` of every task, the evaluator left out."""
    if job.framework != "tensorflow":
        return ""
    import json

    cluster: dict[str, list[str]] = {}
    places = iter(sites)
    for role in job.roles:
        tasks: list[str] = []
        for _ in range(role.nodes):
            address, ports = next(places)
            tasks += [host_port(address, port) for port in ports[1 : 1 + role.procs]]
        if role.name not in EVALUATOR_ROLES:
            cluster[role.name] = tasks
    return json.dumps(cluster)


def node_env(seat: NodeSeat, facts: RunFacts, starter: str) -> dict[str, str]:
    """What every process of a node sees: defaults, then the job's own `env`, then what says who the node is."""
    own = {name: value for name, value in seat.role.env.items() if not is_identity(seat.job, name)}
    return {**_defaults(seat, facts, starter, own), **own, **_node_identity(seat, facts, starter)}


def rank_env(seat: NodeSeat, facts: RunFacts, starter: str, local_rank: int) -> dict[str, str]:
    """What only one rank sees. torchrun and mpirun number their processes themselves."""
    own_rank = str(seat.first_rank + local_rank)
    if starter != "longboat":
        return {"LONGBOAT_RANK": own_rank} if starter == "torchrun" else {}
    rank = str(seat.world_first_rank + local_rank)
    env = {
        "LONGBOAT_RANK": own_rank,
        "LONGBOAT_LOCAL_RANK": str(local_rank),
        "LONGBOAT_PORT": str(seat.ports[1 + local_rank]),
        "RANK": rank,
        "LOCAL_RANK": str(local_rank),
    }
    if seat.job.framework == "tensorflow":
        import json

        task = seat.node_index * seat.role.procs + local_rank
        task_json = json.dumps({"type": seat.role.name, "index": task})
        env["TF_CONFIG"] = f'{{"cluster": {facts.cluster}, "task": {task_json}}}'
        env["POD_NAME"] = f"{seat.role.name}-{task}-{facts.uid}"
    elif seat.job.framework == "jax":
        env.update(OMPI_COMM_WORLD_RANK=rank, OMPI_COMM_WORLD_LOCAL_RANK=str(local_rank))
        devices = _jax_devices(seat.role, local_rank)
        if devices and "JAX_LOCAL_DEVICE_IDS" not in seat.role.env:
            env["JAX_LOCAL_DEVICE_IDS"] = devices
    return env


def check_sizes(facts: RunFacts) -> None:
    """Refuse a run whose shared lists would not fit into a variable, before a kernel does it with E2BIG."""
    for name, text in (("LONGBOAT_NODE_ADDRESSES", facts.addresses_text), ("TF_CONFIG", facts.cluster)):
        size = len(text) + 100  # the name and, for TF_CONFIG, the task
        if size > VARIABLE_LIMIT:
            raise Refused(
                f"{name} would take {size} bytes and a program can be given at most {VARIABLE_LIMIT} in one variable",
                hint=f"at this length of addresses about {len(facts.addresses) * VARIABLE_LIMIT // size} nodes fit",
            )


def _defaults(seat: NodeSeat, facts: RunFacts, starter: str, own: Mapping[str, str]) -> dict[str, str]:
    address = own.get("MASTER_ADDR", seat.world.address)
    port = own.get("MASTER_PORT", str(seat.world.port))
    env = {"MASTER_ADDR": address, "MASTER_PORT": port}
    if starter == "torchrun":
        env.update(
            PET_NNODES=str(seat.world.nodes),
            PET_NPROC_PER_NODE=str(seat.role.procs),
            PET_MASTER_ADDR=address,
            PET_MASTER_PORT=port,
            PET_LOCAL_ADDR=facts.addresses[seat.node_rank],
            TORCH_ELASTIC_SHUTDOWN_TIMEOUT=str(max(1, round(seat.job.grace_s))),
        )
    if starter in ("mpirun", "follower"):
        env.update(_open_mpi(facts))
    if seat.job.framework == "jax":
        env["JAX_COORDINATOR_ADDRESS"] = host_port(seat.world.address, seat.world.port)
        if starter == "longboat":
            env["OMPI_MCA_orte_hnp_uri"] = JAX_PLAIN_URI
    env.update(_aliases(seat, facts))
    return env


def _node_identity(seat: NodeSeat, facts: RunFacts, starter: str) -> dict[str, str]:
    env = {
        "LONGBOAT_RUN": facts.run,
        "LONGBOAT_RUN_UID": facts.uid,
        "LONGBOAT_ATTEMPT": str(facts.attempt),
        "LONGBOAT_JOB": seat.job.name,
        "LONGBOAT_FRAMEWORK": seat.job.framework,
        "LONGBOAT_ROLE": seat.role.name,
        "LONGBOAT_NODE": f"{seat.role.name}-{seat.node_index}",
        "LONGBOAT_NODE_RANK": str(seat.node_rank),
        "LONGBOAT_NODES": str(len(facts.addresses)),
        "LONGBOAT_NODE_ADDRESSES": facts.addresses_text,
        "LONGBOAT_GPUS_PER_NODE": str(seat.role.resources.gpus.count),
        "LONGBOAT_WORLD_SIZE": str(facts.world_size),
        **_elastic(seat.job),
        **param_variables(seat.job.params),
    }
    if starter == "longboat":
        env.update(
            WORLD_SIZE=str(seat.world.size),
            LOCAL_WORLD_SIZE=str(seat.role.procs),
            NODE_RANK=str(seat.world_node_rank),
        )
        if seat.job.framework == "tensorflow":
            env["CLUSTER_CONFIG"] = facts.cluster
        elif seat.job.framework == "jax":
            env["OMPI_COMM_WORLD_SIZE"] = str(seat.world.size)
    elif starter == "torchrun":
        env["PET_NODE_RANK"] = str(seat.world_node_rank)
    else:
        env["LONGBOAT_MPI_HOSTS"] = seat.world.hosts
    return env


def _open_mpi(facts: RunFacts) -> dict[str, str]:
    env = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",  # only the first node may ask the others to start something
    }
    if facts.is_loopback:
        env.update(
            OMPI_MCA_btl="self,tcp",  # nodes of one machine share /dev/shm, where the shared-memory transport collides
            OMPI_MCA_pml="ob1",
            OMPI_MCA_osc="pt2pt",
            OMPI_MCA_btl_tcp_if_include="127.0.0.0/8",
            OMPI_MCA_oob_tcp_if_include="127.0.0.0/8",
            OMPI_MCA_hwloc_base_binding_policy="none",  # else every node binds to the machine's first cores
        )
    return env


def _elastic(job: Job) -> dict[str, str]:
    """What tells a trainer that the number of ranks is another than in the attempt before, and whose its batch is."""
    before = ranks_before(job)
    env = {} if before is None else {"LONGBOAT_WORLD_SIZE_CHANGED": str(before)}
    return {**env, "LONGBOAT_BATCH": job.batch} if job.batch != "rank" else env


def _aliases(seat: NodeSeat, facts: RunFacts) -> dict[str, str]:
    env: dict[str, str] = {}
    gpus = str(seat.role.resources.gpus.count)
    if "skypilot" in seat.job.aliases:
        env.update(
            SKYPILOT_NODE_RANK=str(seat.node_rank),
            SKYPILOT_NODE_IPS=facts.addresses_lines,
            SKYPILOT_NUM_NODES=str(len(facts.addresses)),
            SKYPILOT_NUM_GPUS_PER_NODE=gpus,
            SKYPILOT_TASK_ID=f"{facts.run}-{facts.uid}",
        )
    if "dstack" in seat.job.aliases:
        env.update(
            DSTACK_NODE_RANK=str(seat.node_rank),
            DSTACK_NODES_NUM=str(len(facts.addresses)),
            DSTACK_NODES_IPS=facts.addresses_lines,
            DSTACK_MASTER_NODE_IP=facts.addresses[0],
            DSTACK_GPUS_PER_NODE=gpus,
            DSTACK_GPUS_NUM=str(seat.job.gpus),
        )
    return env


def _jax_devices(role: Role, local_rank: int) -> str:
    """The GPUs of one JAX process, by their number on the node: an equal share, shared ones when there are too few."""
    gpus = role.resources.gpus.count
    if gpus == 0:
        return ""
    share = gpus // role.procs
    if share == 0:
        return str(local_rank % gpus)
    return ",".join(str(device) for device in range(local_rank * share, (local_rank + 1) * share))
