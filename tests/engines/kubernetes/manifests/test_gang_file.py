from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.bundles.manifests import CodeSnapshot, Entry
from longboat.core.errors import EngineError, Refused
from longboat.core.jobs import Checkpoints, DataImport, Gpus, Job, Resources, Role, Volume
from longboat.core.layouts import Layout, scrubbed
from longboat.engines.kubernetes.manifests import gang_file
from longboat.engines.kubernetes.manifests.gang_file import CodeManifest, code_manifest, engine_env, layout_of
from longboat.engines.kubernetes.records import Record, Storage
from longboat.launcher.pod.gang_file import plan_of
from tests.engines.kubernetes.manifest_samples import gpu_role, job, record, role

EIGHT = {"procs": 8, "resources": Resources(gpus=Gpus(count=8), memory=1 << 40)}
JOBS = {
    "plain": job(),
    "torch": job(role(nodes=3, procs=2), framework="torch"),
    "torchrun": job(role(nodes=2, run="torchrun train.py", **EIGHT), framework="torch"),
    "tensorflow": job(
        role("chief"), role("worker", nodes=3), role("ps", nodes=2), role("evaluator"), framework="tensorflow"
    ),
    "jax": job(gpu_role(4, nodes=2, procs=2), framework="jax"),
    "mpi": job(role(nodes=3, procs=2, run="python3 train.py"), framework="mpi"),
    "mpirun": job(role(nodes=2, procs=2, run=("mpirun", "python3", "x.py")), framework="mpi"),
    "aliases": job(role(nodes=2, env={"A": "1"}), aliases=("skypilot", "dstack")),
    "cpus": job(role(env={"CUDA_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "0"}), gpu_role(2, name="gpu")),
}


def make(what: Record, **more: Any) -> tuple[Layout, dict[str, Any]]:
    layout = layout_of(what, 1)
    given: dict[str, Any] = {"timeout_s": None, "code": None, **more}
    return layout, gang_file.decode(gang_file.encode(gang_file.gang_of(what, layout, **given)))


def check_against_layout(what: Job, layout: Layout, gang: dict[str, Any]) -> None:
    """Common parts and what differs are together the Layout, for our own reader and for the launcher."""
    for position, node in enumerate(layout.nodes):
        added = engine_env(what.role(node.role))
        expected = msgspec.structs.replace(node, env={**node.env, **added})
        assert gang_file.node_of(gang, position) == expected
        plan = plan_of(gang, node.role, node.index, "/longboat", ["PATH", "RANK", "PET_X", "LONGBOAT_HOST"])
        assert plan["env"] == expected.env
        assert plan["node_rank"] == position and plan["address"] == node.address
        assert plan["command"] == (node.command if isinstance(node.command, str) else list(node.command))
        assert plan["starter"] == node.starter
        assert [(rank["rank"], rank["local_rank"], rank["env"]) for rank in plan["ranks"]] == [
            (rank.rank, rank.local_rank, rank.env) for rank in node.ranks
        ]
        assert sorted(plan["unset"]) == scrubbed(["PATH", "RANK", "PET_X", "LONGBOAT_HOST"])
        assert (plan["mpi"] is None) == (node.starter not in ("mpirun", "follower"))


@pytest.mark.parametrize("kind", ["job", "jobset"])
@pytest.mark.parametrize("name", JOBS)
def test_every_node_and_rank_gets_back_its_layout(name: str, kind: str) -> None:
    what = JOBS[name]
    layout, gang = make(record(what, workload=kind))
    check_against_layout(what, layout, gang)


ENVS = st.dictionaries(st.sampled_from(["A", "B", "MASTER_PORT"]), st.text(max_size=5), max_size=3)
ROLES = st.builds(
    lambda nodes, procs, env, run: Role(name="x", run=run, nodes=nodes, procs=procs, env=env),
    st.integers(1, 4),
    st.integers(1, 3),
    ENVS,
    st.sampled_from(["python3 a.py", "torchrun a.py", ("python3", "a.py")]),
)


@given(
    roles=st.lists(ROLES, min_size=1, max_size=3),
    framework=st.sampled_from(["torch", "tensorflow", "jax", "mpi", "none"]),
)
@settings(max_examples=60, deadline=None)
def test_any_job_gets_back_its_layout(roles: list[Role], framework: str) -> None:
    named = [msgspec.structs.replace(each, name=f"role{number}") for number, each in enumerate(roles)]
    what = job(*named, framework=framework)
    layout, gang = make(record(what))
    check_against_layout(what, layout, gang)


def test_addresses_and_ports_are_those_of_pods() -> None:
    layout = layout_of(record(job(role(nodes=2, procs=3))), 4)
    assert [node.address for node in layout.nodes] == ["train-a4-worker-0.train-a4", "train-a4-worker-1.train-a4"]
    assert layout.nodes[0].ports == (29500, 2222, 2223, 2224)
    assert layout.nodes[1].env["MASTER_ADDR"] == "train-a4-worker-0.train-a4"
    assert layout.nodes[1].env["MASTER_PORT"] == "29500"


def test_what_nodes_share_is_written_once() -> None:
    _, gang = make(record(JOBS["torch"]))
    assert "LONGBOAT_NODE_ADDRESSES" in gang["roles"]["worker"]["env"]
    assert all("LONGBOAT_NODE_ADDRESSES" not in node["env"] for node in gang["nodes"])
    assert all("command" not in node for node in gang["nodes"])


def test_a_node_without_gpus_cannot_be_told_otherwise() -> None:
    _, gang = make(record(JOBS["cpus"]))
    worker, gpu = gang["roles"]["worker"]["env"], gang["roles"]["gpu"]["env"]
    assert worker["CUDA_VISIBLE_DEVICES"] == worker["HIP_VISIBLE_DEVICES"] == ""
    assert worker["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "CUDA_VISIBLE_DEVICES" not in gpu and "NVIDIA_VISIBLE_DEVICES" not in gpu


def test_everything_else_that_pods_must_know() -> None:
    what = job(
        role("worker", resources=Resources(memory=1 << 30)),
        role("ps"),
        ends=("worker",),
        setup="pip install x",
        data=(DataImport(url="https://example.org/a.tgz", to="data", sha256="ab" * 32),),
        volumes=(Volume(target="in", claim="c"), Volume(target="/out", scratch=True)),
        checkpoints=Checkpoints(to="ckpt", keep=5),
        artifacts=("*.pt",),
        grace_s=7.0,
        stall_s=60.0,
    )
    storage = Storage(claim="keep", folder="longboat/train-01234567")
    kept = "/longboat/storage/longboat/train-01234567"
    this = record(what, storage=storage, checkpoint_dir=f"{kept}/checkpoints", artifacts_dir=f"{kept}/artifacts")
    this = msgspec.structs.replace(this, resume_from="/longboat/storage/old/step-3")
    code = CodeManifest(entries=(("a.py", "file", "ab" * 32, True, ""),), packs=3)
    _, gang = make(this, timeout_s=12.5, code=code)
    plan = gang["plan"]
    assert (plan["run"], plan["uid"], plan["attempt"]) == ("train", this.uid, 1)
    assert (plan["setup"], plan["grace_s"], plan["stall_s"]) == ("pip install x", 7.0, 60.0)
    assert gang["version"] == 1 and gang["deciding"] == ["worker"] and gang["timeout_s"] == 12.5
    assert gang["code"] == {"entries": [["a.py", "file", "ab" * 32, True, ""]], "packs": 3}
    assert gang_file.code_of(gang) == code
    assert gang["data"] == [{"url": "https://example.org/a.tgz", "to": "data", "sha256": "ab" * 32, "unpack": True}]
    assert gang["links"] == {"in": "/longboat/volumes/0", "ckpt": f"{kept}/checkpoints"}
    assert gang["checkpoints"] == {"dir": f"{kept}/checkpoints", "keep": 5, "resume": "/longboat/storage/old/step-3"}
    _, other = make(msgspec.structs.replace(this, checkpoint_store="s3://bucket/train-01234567"))
    assert other["checkpoints"] == {**gang["checkpoints"], "store": "s3://bucket/train-01234567"}
    assert gang["artifacts"] == {"dir": f"{kept}/artifacts", "patterns": ["*.pt"]}
    assert gang["keep"] == f"{kept}/logs" and gang["line"] == {"port": 29499}
    assert gang["roles"]["worker"]["memory_limit"] == 1 << 30
    _, replica = make(msgspec.structs.replace(this, leaves_nothing=True))
    assert replica["keep"] is None, "of a service nobody would remove it"


def test_an_import_into_a_volume_names_it() -> None:
    what = job(
        data=(DataImport(url="https://example.org/a.tgz", to="/out/a"),),
        volumes=(Volume(target="/ou", claim="c"), Volume(target="/out", scratch=True)),
    )
    assert make(record(what))[1]["data"][0]["volume"] == "/out"


def test_the_manifest_has_what_a_working_copy_needs() -> None:
    entries = (Entry(path="a", hash="ab" * 32, size=3, executable=True), Entry(path="b", kind="link", target="a"))
    found = code_manifest(CodeSnapshot(hash="x", entries=entries), 2)
    assert found.entries == (("a", "file", "ab" * 32, True, ""), ("b", "link", "", False, "a"))
    assert found.packs == 2


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(job(role("w" * 20, nodes=1000, **EIGHT), framework="torch", name="n" * 40), id="torch"),
        pytest.param(
            job(role("w" * 20, nodes=250), role("ps", nodes=6), framework="tensorflow", name="n" * 40), id="tf"
        ),
    ],
)
@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_large_gangs_fit_into_a_secret(what: Job, kind: str) -> None:
    this = record(what, workload=kind)
    data = gang_file.encode(gang_file.gang_of(this, layout_of(this, 0), timeout_s=None, code=None))
    assert len(data) < 900 << 10


def test_a_gang_that_does_not_fit_is_refused_with_the_numbers() -> None:
    gang = gang_file.gang_of(record(), layout_of(record(), 0), timeout_s=None, code=None)
    with pytest.raises(Refused, match=r"takes \S+ compressed and a Secret holds 100B of it: 1 node, 1 rank, 0 files"):
        gang_file.encode(gang, limit=100)


def test_the_same_gang_gives_the_same_bytes() -> None:
    gang = gang_file.gang_of(record(), layout_of(record(), 0), timeout_s=None, code=None)
    first = gang_file.encode(gang)
    assert gang_file.encode(gang) == first
    assert first[4:8] == b"\0\0\0\0"
    assert json.loads(gzip.decompress(first))["version"] == 1


@pytest.mark.parametrize("data", [b"", b"x", gzip.compress(b"{", mtime=0), gzip.compress(b"[]", mtime=0)])
def test_a_damaged_file_is_told(data: bytes) -> None:
    with pytest.raises(EngineError, match="damaged"):
        gang_file.decode(data)
