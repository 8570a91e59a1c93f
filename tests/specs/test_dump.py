"""A Job written as a job file and read again is the same Job."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.core import resources
from longboat.core.first_failure import NEVER_RETRIED
from longboat.core.jobs import (
    CAUSES,
    FRAMEWORKS,
    Checkpoints,
    DataImport,
    Gpus,
    Job,
    Keep,
    Resources,
    Retries,
    Role,
    Secret,
    Serve,
    Volume,
)
from longboat.specs.dump import job_to_mapping, to_yaml
from longboat.specs.fields import rules
from longboat.specs.read import read_job

CHARACTERS = st.characters(exclude_categories=["Cs", "Cc"])
TRICKY = st.sampled_from(["no", "08", "1e-3", "${A}", "$${", "a: b", "# x", "-", "\u2028x", "|", "'\"", "~"])
WORDS = (st.text(CHARACTERS, min_size=1) | TRICKY).map(str.strip).filter(bool)
PLACES = WORDS.filter(lambda place: rules.checkpoint_fault(place) is None)
SCRIPTS = st.lists(WORDS | st.sampled_from(["\x1b[1m", "\r", "\x85", " x "]), min_size=1, max_size=3).map("\n".join)
SCRIPTS = SCRIPTS.filter(str.strip)
NAMES = st.from_regex(rules.NAME, fullmatch=True)
ENV_NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)
KEEPS = st.builds(
    Keep,
    last=st.integers(0, 9),
    best=st.integers(1, 3),
    metric=st.sampled_from(["loss", "${A}", "val/acc"]),
    goal=st.sampled_from(["max", "min"]),
    every_s=st.none() | st.integers(1, 9).map(lambda hours: hours * 3600.0),
)
ROLE_NAMES = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True)
FOLDERS = st.from_regex(r"[a-z0-9_][a-z0-9_./-]{0,8}", fullmatch=True).filter(
    lambda path: ".." not in path and path != "none"
)
SIZES = st.integers(1 << 20, resources.MAX_BYTES)
DURATIONS = st.floats(0.1, 80000) | st.integers(1, 80000).map(float)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


GPUS = st.just(Gpus()) | st.builds(  # no GPUs have no type and no memory
    Gpus,
    count=st.integers(1, 1024),
    type=optional(st.from_regex(resources.GPU_TYPE_PATTERN, fullmatch=True)),
    memory=optional(SIZES),
)
RESOURCES = st.builds(
    Resources,
    gpus=GPUS,
    cpus=optional(st.floats(0.001, 4096)),
    memory=optional(SIZES),
    shm=optional(SIZES),
    disk=optional(SIZES),
)
ROLES = st.builds(
    Role,
    name=ROLE_NAMES,
    run=SCRIPTS | st.lists(SCRIPTS, min_size=1, max_size=3).map(tuple),
    nodes=st.integers(1, 50),
    procs=st.integers(1, 100),
    image=optional(st.just("a/b:c")),
    env=st.dictionaries(ENV_NAMES, st.just("") | SCRIPTS, max_size=3),
    resources=RESOURCES,
)
SECRETS = st.builds(lambda name, source: Secret(name=name, **source), ENV_NAMES, st.sampled_from(
    [{}, {"env": "X"}, {"file": "~/x${A}"}, {"store": "s"}]))  # fmt: skip
VOLUMES = st.builds(lambda target, source: Volume(target=f"/mnt/{target}", **source), ROLE_NAMES, st.sampled_from(
    [{"claim": "c"}, {"path": "p${A}", "read_only": True}, {"nfs": "h:/x"}, {"scratch": True},
     {"claim": "c", "size": 1 << 30, "storage_class": "fast", "access": "ReadWriteMany"},
     {"scratch": True, "medium": "memory", "size": 10**9}]))  # fmt: skip
DATA = st.builds(
    DataImport, url=st.just("https://a/${B}"), to=FOLDERS, sha256=optional(st.just("0" * 64)), unpack=st.booleans()
)
ON = st.lists(st.integers(1, 255) | st.sampled_from([c for c in CAUSES if c not in NEVER_RETRIED]), max_size=3)
LABELS = st.dictionaries(st.sampled_from(["a", "b.c/d", "E_f"]), st.sampled_from(["", "x", "1", "no", "1e3"]))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    roles = tuple(draw(st.lists(ROLES, min_size=1, max_size=3, unique_by=lambda role: role.name)))
    if draw(st.booleans()):
        roles = (Role(name="worker", run=roles[0].run, env=roles[0].env, resources=roles[0].resources),)
    names = [role.name for role in roles]
    ends = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    return Job(
        name=draw(NAMES),
        roles=roles,
        framework=draw(st.sampled_from(FRAMEWORKS)),
        framework_reason="given",
        ends=tuple(ends),
        setup=draw(optional(SCRIPTS)),
        workdir=draw(optional(FOLDERS)),
        include=tuple(draw(st.lists(FOLDERS, max_size=2))),
        exclude=tuple(draw(st.lists(FOLDERS, max_size=2))),
        secrets=tuple(draw(st.lists(SECRETS, max_size=3, unique_by=lambda secret: secret.name))),
        volumes=tuple(draw(st.lists(VOLUMES, max_size=3, unique_by=lambda volume: volume.target))),
        data=tuple(draw(st.lists(DATA, max_size=2))),
        checkpoints=draw(
            st.builds(Checkpoints, to=optional(PLACES), keep=st.integers(0, 9) | KEEPS, resume=optional(WORDS))
        ),
        artifacts=tuple(draw(st.lists(FOLDERS, max_size=2))),
        retries=draw(
            st.builds(Retries, count=st.integers(0, 9), on=ON.map(tuple), backoff_s=st.integers(0, 60).map(float))
        ),
        timeout_s=draw(optional(DURATIONS)),
        grace_s=draw(DURATIONS),
        stall_s=draw(optional(DURATIONS)),
        queue=draw(optional(NAMES)),
        priority=draw(st.integers(-5, 5)),
        labels=draw(LABELS),
        aliases=draw(st.sampled_from([(), ("skypilot",), ("dstack", "skypilot")])),
        after=draw(st.sampled_from([(), ("a",), ("a", "b-2")])),
    )


@settings(max_examples=100, deadline=None)
@given(job=jobs())
def test_round_trip(job: Job) -> None:
    mapping = job_to_mapping(job)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.yaml"
        file.write_text(to_yaml(mapping), encoding="utf-8")
        assert read_job([file], environment={}).job == job
    assert read_job([], fields=mapping, environment={}).job == job


def test_a_single_worker_is_flat_and_defaults_are_left_out() -> None:
    job = read_job([], fields={"name": "a", "run": "x", "framework": "none"}, environment={}).job
    assert job_to_mapping(job) == {"name": "a", "framework": "none", "run": "x", "nodes": 1, "procs": 1}


def test_yaml_1_1_readers_read_the_same() -> None:
    values = {"a": "no", "b": "12:30", "c": "08", "d": "1e-3", "e": "null", "f": "x\ny", "g": ["on", 2, True]}
    assert yaml.safe_load(to_yaml(values)) == values


def test_how_it_is_served_is_written_and_read_again(tmp_path: Path) -> None:
    needs = Resources(gpus=Gpus(count=1, type="A100"), cpus=2.0, memory=1 << 30)
    whole = Serve(
        run=("app", "$PORT"),
        replicas=2,
        max_replicas=4,
        in_flight=3,
        port=80,
        ready="/r?x=1",
        live="/l",
        golden=False,
        tolerance=0.01,
        start_s=60.0,
        drain_s=5.0,
        resources=needs,
    )
    for serve in (whole, Serve(run="python app.py --port ${PORT}"), Serve(replicas=3), Serve(ready="/")):
        job = Job(name="a", roles=(Role(name="worker", run="x"),), ends=("worker",), serve=serve)
        (tmp_path / "job.yaml").write_text(to_yaml(job_to_mapping(job)))
        assert read_job([tmp_path / "job.yaml"], environment={}, cwd=tmp_path).job.serve == serve
