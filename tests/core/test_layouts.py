"""Job in, environment out: one named row per behaviour."""

from __future__ import annotations

import ast
import json
from typing import Any

import msgspec
import pytest

from longboat.core.errors import InternalError, Refused
from longboat.core.jobs import Command, Framework, Gpus, Job, Resources, Role
from longboat.core.layouts import Layout, NodeSite, lay_out, notices, ports_needed
from longboat.core.variables import is_scrubbed

RANK_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")


def role(name: str = "worker", run: Command = "python train.py", *, gpus: int = 0, **fields: Any) -> Role:
    return Role(name=name, run=run, resources=Resources(gpus=Gpus(count=gpus)), **fields)


def job(framework: Framework, *roles: Role, **fields: Any) -> Job:
    return Job(name="digits", framework=framework, roles=roles, **fields)


def laid(the_job: Job, prefix: str = "10.0.0.", attempt: int = 0) -> Layout:
    """Node i is at <prefix>i with ports 1000 * (i + 1), + 1, ..."""
    sites = [
        NodeSite(address=f"{prefix}{node}", ports=tuple(range(1000 * (node + 1), 1000 * (node + 1) + count)))
        for node, count in enumerate(ports_needed(the_job))
    ]
    return lay_out(the_job, run="digits-2", uid="u7", attempt=attempt, sites=sites)


def env_of(layout: Layout, rank: int) -> dict[str, str]:
    for node in layout.nodes:
        for each in node.ranks:
            if each.rank == rank:
                return {**node.env, **each.env}
    raise AssertionError(f"no rank {rank}")


Row = tuple[Job, int, dict[str, str], tuple[str, ...]]  # job, rank, variables it sees, variables it must not see

TWO_BY_TWO = {"nodes": 2, "procs": 2}
PS = (role("ps", nodes=1), role("worker", **TWO_BY_TWO), role("evaluator"))

