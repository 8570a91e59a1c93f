"""This machine: healthy, and with what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from longboat.doctor.checks.machine import CHECKS
from longboat.doctor.examination import judge
from longboat.doctor.facts import MACHINE, Seen
from longboat.doctor.findings import Finding
from longboat.doctor.observe.machine import machine_facts
from longboat.doctor.values import ContainerProgram, MachineFacts
from longboat.engines.local.queue.gpu_isolation import IsolationProblem
from longboat.engines.local.queue.machine import Gpu, LocalMachine
from longboat.engines.shared.home import Home

FIT = MachineFacts(
    machine=LocalMachine(cpus=8.0, memory=32 << 30, shm=16 << 30, disk=100 << 30, gpus=()),
    python="3.12.1",
    executable="/usr/bin/python3",
    home="/home/anna/.longboat",
    runs=3,
    trainer_python="/usr/bin/python3",
    git="/usr/bin/git",
    containers=ContainerProgram(program="podman", version="5.0"),
)


def of(facts: MachineFacts) -> dict[str, Finding]:
    return {finding.name: finding for finding in judge(CHECKS, Seen({MACHINE: facts}))}


def test_a_machine_that_is_fit() -> None:
    assert {finding.status for finding in of(FIT).values()} == {"ok"}


@pytest.mark.parametrize(
    ("name", "change", "status", "words"),
    [
        ("home", {"home_error": "read-only"}, "broken", "read-only"),
        ("disk", {"machine": LocalMachine(cpus=1.0, memory=1, shm=None, disk=5, gpus=())}, "broken", "free"),
        ("trainer's python", {"trainer_python": None}, "warning", "no python"),
        ("git", {"git": None}, "warning", ".gitignore"),
        ("loopback", {"has_loopbacks": False}, "ok", "127.0.0.1"),
        ("processes", {"has_processes": False}, "warning", "/proc"),
        (
            "shared memory",
            {"machine": LocalMachine(cpus=1.0, memory=1, shm=64 << 20, disk=1 << 40, gpus=())},
            "warning",
            "64Mi",
        ),
        ("gpus", {"gpu_devices": 2}, "broken", "2 device files"),
        ("gpu isolation", {"gpu_devices": 2, "isolation": "off"}, "warning", "off"),
        ("containers", {"containers": ContainerProgram(error="podman does not work")}, "broken", "does not work"),
        ("containers", {"containers": ContainerProgram(why_not="not installed")}, "ok", "without their `image`"),
        ("containers", {"containers": ContainerProgram(program="podman", unnamed_gpus=1)}, "warning", "CDI"),
    ],
)
def test_what_is_missing(name: str, change: dict[str, object], status: str, words: str) -> None:
    finding = of(msgspec.structs.replace(FIT, **change))[name]
    assert finding.status == status and words in finding.detail
    assert bool(finding.hint) == (status != "ok")


def test_gpu_isolation_that_is_not_enforced() -> None:
    problem = IsolationProblem(reason="no user namespaces", hint="sysctl")
    facts = msgspec.structs.replace(FIT, gpu_devices=1, isolation_problem=problem)
    assert of(facts)["gpu isolation"].status == "warning"
    assert of(msgspec.structs.replace(facts, isolation="required"))["gpu isolation"].status == "broken"
    assert of(msgspec.structs.replace(facts, isolation_problem=None))["gpu isolation"].status == "ok"
    one = LocalMachine(cpus=1.0, memory=1, shm=None, disk=1 << 40, gpus=(Gpu(id="a", index=0, type="H200"),))
    assert of(msgspec.structs.replace(facts, machine=one))["gpus"].detail == "1 (0: H200)"


def test_the_machine_itself(tmp_path: Path) -> None:
    found = of(machine_facts(Home(tmp_path / "home"), {**os.environ, "LONGBOAT_GPUS": "a"}))
    assert found["home"].status == "ok" and str(tmp_path) in found["home"].detail
    assert found["gpus"].status == "ok" and "a" in found["gpus"].detail
    assert not list((tmp_path / "home").glob(".probe*"))


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = of(machine_facts(Home(tmp_path / "file" / "home"), {"PATH": "", "LONGBOAT_GPUS": ""}))
    assert found["home"].status == "broken" and "is no folder" in found["home"].detail
    assert found["git"].status == "warning" and found["trainer's python"].status == "warning"
