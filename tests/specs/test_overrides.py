"""`--set PATH=VALUE`: what it changes, and paths that lead nowhere."""

from __future__ import annotations

import pytest

from longboat.core.jobs import Gpus, Retries, Volume
from tests.specs.reading import Reader


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
        (
            "data.\u00b2.url=x",
            "--set data.\u00b2.url: found '\u00b2' as the place in a list, expected a number from 0 to 0",
        ),
        ("data.7.url=x", "--set data.7.url: found '7' as the place in a list, expected a number from 0 to 0"),
        ("data.x.url=x", "data"),
        ("env=[1", "--set env"),
        ("roles.wroker.nodes=2", '--set roles.wroker.nodes: there is no role wroker; did you mean "worker"?'),
        ("roles.worker.gpus={cuont: 1}", "--set roles.worker.gpus: roles.worker.gpus.cuont: unknown field; did you"),
    ],
)
def test_bad_overrides(read: Reader, override: str, says: str) -> None:
    text = "run: x\nnodes: 1\ndata: []"
    assert says in read.says(text, overrides=[override])


def test_a_role_more_is_nobodys_typing_mistake(read: Reader) -> None:
    text = "run: x\nroles: {trainer: {nodes: 2}, ps: {}}"
    assert "there is no role traner" in read.says(text, overrides=["roles.traner.nodes=4"])
    assert [role.name for role in read.job(text, overrides=["roles.eval.nodes=1"]).roles] == ["trainer", "ps", "eval"]
    assert len(read.job(text, overrides=["roles.trainers={nodes: 1}"]).roles) == 3
