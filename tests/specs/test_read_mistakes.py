"""Every mistake in a job file, with its place and what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longboat.core.errors import JobError, NotFound
from longboat.core.jobs import Keep
from longboat.specs.read import read_job
from tests.specs.reading import Reader


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: two", '0.yaml:2:8: nodes: found the text "two", expected a whole number from 1 to 10000'),
        ("nodes: 2-", 'nodes: found the text "2-", expected a whole number from 1 to 10000, or a range'),
        ("nodes: 1-100000", "or a range of them such as 2-8"),
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
        ("replicas: 2", '0.yaml:2:1: replicas: unknown field; did you mean "nodes"?'),
        ("num-nodes: 2", 'num-nodes: unknown field; did you mean "nodes"?'),
        ("data: [{from: x, to: y}]", 'data.0.from: unknown field; did you mean "url"?'),
        ("gpus: -1", "gpus: found the number -1"),
        ("gpus: H100:9999", "at most 1024 GPUs"),
        ("gpus: {count: .nan}", "gpus.count: found the number .nan"),
        ("gpus: {typ: x}", 'gpus.typ: unknown field; did you mean "type"?'),
        ("gpus: [1]", "gpus: found a list"),
        ("gpus: H100:0", 'gpus: found "H100:0": a type of GPU and none of them'),
        ("gpus: {type: H100, count: 0}", "gpus: found the count 0 beside a type"),
        ("memory: 2Pi", "to 1Pi"),
        ("memory: 1", "from 1Mi"),
        ("memory: .inf", "memory: found the number .inf"),
        ("memory: 12:30", 'memory: found the text "12:30"'),
        ("cpus: 0", "from 1m to 4096"),
        ("timeout: 12:30", 'timeout: found the text "12:30", expected a duration'),
        ("timeout: -5", "timeout: found the number -5"),
        ("grace: off", "grace: found the text"),
        ("timeout: 9000d", "to 366d"),
        ("name: My Job", "expected a-z, 0-9 and -"),
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
        ("data: [{url: 'https://a/b', to: ./}]", "data.0.to: expected a path below the working folder"),
        ("data: [{url: 'https://a/b', to: ~/x}]", "data.0.to: expected a path in the working folder or in a volume"),
        ("data: [{url: 'https://a/b', to: /etc/x}]", 'data: found "/etc/x", expected a folder in the working copy or'),
        ("data: [{url: 'https://a/b', to: x, sha256: abc}]", "64 hexadecimal digits"),
        ("retries: {on: [oome]}", 'did you mean "oom"?'),
        ("retries: {on: [timeout]}", "never retried"),
        ("retries: {on: 0}", "from 1 to 255"),
        ("checkpoints: .", "found the working folder itself, expected a folder such as ./checkpoints"),
        ("checkpoints: {to: ./x/..}", "checkpoints.to: found the working folder itself"),
        ("gpus: {H100: 8}", "gpus.H100: unknown field; allowed: count, type, memory"),
        ("retries: -1", "retries: found the number -1"),
        ("checkpoints: {keep: -1}", "checkpoints.keep"),
        ("checkpoints: 7", "checkpoints: found the number 7"),
        ("checkpoints: http://example.org/x", "checkpoints: found a URL with http, expected a folder, or s3://BUCKET"),
        ("checkpoints: {to: 'file:///ckpt'}", "checkpoints.to: found a file URL, expected the folder itself"),
        ("checkpoints: {to: 's3://'}", "checkpoints.to: found a URL without the name of a bucket"),
        ("checkpoints: {to: 's3:///name'}", "checkpoints.to: found a URL without the name of a bucket"),
        ("checkpoints: {to: 's3:bucket/name'}", "checkpoints.to: found s3: without //"),
        ("checkpoints: {to: 's3://key:secret@bucket/x'}", "checkpoints.to: found credentials in the URL"),
        ("checkpoints: {to: 'gs://bucket/a?b'}", "checkpoints.to: found ? or # in the name"),
        ("checkpoints: {to: 'az://box/a b'}", "checkpoints.to: found a blank in the URL"),
        ("checkpoints: {to: 's3://bucket/a/../b'}", "checkpoints.to: found //, . or .. in the name"),
        ("checkpoints: {resume: 'https://a/b'}", "checkpoints.resume: found a URL with https"),
        ("artifacts: [/etc/passwd]", "artifacts.0: expected a path relative"),
        ("include: ['../x']", "stays inside"),
        ("labels: {a b: c}", 'labels: found the key "a b"'),
        ("labels: {a: 'b c'}", "labels.a: a label's value"),
        ("aliases: [sky]", "one of skypilot, dstack"),
        ("secrets: {A: {env: B, file: c}}", "secrets.A: found env and file"),
        ("nodes: 10000\nprocs: 1024", "100000"),
        ("roles: {a: {nodes: 9000}, b: {nodes: 9000}}", "at most 10000"),
        ('setup: "a\\0b"', "setup: found a NUL"),
        ("setup: " + "a" * 100_001, "setup: found 100,001 characters, expected at most 100,000"),
        ("env: {A: " + "a" * 100_001 + "}", "env.A: found 100,001 characters, expected at most 100,000"),
        ('queue: "a\\nb"', "queue: found a control character or more than one line"),
        ("workdir: [a]", "workdir: found a list"),
        ("sweep: {x: {min: 0.0, max: 1.0e308, step: 1.0e-300}}", "sweep.x: found bounds too far apart"),
        ("sweep: {x: {min: -1.0e308, max: 1.0e308}, trials: 1}", "sweep.x: found bounds too far apart"),
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
        ("roles: {A: {}}", 'roles: found the key "A"'),
        ("roles: {}", "roles: found no role"),
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
    (problem,) = read.problems("run: x\ngpus: {H100: 8}")
    assert problem.hint == "write H100:8"


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


def test_keep_names_its_metric(read: Reader) -> None:
    (problem,) = read.problems("run: x\ncheckpoints: {keep: {last: 2, best: 1}}")
    assert (problem.path, problem.message) == ("checkpoints.keep", "the best of which metric?")
    keep = read("run: x\ncheckpoints: {keep: {last: 2, metric: loss, goal: min, every: 1h}}").job.checkpoints.keep
    assert keep == Keep(last=2, best=1, metric="loss", goal="min", every_s=3600.0)
    assert read("run: x\ncheckpoints: {keep: {last: 2}}").job.checkpoints.keep == 2


def test_json_file(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text('{"$schema": "x", "run": "python a.py", "nodes": 2, "env": {"A": 1e-3}}')
    job = read_job([file], environment={}).job
    assert job.nodes == 2 and job.roles[0].env == {"A": "1e-3"}


def test_a_field_by_its_name_elsewhere_is_not_missing_too(read: Reader) -> None:
    (problem,) = read.problems("name: j\ncommand: python train.py")
    assert str(problem) == '0.yaml:2:1: command: unknown field; did you mean "run"?'


def test_no_hint_that_is_refused_too(read: Reader) -> None:
    """`name: "123"` is no better than `name: 123`; for other texts quotes do help."""
    for text, hint in (("name: 123", "for example job-123"), ("queue: 123", 'quote it: "123"')):
        with pytest.raises(JobError) as caught:
            read(f"run: x\n{text}")
        assert caught.value.problems[0].hint == hint