ROWS: dict[str, Row] = {
    "plain, first rank": (
        job("none", role(**TWO_BY_TWO)),
        0,
        {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0"}
        | {"MASTER_ADDR": "10.0.0.0", "MASTER_PORT": "1000"},
        ("PET_NNODES", "TF_CONFIG", "POD_NAME", "JAX_COORDINATOR_ADDRESS", "OMPI_COMM_WORLD_RANK"),
    ),
    "plain, last rank": (
        job("none", role(**TWO_BY_TWO)),
        3,
        {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1"}
        | {"MASTER_ADDR": "10.0.0.0", "MASTER_PORT": "1000"},
        (),
    ),
    "Longboat's own": (
        job("none", role(**TWO_BY_TWO)),
        2,
        {"LONGBOAT_RUN": "digits-2", "LONGBOAT_RUN_UID": "u7", "LONGBOAT_ATTEMPT": "0", "LONGBOAT_JOB": "digits"}
        | {"LONGBOAT_ROLE": "worker", "LONGBOAT_NODE": "worker-1", "LONGBOAT_NODE_RANK": "1", "LONGBOAT_NODES": "2"}
        | {"LONGBOAT_NODE_ADDRESSES": "10.0.0.0,10.0.0.1", "LONGBOAT_RANK": "2", "LONGBOAT_WORLD_SIZE": "4"}
        | {"LONGBOAT_LOCAL_RANK": "0", "LONGBOAT_PORT": "2001", "LONGBOAT_FRAMEWORK": "none"}
        | {"LONGBOAT_GPUS_PER_NODE": "0"},
        (),
    ),
    "GPUs of the node": (job("none", role(gpus=8)), 0, {"LONGBOAT_GPUS_PER_NODE": "8"}, ("JAX_LOCAL_DEVICE_IDS",)),
    "torch without torchrun": (
        job("torch", role(**TWO_BY_TWO)), 1, {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, ("PET_NODE_RANK",),
    ),
    "torchrun, second node": (
        job("torch", role(run="torchrun train.py", **TWO_BY_TWO)),
        2,
        {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "10.0.0.0"}
        | {"PET_MASTER_PORT": "1000", "MASTER_ADDR": "10.0.0.0", "MASTER_PORT": "1000", "PET_LOCAL_ADDR": "10.0.0.1"}
        | {"LONGBOAT_RANK": "2", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "30"},
        (*RANK_NAMES, "LONGBOAT_LOCAL_RANK", "LONGBOAT_PORT"),
    ),
    "torchrun under framework none": (
        job("none", role(run=("torchrun", "train.py"))), 0, {"PET_NNODES": "1", "PET_NODE_RANK": "0"}, RANK_NAMES,
    ),
    "torchrun's grace follows the job's": (
        job("torch", role(run="torchrun t.py"), grace_s=90.4), 0, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "90"}, (),
    ),
    "torchrun, unequal nodes": (
        job("torch", role("a", "torchrun t.py", procs=1), role("b", "torchrun t.py", procs=3)),
        2,
        {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "3", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "10.0.0.0"},
        RANK_NAMES,
    ),
    "an evaluator beside torchrun is a world of its own": (
        job("torch", role("trainer", "torchrun t.py", **TWO_BY_TWO), role("evaluator", "python eval.py")),
        4,
        {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "10.0.0.2", "MASTER_PORT": "3000", "LONGBOAT_RANK": "4"}
        | {"LONGBOAT_WORLD_SIZE": "5"},
        ("PET_NNODES",),
    ),
    "torchrun beside an evaluator": (
        job("torch", role("evaluator", "python eval.py"), role("trainer", "torchrun t.py", **TWO_BY_TWO)),
        3,
        {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "10.0.0.1", "PET_MASTER_PORT": "2000"},
        RANK_NAMES,
    ),
    "roles of one starter are one world": (
        job("none", role("learner"), role("actor", nodes=2)), 2, {"RANK": "2", "WORLD_SIZE": "3", "NODE_RANK": "2"}, (),
    ),
    "jax": (
        job("jax", role(**TWO_BY_TWO)),
        3,
        {"JAX_COORDINATOR_ADDRESS": "10.0.0.0:1000", "OMPI_MCA_orte_hnp_uri": "0.0;tcp://0.0.0.0:0"}
        | {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "RANK": "3"},
        ("JAX_LOCAL_DEVICE_IDS", "TF_CONFIG"),
    ),
    "jax, one process for all GPUs": (job("jax", role(gpus=4)), 0, {"JAX_LOCAL_DEVICE_IDS": "0,1,2,3"}, ()),
    "jax, GPUs shared out": (job("jax", role(gpus=4, procs=2)), 1, {"JAX_LOCAL_DEVICE_IDS": "2,3"}, ()),
    "jax, more processes than GPUs": (job("jax", role(gpus=2, procs=4)), 3, {"JAX_LOCAL_DEVICE_IDS": "1"}, ()),
    "jax, the user's own devices": (
        job("jax", role(gpus=4, env={"JAX_LOCAL_DEVICE_IDS": "3"})), 0, {"JAX_LOCAL_DEVICE_IDS": "3"}, (),
    ),
    "jax under mpirun": (
        job("jax", role(run="mpirun python t.py", **TWO_BY_TWO)),
        0,
        {"JAX_COORDINATOR_ADDRESS": "10.0.0.0:1000"},
        ("OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_SIZE", *RANK_NAMES),
    ),
    "mpi": (
        job("mpi", role(**TWO_BY_TWO)),
        2,
        {"LONGBOAT_MPI_HOSTS": "worker-0:2,worker-1:2", "OMPI_ALLOW_RUN_AS_ROOT": "1", "LONGBOAT_NODE": "worker-1"}
        | {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_orte_keep_fqdn_hostnames": "true"},
        (*RANK_NAMES, "OMPI_MCA_btl", "OMPI_COMM_WORLD_SIZE", "LONGBOAT_RANK"),
    ),
    "mpi, the user's own transport": (
        job("mpi", role(env={"OMPI_MCA_btl": "self,ofi"})), 0, {"OMPI_MCA_btl": "self,ofi"}, (),
    ),
    "the user's own variables": (
        job("none", role(env={"LR": "0.1", "NCCL_DEBUG": "INFO"})), 0, {"LR": "0.1", "NCCL_DEBUG": "INFO"}, (),
    ),
    "the user's own rendezvous": (
        job("torch", role(run="torchrun t.py", env={"MASTER_PORT": "29500"})),
        0,
        {"MASTER_PORT": "29500", "PET_MASTER_PORT": "29500", "PET_MASTER_ADDR": "10.0.0.0"},
        (),
    ),
    "elastic settings of the user": (
        job("torch", role(run="torchrun t.py", env={"PET_NNODES": "1:2", "PET_RDZV_BACKEND": "c10d"})),
        0,
        {"PET_NNODES": "1:2", "PET_RDZV_BACKEND": "c10d"},
        (),
    ),
    "a rank from the user is not passed on": (
        job("none", role(env={"RANK": "7", "WORLD_SIZE": "9", "LONGBOAT_RUN": "x"})),
        0,
        {"RANK": "0", "WORLD_SIZE": "1", "LONGBOAT_RUN": "digits-2"},
        (),
    ),
    "nor under torchrun": (job("torch", role(run="torchrun t.py", env={"RANK": "7"})), 0, {}, ("RANK",)),
    "TF_CONFIG without TensorFlow": (job("none", role(env={"TF_CONFIG": "{}"})), 0, {"TF_CONFIG": "{}"}, ()),
    "skypilot's names": (
        job("none", role(nodes=2, gpus=4), aliases=("skypilot",)),
        1,
        {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.0\n10.0.0.1", "SKYPILOT_NUM_NODES": "2"}
        | {"SKYPILOT_NUM_GPUS_PER_NODE": "4", "SKYPILOT_TASK_ID": "digits-2-u7"},
        ("DSTACK_NODE_RANK",),
    ),
    "dstack's names": (
        job("none", role(nodes=2, gpus=4), aliases=("dstack",)),
        1,
        {"DSTACK_NODE_RANK": "1", "DSTACK_NODES_NUM": "2", "DSTACK_NODES_IPS": "10.0.0.0\n10.0.0.1"}
        | {"DSTACK_MASTER_NODE_IP": "10.0.0.0", "DSTACK_GPUS_PER_NODE": "4", "DSTACK_GPUS_NUM": "8"},
        ("SKYPILOT_NODE_RANK",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("the_job, rank, seen, unseen", ROWS.values(), ids=ROWS.keys())
def test_environment(the_job: Job, rank: int, seen: dict[str, str], unseen: tuple[str, ...]) -> None:
    env = env_of(laid(the_job), rank)
    assert {name: env.get(name) for name in seen} == seen
    assert [name for name in unseen if name in env] == []


CLUSTER = {"ps": ["10.0.0.0:1001"], "worker": ["10.0.0.1:2001", "10.0.0.1:2002", "10.0.0.2:3001", "10.0.0.2:3002"]}


@pytest.mark.parametrize(
    "rank, task, pod",
    [
        pytest.param(0, {"type": "ps", "index": 0}, "ps-0-u7", id="ps"),
        pytest.param(1, {"type": "worker", "index": 0}, "worker-0-u7", id="first worker"),
        pytest.param(4, {"type": "worker", "index": 3}, "worker-3-u7", id="last worker"),
        pytest.param(5, {"type": "evaluator", "index": 0}, "evaluator-0-u7", id="evaluator outside the cluster"),
    ],
)
def test_tensorflow(rank: int, task: dict[str, object], pod: str) -> None:
    env = env_of(laid(job("tensorflow", *PS)), rank)
    assert json.loads(env["TF_CONFIG"]) == {"cluster": CLUSTER, "task": task}
    assert ast.literal_eval(env["CLUSTER_CONFIG"]) == CLUSTER
    assert env["POD_NAME"] == pod
    assert env["POD_NAME"].split("-", 2) == [task["type"], str(task["index"]), "u7"]
    assert env["RANK"] == str(rank)


def test_tensorflow_task_of_the_user_is_not_passed_on() -> None:
    env = env_of(laid(job("tensorflow", role(env={"TF_CONFIG": "{}", "POD_NAME": "x", "CLUSTER_CONFIG": "{}"}))), 0)
    assert json.loads(env["TF_CONFIG"])["task"] == {"type": "worker", "index": 0}
    assert env["POD_NAME"] == "worker-0-u7"
    assert ast.literal_eval(env["CLUSTER_CONFIG"]) == {"worker": ["10.0.0.0:1001"]}


def test_two_tensorflow_tasks_never_share_a_port() -> None:
    layout = laid(job("tensorflow", *PS))
    tasks = [f"{node.address}:{rank.env['LONGBOAT_PORT']}" for node in layout.nodes for rank in node.ranks]
    assert len(set(tasks)) == layout.world_size == 6


def test_ipv6_addresses_are_bracketed_where_a_port_follows() -> None:
    env = env_of(laid(job("jax", role()), prefix="fd00::"), 0)
    assert env["JAX_COORDINATOR_ADDRESS"] == "[fd00::0]:1000"
    assert env["MASTER_ADDR"] == "fd00::0"


def test_nodes_of_one_machine_keep_open_mpi_off_shared_memory() -> None:
    env = laid(job("mpi", role(nodes=2)), prefix="127.0.0.").nodes[1].env
    assert env["OMPI_MCA_btl"] == "self,tcp"
    assert env["OMPI_MCA_oob_tcp_if_include"] == "127.0.0.0/8"


@pytest.mark.parametrize(
    "run, command",
    [
        ("mpirun -np 4 ./a.out", "mpirun -np 4 ./a.out"),
        ("python train.py --lr 0.1", "mpirun -np 4 python train.py --lr 0.1"),
        (("python", "train it.py"), ("mpirun", "-np", "4", "python", "train it.py")),
        ("cd x && python t.py", "mpirun -np 4 /bin/sh -c 'cd x && python t.py'"),
        ("LR=1 python t.py", "mpirun -np 4 /bin/sh -c 'LR=1 python t.py'"),
        ("python t.py $LONGBOAT_NODE", "mpirun -np 4 /bin/sh -c 'python t.py $LONGBOAT_NODE'"),
        ("python t.py a : b", "mpirun -np 4 /bin/sh -c 'python t.py a : b'"),
        (("echo", "a", ":"), ("mpirun", "-np", "4", "/bin/sh", "-c", "echo a :")),
    ],
)
def test_mpi_command(run: Command, command: Command) -> None:
    nodes = laid(job("mpi", role(run=run, **TWO_BY_TWO))).nodes
    assert [node.starter for node in nodes] == ["mpirun", "follower"]
    assert nodes[0].command == command
    assert [rank.rank for node in nodes for rank in node.ranks] == [0, 1, 2, 3]


def test_mpi_roles_become_one_mpirun() -> None:
    nodes = laid(job("mpi", role("a", "./a", procs=2), role("b", "./b", nodes=2))).nodes
    assert nodes[0].command == "mpirun -np 2 ./a : -np 2 ./b"
    assert [node.starter for node in nodes] == ["mpirun", "follower", "follower"]
    assert nodes[2].env["LONGBOAT_MPI_HOSTS"] == "a-0:2,b-0:1,b-1:1"


def test_shape_of_the_layout() -> None:
    layout = laid(job("tensorflow", *PS), attempt=3)
    assert (layout.run, layout.uid, layout.attempt, layout.world_size) == ("digits-2", "u7", 3, 6)
    assert [node.name for node in layout.nodes] == ["ps-0", "worker-0", "worker-1", "evaluator-0"]
    assert [node.node_rank for node in layout.nodes] == [0, 1, 2, 3]
    assert [rank.rank for node in layout.nodes for rank in node.ranks] == list(range(6))
    assert [rank.local_rank for node in layout.nodes for rank in node.ranks] == [0, 0, 1, 0, 1, 0]
    assert {node.env["LONGBOAT_ATTEMPT"] for node in layout.nodes} == {"3"}
    assert msgspec.json.decode(msgspec.json.encode(layout), type=Layout) == layout


def test_attempts_differ_only_in_their_number() -> None:
    first, second = laid(job("jax", *PS)), laid(job("jax", *PS), attempt=1)
    for rank in range(first.world_size):
        before, after = env_of(first, rank), env_of(second, rank)
        assert {name for name in before if before[name] != after[name]} == {"LONGBOAT_ATTEMPT"}


def test_wrong_sites_are_a_bug() -> None:
    two = job("none", role(nodes=2))
    with pytest.raises(InternalError, match="2 nodes but 1 sites"):
        lay_out(two, run="r", uid="u", attempt=0, sites=[NodeSite(address="a", ports=(1, 2))])
    with pytest.raises(InternalError, match="node 1 needs 2 ports but was given 1"):
        lay_out(
            two,
            run="r",
            uid="u",
            attempt=0,
            sites=[NodeSite(address="a", ports=(1, 2)), NodeSite(address="b", ports=(1,))],
        )


def test_large_layouts_share_their_long_strings() -> None:
    layout = laid(job("none", role(nodes=1000, procs=8)))
    assert layout.world_size == 8000
    texts = [node.env["LONGBOAT_NODE_ADDRESSES"] for node in layout.nodes]
    assert all(text is texts[0] for text in texts)


def test_a_tensorflow_cluster_too_long_for_a_variable_is_refused() -> None:
    with pytest.raises(Refused, match="TF_CONFIG would take") as caught:
        laid(job("tensorflow", role(nodes=1000, procs=16)), prefix="a-rather-long-name-of-a-node.example.")
    assert "nodes fit" in str(caught.value.hint)


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax", "none"])
def test_what_says_who_a_rank_is_can_never_be_inherited(framework: Framework) -> None:
    plain = job(framework, role(**TWO_BY_TWO), aliases=("skypilot", "dstack"))
    for the_job in (plain, job(framework, role(run="torchrun t.py", **TWO_BY_TWO))):
        env = env_of(laid(the_job), 1)
        assert [name for name in env if not is_scrubbed(name)] in ([], ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"])


def test_notices_name_what_is_not_passed_on() -> None:
    assert notices(job("none", role(env={"RANK": "1", "LR": "2"}))) == (
        "role worker: env RANK is not passed on: Longboat numbers the ranks",
    )


@pytest.mark.parametrize(
    "roles, hosts",
    [
        ((role(run="mpirun -np 3 ./a"),), "worker-0:3"),
        ((role(run="mpirun -np 1 ./a", procs=2),), "worker-0:2"),
        ((role(run="mpirun ./a"),), "worker-0:1"),
        ((role(run="mpirun -np 8 ./a", **TWO_BY_TWO),), "worker-0:2,worker-1:2"),
    ],
)
def test_a_lone_node_has_as_many_slots_as_its_mpirun_asks_for(roles: tuple[Role, ...], hosts: str) -> None:
    assert laid(job("mpi", *roles)).nodes[0].env["LONGBOAT_MPI_HOSTS"] == hosts
