"""Job files to Jobs: the fields, defaults, merging, variables, and every mistake with its place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import JobError, NotFound, Problem
from longboat.core.jobs import Checkpoints, DataImport, Gpus, Job, Retries, Secret, Volume
from longboat.specs.read import Loaded, read_job

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


class Reader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *texts: str | bytes, environment: Mapping[str, str] | None = None, **more: Any) -> Loaded:
        files = []
        for index, text in enumerate(texts):
            file = self.folder / f"{index}.yaml"
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
            files.append(Path(file.name))
        return read_job(files, environment=environment or {}, cwd=self.folder, **more)

    def job(self, *texts: str, **more: Any) -> Job:
        return self(*texts, **more).job

    def problems(self, *texts: str | bytes, **more: Any) -> list[Problem]:
        with pytest.raises(JobError) as caught:
            self(*texts, **more)
        return caught.value.problems

    def says(self, *texts: str | bytes, **more: Any) -> str:
        return "\n".join(str(problem) for problem in self.problems(*texts, **more))


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    folder = tmp_path / "project"
    folder.mkdir()
    return Reader(folder)


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
    assert len(problems) == 101 and problems[-1].message == "and 39901 more mistakes"


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


def test_variables(read: Reader) -> None:
    environment = {"N": "2", "WHO": "me", "EMPTY": "", "SPACE": "a b"}
    job = read.job(
        "run: echo ${WHO}\nsetup: echo ${WHO}\nnodes: ${N}\nimage: 'reg/${WHO}:${TAG:-latest}'\n"
        "env:\n  A: ${SPACE}\n  B: $${WHO}\n  C: ${EMPTY}\n  D: ${EMPTY:-d}\n  E: $WHO\n  F: ${N}\n"
        "roles: {worker: {run: 'r ${WHO}'}}",
        environment=environment,
    )
    role = job.roles[0]
    assert role.run == "r ${WHO}" and job.setup == "echo ${WHO}"
    assert role.nodes == 2 and role.image == "reg/me:latest"
    assert role.env == {"A": "a b", "B": "${WHO}", "C": "", "D": "d", "E": "$WHO", "F": "2"}


def test_an_undefined_variable_is_one_problem_at_its_place(read: Reader) -> None:
    problems = read.problems("run: x\nnodes: ${N}\nimage: ${\n")
    assert [str(problem).split(": ")[0] for problem in problems] == ["0.yaml:2:8", "0.yaml:3:8"]
    assert "the variable N is not set" in problems[0].message and "${N:-" in str(problems[0].hint)


def test_a_substituted_value_is_not_shown(read: Reader) -> None:
    text = read.says("run: x\nqueue: ${TOKEN}", environment={"TOKEN": "Very Secret"})
    assert "Secret" not in text and "${TOKEN}" in text


def test_secrets_are_never_substituted_nor_shown(read: Reader) -> None:
    environment = {"TOKEN": "s3cret"}
    for text in (
        "secrets: {TOKEN: abc123}",
        'secrets: {TOKEN: "${TOKEN}"}',
        "secrets: [abc-123]",
        "secrets: [TOKEN=abc123]",
        "secrets: abc123",
        "secrets: [hf_abc123abc123abc123abc123]",
        "secrets: {hf_abc123abc123abc123abc123: }",
        "secrets: {TOKEN: {env: 'abc 123'}}",
        "secrets: {TOKEN: {env: [abc123]}}",
        "secrets: {TOKEN: 123}",
    ):
        said = read.problems(f"run: x\n{text}", environment=environment)
        shown = "".join(f"{problem} {problem.hint}" for problem in said)
        assert "123" not in shown and "s3cret" not in shown, text


def test_a_password_in_a_url_is_refused_and_not_shown(read: Reader) -> None:
    for url in ("https://me:hunter2@example.org/x", "ftp://me:hunter2@example.org/x"):
        assert "hunter2" not in read.says(f"run: x\ndata: [{{url: '{url}', to: d}}]")


def test_a_secret_in_env_is_noticed(read: Reader) -> None:
    loaded = read("run: x\nenv: {HF_TOKEN: abc, TOKENIZER: bpe, MAX_TOKENS: 5}")
    assert len(loaded.notices) == 1 and "env.HF_TOKEN" in loaded.notices[0] and "abc" not in loaded.notices[0]


def test_overrides(read: Reader) -> None:
    text = "run: x\nretries: 2\nroles: {ps: {}, worker: {gpus: 1}}\ndata: [{url: 'https://a/b', to: d}]\nqueue: q"
    job = read.job(
        text,
        overrides=[
            "roles.worker.gpus=H100:2",
            "roles.ps=null",
            "retries.on=[oom, 3]",
            "data.0.url=https://c/d",
            "data.1={url: 'https://e/f', to: g}",
            "labels.example.org/team=a",
            'volumes."/mnt/v1.2".path=/x',
            "env.A=#b: c",
            "env.B='08'",
            "env.C=a=b",
            "checkpoints.keep=0",
            "include.0=*.json",
            "queue=null",
            "run=echo 1: 2",
        ],
    )
    assert [role.name for role in job.roles] == ["worker"]
    assert job.roles[0].resources.gpus == Gpus(count=2, type="H100")
    assert job.retries == Retries(count=2, on=("oom", 3))
    assert [data.url for data in job.data] == ["https://c/d", "https://e/f"]
    assert job.labels == {"example.org/team": "a"} and job.volumes == (Volume(target="/mnt/v1.2", path="/x"),)
    assert job.roles[0].env == {"A": "#b: c", "B": "08", "C": "a=b"}
    assert job.checkpoints.keep == 0 and job.include == ("*.json",) and job.queue is None
    assert job.roles[0].run == "echo 1: 2"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("a.b=c", "--set a.b: a: unknown field"),
        ("noeds=2", '--set noeds: noeds: unknown field; did you mean "nodes"?'),
        ("nodes", "--set nodes: expected PATH=VALUE"),
        ("=2", "expected a path"),
        ("a..b=2", "expected a path"),
        ("a.=2", "expected a path"),
        ("nodes=two", '--set nodes: nodes: found the text "two"'),
        ("nodes.x=2", "--set nodes.x: nodes is not a mapping here"),
        ("data.7.url=x", "--set data.7.url: found '7' as the place in a list, expected a number from 0 to 0"),
        ("data.x.url=x", "data"),
        ("env=[1", "--set env"),
        ("roles.worker.gpus={cuont: 1}", "--set roles.worker.gpus: roles.worker.gpus.cuont: unknown field; did you"),
    ],
)
def test_bad_overrides(read: Reader, override: str, says: str) -> None:
    text = "run: x\nnodes: 1\ndata: []"
    assert says in read.says(text, overrides=[override])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: two", '0.yaml:2:8: nodes: found the text "two", expected a whole number from 1 to 10000'),
        ("nodes: -1", "nodes: found the number -1"),
        ("nodes: 0", "nodes: found the number 0"),
        ("nodes: 1.5", "nodes: found the number 1.5"),
        ("nodes: 1e3", "nodes: found the number 1e3"),
        ("nodes: true", "nodes: found true"),
        ("nodes: '2'", 'nodes: found the text "2"'),
        ("nodes: 08", "nodes: found the number 08, expected a whole number from 1 to 10000, without a leading zero"),
        ("nodes: 10001", "from 1 to 10000"),
        ("nodes: " + "9" * 5000, "from 1 to 10000"),
        ("procs: 2000", "from 1 to 1024, or auto"),
        ("procs: aut", "or auto"),
        ("gpu: 2", '0.yaml:2:1: gpu: unknown field; did you mean "gpus"?'),
        ("gpus: -1", "gpus: found the number -1"),
        ("gpus: H100:9999", "at most 1024 GPUs"),
        ("gpus: {count: .nan}", "gpus.count: found the number .nan"),
        ("gpus: {typ: x}", 'gpus.typ: unknown field; did you mean "type"?'),
        ("gpus: [1]", "gpus: found a list"),
        ("memory: 2Pi", "to 1Pi"),
        ("memory: 1", "from 1Mi"),
        ("memory: .inf", "memory: found the number .inf"),
        ("memory: 12:30", 'memory: found the text "12:30"'),
        ("cpus: 0", "from 1m to 4096"),
        ("timeout: 12:30", 'timeout: found the text "12:30", expected a duration'),
        ("timeout: -5", "timeout: found the number -5"),
        ("grace: off", "grace: found the text"),
        ("timeout: 9000d", "to 366d"),
        ("name: My Job", "expected lower-case letters, digits and -"),
        ("name: My Job", "for example my-job"),
        ("name: " + "a" * 41, "at most 40"),
        ("name: 08", "name: found the number 08"),
        ("image: 3", "image: found the number 3"),
        ("image: 'a b; rm -rf /'", "image: found the text"),
        ("queue: 1e-3", "queue: found the number 1e-3"),
        ("framework: pytorch", 'one of torch, tensorflow, jax, mpi, none; did you mean "torch"?'),
        ("framework: no", 'framework: found the text "no"'),
        ("env: [A=1]", "env: found a list"),
        ("env: {A: }", "env.A: found nothing (null)"),
        ("env: {A: {b: c}}", "env.A: found a mapping"),
        ("env: {A-B: 1}", 'env: found the key "A-B"'),
        ('env: {A: "\\0"}', "env.A: found a NUL"),
        ("roles: {Worker: {}}", 'roles: found the key "Worker"'),
        ("roles: {my-role: {}}", "letters and digits"),
        ("roles: {}", "roles: found no role"),
        ("roles: [worker]", "roles: found a list"),
        ("roles: {worker: {timeout: 3}}", "roles.worker.timeout: unknown field"),
        ("ends: [wroker]", 'ends: found "wroker", expected one of the roles worker; did you mean "worker"?'),
        ("ends: []", "ends: found 0 items"),
        ("volumes: {../data: x}", "expected a path without .."),
        ("volumes: {./: x}", "below the working folder"),
        ('volumes: {"~/data": x}', "expected a path such as data"),
        ("volumes: {data: x, ./data/: y}", "are the same target"),
        ("volumes: {/data: {}}", "volumes./data: found none, expected exactly one of"),
        ("volumes: {/data: {claim: a, path: b}}", "found claim and path"),
        ("volumes: {/data: {claim: A_B}}", "volumes./data.claim"),
        ("volumes: {/data: {scratch: yes}}", "volumes./data.scratch: found the text"),
        ("volumes: {/data: {scratch: ram}}", "expected true, false, disk or memory"),
        ("volumes: {/data: {path: x, size: 1Gi}}", "that of a claim that is made or of scratch"),
        ("volumes: {/data: {claim: x, class: fast}}", "found class of a claim that is not made here: size is missing"),
        ("volumes: {/data: {scratch: true, size: 1Gi, access: ReadWriteOnce}}", "found access of a claim"),
        ("volumes: {/data: {claim: x, size: 1Gi, access: rwx}}", "one of ReadWriteOnce, ReadWriteMany"),
        ("volumes: {/data: {claim: x, size: 1Gi, class: A_B}}", "a StorageClass"),
        ("volumes: {/data: x, /data/: y}", "are the same target"),
        ("volumes: {/proc/x: y}", "belongs to the system"),
        ("volumes: {/a/../proc: y}", "without .."),
        ("data: [{url: x, to: y}]", "data.0.url: found the text"),
        ("data: [{to: y}]", 'data.0: the field "url" is missing'),
        ("data: [{url: 'https://a/b', to: ../x}]", "data.0.to: expected a path without .."),
        ("data: [{url: 'https://a/b', to: x, sha256: abc}]", "64 hexadecimal digits"),
        ("retries: {on: [oome]}", 'did you mean "oom"?'),
        ("retries: {on: [timeout]}", "never retried"),
        ("retries: {on: 0}", "from 1 to 255"),
        ("retries: -1", "retries: found the number -1"),
        ("checkpoints: {keep: -1}", "checkpoints.keep"),
        ("checkpoints: 7", "checkpoints: found the number 7"),
        ("artifacts: [/etc/passwd]", "artifacts.0: expected a path relative"),
        ("include: ['../x']", "stays inside"),
        ("labels: {a b: c}", 'labels: found the key "a b"'),
        ("labels: {a: 'b c'}", "labels.a: a label's value"),
        ("aliases: [sky]", "one of skypilot, dstack"),
        ("secrets: {A: {env: B, file: c}}", "secrets.A: found env and file"),
        ("nodes: 10000\nprocs: 1024", "100000"),
        ("roles: {a: {nodes: 9000}, b: {nodes: 9000}}", "at most 10000"),
        ('setup: "a\\0b"', "setup: found a NUL"),
        ('queue: "a\\nb"', "queue: found a control character or more than one line"),
        ("workdir: [a]", "workdir: found a list"),
    ],
)
def test_mistakes(read: Reader, text: str, says: str) -> None:
    assert says in read.says(f"run: x\n{text}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0.yaml:1:1: the file is empty"),
        ("# only a comment", "the file is empty"),
        ("- a\n- b", "expected a mapping"),
        ("just text", "expected a mapping"),
        ("nodes: 2", 'the field "run" is missing'),
        ("run:", 'the field "run" is missing'),
        ("run: ''", 'run: found the text ""'),
        ("run: []", "run: found 0 items"),
        ("run: {a: b}", "run: found a mapping"),
        ("run: [python, 3]", "run.1: found the number 3"),
        ("roles: {a: {run: x}, b: {}}", 'roles.b: the field "run" is missing'),
    ],
)
def test_mistakes_of_whole_files(read: Reader, text: str, says: str) -> None:
    said = read.says(text)
    assert says in said
    assert "\n" not in said, "one mistake was reported more than once"


def test_hints(read: Reader) -> None:
    hints = {p.path: p.hint for p in read.problems("run: x\nnodes: 010\nprocs: '2'\nqueue: 08\nenv: {A: }")}
    assert hints == {
        "nodes": "write 10, or 0o10 if octal is meant",
        "procs": "write it without quotes",
        "queue": 'quote it: "08"',
        "env.A": 'write "" for an empty value',
    }


def test_all_mistakes_at_once_in_the_order_of_the_lines(read: Reader) -> None:
    problems = read.problems("name: X Y\nnode: 2\nrun: x\nname: again\nroles: {ps: {gpus: {n: 1}}}\ntimeout: ${T}\n")
    assert [(problem.line, problem.column, problem.path) for problem in problems] == [
        (1, 7, "name"),
        (2, 1, "node"),
        (4, 1, ""),
        (5, 21, "roles.ps.gpus.n"),
        (6, 10, "timeout"),
    ]
    assert all(problem.file == "0.yaml" for problem in problems)


def test_mistakes_of_several_files_name_their_files(read: Reader) -> None:
    assert [problem.file for problem in read.problems("run: [", "a: 1\na: 2\nb: [")] == ["0.yaml", "1.yaml", "1.yaml"]


def test_files_that_cannot_be_read(read: Reader, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        read_job([tmp_path / "none.yaml"], environment={})
    with pytest.raises(JobError, match="a folder"):
        read_job([tmp_path], environment={})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(JobError, match="not a regular file"):
        read_job([tmp_path / "pipe"], environment={})
    with pytest.raises(JobError, match="not valid"):
        read_job([Path("a\0b")], environment={})


def test_json_file(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text('{"$schema": "x", "run": "python a.py", "nodes": 2, "env": {"A": 1e-3}}')
    job = read_job([file], environment={}).job
    assert job.nodes == 2 and job.roles[0].env == {"A": "1e-3"}
