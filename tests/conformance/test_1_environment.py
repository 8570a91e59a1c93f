"""Promise 1: the same Job gives every rank the same environment on every engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longboat.core.jobs import Job
from longboat.core.layouts import Layout, NodeSite, lay_out, ports_needed
from longboat.core.runs import RunStatus
from tests.conformance.conftest import Jobs

SHOW = """
import json, os
print("ENV " + json.dumps(dict(os.environ)))
"""

PLACED = ("ADDR", "PORT", "TF_CONFIG", "CLUSTER_CONFIG", "JAX_COORDINATOR_ADDRESS", "NODE_IP", "NODES_IPS")
"""Variables that hold addresses and ports, which the engine chooses; compared by shape."""


def environments(jobs: Jobs, run: RunStatus) -> dict[int, dict[str, str]]:
    """What each rank printed, by LONGBOAT_RANK."""
    found = {}
    for line in jobs.text(run.name).splitlines():
        if line.startswith("ENV "):
            env = json.loads(line[4:])
            assert int(env["LONGBOAT_RANK"]) not in found
            found[int(env["LONGBOAT_RANK"])] = env
    return found


def laid_out(job: Job, run: RunStatus) -> Layout:
    sites = [NodeSite(address=f"10.0.0.{i}", ports=tuple(range(1, 1 + n))) for i, n in enumerate(ports_needed(job))]
    return lay_out(job, run=run.name, uid=run.uid, attempt=run.attempt, sites=sites)


def check(layout: Layout, seen: dict[int, dict[str, str]]) -> None:
    assert sorted(seen) == list(range(layout.world_size))
    for node in layout.nodes:
        for rank in node.ranks:
            for name, value in {**node.env, **rank.env}.items():
                assert name in seen[rank.rank], f"rank {rank.rank} lacks {name}"
                if not any(part in name for part in PLACED):
                    assert seen[rank.rank][name] == value, name


SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"nodes": 2, "procs": 2},
    "tensorflow": {
        "framework": "tensorflow",
        "roles": {"ps": {"nodes": 1}, "worker": {"nodes": 2}},
        "ends": ["ps", "worker"],
    },
    "jax": {"framework": "jax", "nodes": 2, "procs": 2},
    "aliases": {"nodes": 2, "aliases": ["skypilot", "dstack"]},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_rank_sees_what_the_layout_says(jobs: Jobs, shape: str) -> None:
    run = jobs.run(SHOW, env={"LR": "0.1", "QUOTES": "a'b\"c $HOME\\"}, **SHAPES[shape])
    assert run.phase == "succeeded", run.reason
    assert run.spec is not None
    seen = environments(jobs, run)
    check(laid_out(run.spec, run), seen)
    assert {env["QUOTES"] for env in seen.values()} == {"a'b\"c $HOME\\"}


def test_addresses_and_ports_are_those_of_the_nodes(jobs: Jobs) -> None:
    run = jobs.run(SHOW, framework="tensorflow", nodes=2, procs=2)
    seen = environments(jobs, run)
    addresses = seen[0]["LONGBOAT_NODE_ADDRESSES"].split(",")
    assert len(set(addresses)) == 2
    assert {(env["MASTER_ADDR"], env["MASTER_PORT"]) for env in seen.values()} == {
        (addresses[0], seen[0]["MASTER_PORT"])
    }
    tasks = json.loads(seen[0]["TF_CONFIG"])["cluster"]["worker"]
    own = [f"{addresses[int(env['LONGBOAT_NODE_RANK'])]}:{env['LONGBOAT_PORT']}" for _, env in sorted(seen.items())]
    assert tasks == own
    assert len(set(tasks)) == 4


def test_torchrun_owns_the_processes(jobs: Jobs) -> None:
    """A stand-in called torchrun: it must see PET_*, and neither RANK nor WORLD_SIZE."""
    torchrun = "#!/bin/sh\nexec python train.py\n"
    run = jobs.run(
        SHOW, files={"torchrun": torchrun}, run="chmod +x torchrun; PATH=.:$PATH; torchrun train.py", nodes=2, procs=2
    )
    assert run.phase == "succeeded", run.reason
    assert run.spec is not None and run.spec.framework == "torch"
    starters = [json.loads(line[4:]) for line in jobs.text(run.name).splitlines() if line.startswith("ENV ")]
    assert sorted(env["PET_NODE_RANK"] for env in starters) == ["0", "1"]
    for env in starters:
        assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & set(env)
        assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("2", "2")
        assert env["PET_MASTER_ADDR"] == starters[0]["PET_MASTER_ADDR"]


def test_what_marks_a_surrounding_run_is_not_inherited(jobs: Jobs) -> None:
    outside = {
        "RANK": "7",
        "WORLD_SIZE": "99",
        "TF_CONFIG": "{}",
        "SLURM_PROCID": "3",
        "LONGBOAT_RANK": "5",
        "OMPI_X": "1",
    }
    run = jobs.run(SHOW, environment={**jobs.place.environment, **outside}, run=["python", "train.py"])
    (env,) = environments(jobs, run).values()
    assert (env["RANK"], env["WORLD_SIZE"], env["LONGBOAT_RANK"]) == ("0", "1", "0")
    assert not {"TF_CONFIG", "SLURM_PROCID", "OMPI_X"} & set(env)


def test_a_rank_knows_its_folders(jobs: Jobs) -> None:
    code = """
import os, longboat
for name in ("LONGBOAT_CHECKPOINT_DIR", "LONGBOAT_ARTIFACTS_DIR", "TMPDIR"):
    assert os.path.isdir(os.environ[name]), name
assert os.environ["LONGBOAT_RESUME_FROM"] == ""
assert longboat.checkpoint_dir() == os.environ["LONGBOAT_CHECKPOINT_DIR"]
assert longboat.resume_from() is None and not longboat.should_stop()
open(os.path.join(os.environ["TMPDIR"], "mine"), "x")
open("mine", "x")
"""
    run = jobs.run(code, nodes=2, procs=1)
    assert run.phase == "succeeded", jobs.text(run.name)


def test_sockets_fit_below_the_temporary_folder(jobs: Jobs) -> None:
    """`multiprocessing.Manager` listens on one there; its path has at most 107 bytes, whatever the run is called."""
    code = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        shared = manager.list([1])
        shared.append(2)
        print(list(shared))
"""
    jobs.run(code, name="a-run-with-a-name-that-is-as-long-as-may")
    assert jobs.text("a-run-with-a-name-that-is-as-long-as-may").strip() == "[1, 2]"
