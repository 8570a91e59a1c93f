"""Job files to Jobs: the fields, defaults, merging, variables, and every mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.jobs import Checkpoints, DataImport, Gpus, Retries, Secret, Volume
from tests.specs.reading import Reader

DIGITS = """\
name: digits                      # what `longboat run examples/digits/job.yaml` reads
run: python train.py --epochs 3
nodes: 2
procs: 2
env: {LR: "0.1"}
checkpoints: {to: ./checkpoints, keep: 3}
retries: 2
"""
DCNN = """\
name: dcnn                        # the founding documents' shape: parameter servers and workers
framework: tensorflow
image: tensorflow/tensorflow:2.21.0-gpu
roles:
  ps:     {nodes: 8,  run: python worker.py}
  worker: {nodes: 16, run: python worker.py, gpus: 1}
volumes: {/var/tensorflow: {claim: tensorflow-fs}}
data: [{url: "https://example.org/prepared_data.tar.gz", to: /var/tensorflow/data}]
"""


def test_digits(read: Reader) -> None:
    loaded = read(DIGITS)
    job = loaded.job
    assert loaded.base == str(read.folder)
    assert job.name == "digits" and job.nodes == 2 and job.ends == ("worker",)
    (worker,) = job.roles
    assert (worker.name, worker.run, worker.procs, worker.env) == (
        "worker",
        "python train.py --epochs 3",
        2,
        {"LR": "0.1"},
    )
    assert job.checkpoints == Checkpoints(to="./checkpoints", keep=3)
    assert job.retries == Retries(count=2)
    assert job.workdir == "." and job.grace_s == 30.0 and job.timeout_s is None


def test_dcnn(read: Reader) -> None:
    job = read.job(DCNN)
    assert job.framework == "tensorflow" and job.framework_reason == "given"
    assert [(role.name, role.nodes, role.resources.gpus.count, role.image) for role in job.roles] == [
        ("ps", 8, 0, "tensorflow/tensorflow:2.21.0-gpu"),
        ("worker", 16, 1, "tensorflow/tensorflow:2.21.0-gpu"),
    ]
    assert job.ends == ("worker",)
    assert job.volumes == (Volume(target="/var/tensorflow", claim="tensorflow-fs"),)
    assert job.data == (DataImport(url="https://example.org/prepared_data.tar.gz", to="/var/tensorflow/data"),)


def test_defaults_go_into_roles_and_the_roles_own_env_wins(read: Reader) -> None:
    job = read.job(
        "run: a\nenv: {A: 1, B: 1}\ngpus: 2\nprocs: auto\nnodes: 3\nmemory: 1Gi\n"
        "roles: {chief: , ps: {run: b, gpus: 0, nodes: 1}, worker: {env: {B: 2}}}"
    )
    chief, ps, worker = job.roles
    assert (chief.run, ps.run, worker.run) == ("a", "b", "a")
    assert (chief.nodes, ps.nodes) == (3, 1)
    assert (chief.procs, ps.procs) == (2, 1)
    assert worker.env == {"A": "1", "B": "2"} and chief.env == {"A": "1", "B": "1"}
    assert ps.resources.memory == 2**30
    assert job.ends == ("chief", "worker")


def test_only_passive_roles_decide_when_there_are_no_others(read: Reader) -> None:
    assert read.job("run: x\nroles: {ps: {}}").ends == ("ps",)
    assert read.job("run: x\nroles: {ps: {}, worker: {}}\nends: [ps, worker]").ends == ("ps", "worker")


def test_env_is_kept_as_written(read: Reader) -> None:
    text = "run: x\nenv: {LR: 1e-3, FLAG: no, T: 12:30, N: 08, Y: true, F: 1.50, S: 'a b', E: '', O: 0o17}"
    assert read.job(text).roles[0].env == {
        "LR": "1e-3",
        "FLAG": "no",
        "T": "12:30",
        "N": "08",
        "Y": "true",
        "F": "1.50",
        "S": "a b",
        "E": "",
        "O": "0o17",
    }


@pytest.mark.parametrize(
    ("written", "gpus"),
    [
        ("2", Gpus(count=2)),
        ("H100", Gpus(count=1, type="H100")),
        ("H100:8", Gpus(count=8, type="H100")),
        ("{count: 4}", Gpus(count=4)),
        ("{type: A100, memory: 80Gi}", Gpus(count=1, type="A100", memory=80 * 2**30)),
        ("0", Gpus()),
    ],
)
def test_gpus(read: Reader, written: str, gpus: Gpus) -> None:
    assert read.job(f"run: x\ngpus: {written}").roles[0].resources.gpus == gpus


def test_any_word_can_be_run(read: Reader) -> None:
    words = ("printf", "", " ", "\x1b[31m\r\n", "\t", "é")
    assert read.job(fields={"run": words}).roles[0].run == words
    assert 'run.0: found the text ""' in read.says(fields={"run": ["", "x"]})


def test_paths_are_texts(read: Reader) -> None:
    assert read.job(fields={"run": "x", "workdir": Path("src")}).workdir == "src"


def test_very_many_mistakes_are_cut_short(read: Reader) -> None:
    text = "".join(f"unknown{number}: 1\n" for number in range(40_000))
    problems = read.problems(text)
    assert len(problems) == 101 and problems[-1].message == "and 39,901 more mistakes"


def test_other_fields(read: Reader) -> None:
    job = read.job(
        "run: [python, -c, 'print(1)']\nsetup: make\ncpus: 500m\nmemory: 16GB\nshm: 512Mi\ndisk: 1073741824\n"
        "retries: {count: 3, on: [oom, 137], backoff: 1m}\ntimeout: 1h30m\ngrace: 0\nstall: off\n"
        "queue: q\npriority: -3\n"
        "labels: {team: vision, example.org/x: 7}\naliases: [skypilot, dstack]\nartifacts: out/**\ninclude: [a]\n"
        "checkpoints: ./here\nworkdir: none\nsecrets: {A: , B: {file: ~/b}, C: {store: c}, D: {env: E}}\n"
        "volumes: {/a: ./x, /b/: {nfs: 'nas:/x', read_only: true}, /c: {scratch: true},\n"
        " /d: {claim: x, size: 100Gi, class: fast, access: ReadWriteMany}, /e: {scratch: memory, size: 4Gi},\n"
        " /f: {scratch: disk}}\n"
    )
    role = job.roles[0]
    assert role.run == ("python", "-c", "print(1)")
    assert (role.resources.cpus, role.resources.memory, role.resources.shm, role.resources.disk) == (
        0.5,
        16 * 10**9,
        2**29,
        2**30,
    )
    assert job.retries == Retries(count=3, on=("oom", 137), backoff_s=60.0)
    assert (job.timeout_s, job.grace_s, job.stall_s) == (5400.0, 0.0, None)
    assert (job.queue, job.priority, job.labels) == ("q", -3, {"team": "vision", "example.org/x": "7"})
    assert (job.artifacts, job.include, job.aliases) == (("out/**",), ("a",), ("skypilot", "dstack"))
    assert job.checkpoints == Checkpoints(to="./here") and job.workdir is None and job.setup == "make"
    assert job.secrets == (
        Secret(name="A"),
        Secret(name="B", file="~/b"),
        Secret(name="C", store="c"),
        Secret(name="D", env="E"),
    )
    assert job.volumes == (
        Volume(target="/a", path="./x"),
        Volume(target="/b", nfs="nas:/x", read_only=True),
        Volume(target="/c", scratch=True),
        Volume(target="/d", claim="x", size=100 << 30, storage_class="fast", access="ReadWriteMany"),
        Volume(target="/e", scratch=True, medium="memory", size=4 << 30),
        Volume(target="/f", scratch=True),
    )


def test_workdir_null_means_no_code(read: Reader) -> None:
    assert read.job("run: x\nworkdir: null").workdir is None
    assert read.job("run: x\nworkdir:").workdir is None


def test_null_is_the_same_as_absent(read: Reader) -> None:
    job = read.job("run: x\nimage:\nnodes: ~\ntimeout: null\ncheckpoints: {to: null, keep: 1}")
    assert job.roles[0].image is None and job.nodes == 1 and job.checkpoints == Checkpoints(keep=1)


def test_framework_is_guessed_from_command_and_script(read: Reader) -> None:
    assert read.job("run: torchrun train.py").framework == "torch"
    (read.folder / "src").mkdir()
    (read.folder / "src" / "train.py").write_text("import jax\n")
    job = read.job("run: python train.py\nworkdir: src")
    assert job.framework == "jax" and "jax" in job.framework_reason
    assert read.job("run: python train.py\nworkdir: none").framework == "none"


@pytest.mark.parametrize(
    ("run", "name"), [("python my_Train.py", "my-train"), ("/usr/bin/true", "true"), (["./9x"], "x")]
)
def test_name_from_the_command_without_a_file(read: Reader, run: object, name: str) -> None:
    loaded = read(fields={"run": run})
    assert loaded.job.name == name and loaded.base == str(read.folder)


def test_name_from_the_folder(read: Reader) -> None:
    assert read.job("run: python train.py").name == "project"


def test_files_merge_left_to_right_then_fields_then_overrides(read: Reader) -> None:
    job = read.job(
        "run: a\nenv: {A: 1, B: 1, C: 1}\nartifacts: [x, y]\nnodes: 1",
        "run: b\nenv: {B: 2, C: null}\nartifacts: [z]",
        fields={"env": {"D": 4}, "nodes": 3},
        overrides=["env.A=9", "procs=2"],
    )
    role = job.roles[0]
    assert role.run == "b" and role.env == {"A": "9", "B": "2", "D": "4"} and job.artifacts == ("z",)
    assert (role.nodes, role.procs) == (3, 2)


def test_fields_alone(read: Reader) -> None:
    job = read.job(fields={"run": ("python", "x.py"), "env": {"A": True, "B": 0.5}, "volumes": {"/d": {"path": "."}}})
    assert job.roles[0].run == ("python", "x.py") and job.roles[0].env == {"A": "true", "B": "0.5"}


def test_a_problem_of_a_field_has_a_path_and_no_file(read: Reader) -> None:
    assert read.says(fields={"run": "x", "nodes": -1}).startswith("nodes: found the number -1")
    assert "found a set" in read.says(fields={"run": "x", "env": {"A": {1}}})
    assert "type int" in read.says(fields={"run": "x", "env": {1: "A"}})


def test_a_password_in_a_url_is_refused_and_not_shown(read: Reader) -> None:
    for url in ("https://me:hunter2@example.org/x", "ftp://me:hunter2@example.org/x"):
        assert "hunter2" not in read.says(f"run: x\ndata: [{{url: '{url}', to: d}}]")


def test_a_secret_in_env_is_noticed(read: Reader) -> None:
    loaded = read("run: x\nenv: {HF_TOKEN: abc, TOKENIZER: bpe, MAX_TOKENS: 5}")
    assert len(loaded.notices) == 1 and "env.HF_TOKEN" in loaded.notices[0] and "abc" not in loaded.notices[0]


@pytest.mark.parametrize(
    "to", ["s3://bucket/team/checkpoints", "s3://bucket", "gs://bucket/a%20b/", "az://box/x", "./a:b", "/c", "~/d"]
)
def test_checkpoints_go_to_folders_and_object_stores(read: Reader, to: str) -> None:
    assert read.job(f'run: x\ncheckpoints: "{to}"').checkpoints == Checkpoints(to=to)
    assert read.job(f'run: x\ncheckpoints: {{resume: "{to}"}}').checkpoints.resume == to


@pytest.mark.parametrize(
    ("text", "is_said"),
    [
        ("retries: {on: [oom]}", True),
        ("retries: {backoff: 10s}", True),
        ("retries: {count: 2, on: [oom]}", False),
        ("retries: 0", False),
        ("retries: {}", False),
        ("nodes: 1", False),
    ],
)
def test_retries_without_a_count_are_said_to_be_none(read: Reader, text: str, is_said: bool) -> None:
    said = ("`retries` says how, and no `count`: nothing is tried again",) if is_said else ()
    assert read(f"run: x\n{text}").notices == said
