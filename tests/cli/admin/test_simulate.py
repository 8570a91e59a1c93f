"""`longboat autoscaler simulate`, as a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from longboat.simulator.results import PolicyFigures
from tests.cli.conftest import Longboat
from tests.simulator.test_recorded import pod, record, seen

POOLS = "pools: [{name: a100, max: 20, price: 32.8, boot: 5m, machine: {cpus: 96, memory: 1000Gi, gpus: 8}}]\n"
KEYS = [
    "gpu_hours_provisioned", "gpu_hours_requested", "gpu_hours_held_by_partial_gangs", "gpu_hours_lost", "cost",
    "wait_p50_s", "wait_p99_s", "gang_wait_p99_s", "turnaround_mean_s", "training_evictions", "evictions", "flaps",
    "decide_cpu_s", "jobs_finished",
]  # fmt: skip
ALL = ("longboat", "cluster-autoscaler", "karpenter", "ec2-autoscaler", "static", "oracle")


@pytest.fixture
def simulate(longboat: Longboat) -> Longboat:
    (longboat.folder / "pools.yaml").write_text(POOLS)
    (longboat.folder / "jobs.csv").write_text("timestamp,duration,num_gpus\n0,1000,1\n4000,100,16\n")
    return longboat


START = ("autoscaler", "simulate")


def test_one_policy_gives_one_object(simulate: Longboat) -> None:
    found = json.loads(simulate(*START, "jobs.csv", "--pools", "pools.yaml", "-o", "json").out)
    assert list(found) == KEYS == list(PolicyFigures.__struct_fields__)
    assert (found["jobs_finished"], found["wait_p99_s"], found["training_evictions"]) == (2, 300.0, 0)


def test_several_policies_side_by_side(simulate: Longboat) -> None:
    several = ("--policy", "longboat,oracle", "--policy", "karpenter")
    done = simulate(*START, "jobs.csv", "--pools", "pools.yaml", *several, "-o", "json")
    found = json.loads(done.out)
    assert list(found) == ["longboat", "oracle", "karpenter"]
    assert all(list(one) == KEYS for one in found.values())
    assert "karpenter: models made from documented rules" in done.err
    table = simulate(*START, "jobs.csv", "--pools", "pools.yaml", "--policy", "all").out
    head, *rows = table.splitlines()
    assert [name in head for name in ALL] == [True] * len(ALL)
    assert "karpenter (model)" in head
    assert any(row.startswith("GPU-hours, x oracle") for row in rows)


@pytest.mark.parametrize("name", ["picture.svg", "picture.html"])
def test_a_picture(simulate: Longboat, name: str) -> None:
    more = ("--policy", "longboat", "--policy", "oracle", "--picture", name)
    simulate(*START, "jobs.csv", "--pools", "pools.yaml", *more)
    text = (simulate.folder / name).read_text()
    svg = text[text.index("<svg") : text.index("</svg>") + 6]
    drawn = ET.fromstring(svg)
    assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    assert "longboat: " in svg


def test_tuning_shows_the_curve(simulate: Longboat) -> None:
    done = simulate(
        *START, "generate:bursts", "--jobs", "60", "--pools", "pools.yaml", "--tune", "--picture", "c.svg", "-o", "json"
    )
    found = json.loads(done.out)
    assert {(one["settings"]["idle_s"], one["settings"]["spare"]) for one in found} >= {
        (600.0, 0),
        (0.0, 0),
        (600.0, 2),
    }
    best = sorted((one["gpu_hours_provisioned"], one["wait_p99_s"]) for one in found if one["is_best"])
    assert best
    waits = [wait for _, wait in best]
    assert waits == sorted(waits, reverse=True)
    assert (simulate.folder / "c.svg").read_text().count("<circle") == len(found)
    table = simulate(*START, "jobs.csv", "--pools", "pools.yaml", "--tune").out
    assert table.splitlines()[0].split()[:3] == ["IDLE", "SPARE", "GPU-HOURS"]


def test_a_generated_trace_is_written_and_read_again(simulate: Longboat) -> None:
    simulate(*START, "generate:sweeps", "--seed", "4", "--jobs", "30", "--write-trace", "s.csv")
    arguments = ("--pools", "pools.yaml", "-o", "json")
    read = json.loads(simulate(*START, "s.csv", *arguments).out)
    made = json.loads(simulate(*START, "generate:sweeps", "--seed", "4", "--jobs", "30", *arguments).out)
    del read["decide_cpu_s"], made["decide_cpu_s"]
    assert read == made


def test_a_recorded_cluster(simulate: Longboat) -> None:
    folder = simulate.folder / "last-week"
    folder.mkdir()
    record(Path(folder), seen(0.0, 1, pod("a", 2, "n0", created=0.0)), seen(3600.0, 1, pod("a", 2, "n0", created=0.0)))
    found = json.loads(simulate(*START, "--from-cluster", "last-week", "-o", "json").out)
    assert found["recorded"]["gpu_hours_provisioned"] == 8
    assert found["longboat"]["jobs_finished"] == 1


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (
            ("jobs.csv", "--pools", "pools.yaml", "--policy", "karpentier"),
            "no such policy: karpentier",
            "did you mean karpenter?",
        ),
        (("none.csv", "--pools", "pools.yaml"), "none.csv: no such file", "generate:philly"),
        (("generate:phily", "--pools", "pools.yaml"), "no such generator: phily", "did you mean generate:philly?"),
        (("jobs.csv",), "the option --pools is missing", "--pools"),
        ((), "the argument TRACE is missing", "jobs.csv"),
        (("jobs.csv", "--from-cluster", "x", "--pools", "pools.yaml"), "exclude each other", "name one"),
        (("jobs.csv", "--pools", "pools.yaml", "--picture", "p.png"), "an .svg or an .html file", "demand.svg"),
        (("jobs.csv", "--pools", "pools.yaml", "--scheduler", "best"), "no such ranking: best", "most-allocated"),
        (("jobs.csv", "--pools", "pools.yaml", "--interval", "0"), "--interval", "10s"),
        (("cpu.csv", "--pools", "cpu.yaml"), "no pool has machines with GPUs", "gpus: 8"),
        (("bad.csv", "--pools", "pools.yaml"), "bad.csv:2:1: timestamp: not a time: 'x'", ""),
    ],
)
def test_mistakes(simulate: Longboat, arguments: tuple[str, ...], said: str, hint: str) -> None:
    (simulate.folder / "bad.csv").write_text("timestamp,duration,num_gpus\nx,1,1\n")
    (simulate.folder / "cpu.csv").write_text("timestamp,duration,num_gpus\n1,1,1\n")
    (simulate.folder / "cpu.yaml").write_text("pools: [{name: c, max: 2, machine: {cpus: 4, memory: 1Gi}}]\n")
    done = simulate(*START, *arguments, code=None)
    assert done.code in (201, 202)
    assert f"error: {said}" in done.err or said in done.err
    assert hint in done.err
    assert "Traceback" not in done.err
