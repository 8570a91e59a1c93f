"""Nodes offer the GPUs of their hosts, and a pod sees them: what is asked, told and remembered. Simulated hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.clusters.apply import answers, gpu_verification
from longboat.clusters.apply.gpu_verification import GpuVerification, count_gpus, job_of, verified_key
from longboat.clusters.apply.step_log import StepEvent
from longboat.clusters.hosts.connection import CommandFailed, CommandResult, Line
from longboat.clusters.observe.facts import GpuDevice
from tests.clusters.worlds import bare, cluster

LISTED = "GPU 0: NVIDIA H200 (UUID: GPU-1)\n  MIG 1g.18gb Device 0: (UUID: MIG-1)\nGPU 1: NVIDIA H200 (UUID: GPU-2)\n"
TABLE = "+---+\n| NVIDIA-SMI |\n+---+"
SPEC = cluster(workers=1, addons=("gpu",))
RUNNING = {"metadata": {"name": "pod-1"}, "status": {"phase": "Running"}}


class World:
    """A control plane and a GPU host; `offers`: GPUs of the node at each look, the last one from then on."""

    def __init__(
        self, *, offers: tuple[int, ...] = (2,), after: str = LISTED, pod: dict[str, Any] = RUNNING, trouble: str = ""
    ) -> None:
        self.offers: Iterator[int] = iter(offers)
        self.offered, self.after, self.pod = offers[0], after, pod
        self.asked: list[str] = []
        self.trouble = trouble
        """What the control plane says the first time that it is asked something, in place of an answer."""

    def answer(self, host: str, script: str) -> str:
        answers = {
            "allocatable": self._offer,
            "get pods": lambda: json.dumps({"items": [self.pod]}),
            "logs pod-1": lambda: TABLE,
            "exec pod-1": lambda: self.after,
            "create -f -": str,
            "delete job": str,
            "daemon-reload": str,
            "\ndone_with": str,
            "nvidia-smi -L": lambda: LISTED,
        }
        word = next(word for word in answers if word in script)
        is_first = f"{host} {word.strip()}" not in self.asked
        self.asked.append(f"{host} {word.strip()}")
        if self.trouble and is_first and host == "cp-0":
            raise CommandFailed(host, CommandResult(code=1, stdout="", stderr=self.trouble))
        return answers[word]()

    def _offer(self) -> str:
        self.offered = next(self.offers, self.offered)
        return str(self.offered)


class Simulated:
    def __init__(self, name: str, world: World) -> None:
        self.name, self.world = name, world

    def run(
        self, script: str, *, stdin: bytes | Path = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        try:
            return CommandResult(code=0, stdout=self.world.answer(self.name, script), stderr="")
        except CommandFailed as error:
            return error.result

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_verification, "LOOK_S", 0.0)
    monkeypatch.setattr(answers, "_LOOK_S", 0.0)
    monkeypatch.setattr(gpu_verification, "OFFERED_S", 0.05)
    monkeypatch.setattr(gpu_verification, "POD_S", 0.05)


def verify(world: World, done: tuple[tuple[str, str], ...] = ()) -> GpuVerification:
    facts = {"cp-0": bare("cp-0"), "w-0": bare("w-0", gpus=(GpuDevice(bus="b", device="0x2335"),), done=done)}
    events: list[StepEvent] = []
    work = GpuVerification(SPEC, {name: Simulated(name, world) for name in facts}, facts, events.append)
    work.run()
    return work


def test_a_pod_sees_all_gpus_before_and_after_daemon_reload_and_goes() -> None:
    world = World(offers=(0, 0, 2))
    work = verify(world)
    assert not work.failures
    assert [(report.host, report.gpus, report.table) for report in work.reports] == [("w-0", 2, TABLE)]
    pod = world.asked[world.asked.index("cp-0 create -f -") :]
    assert pod == [
        "cp-0 create -f -", "cp-0 get pods", "cp-0 logs pod-1", "w-0 daemon-reload", "cp-0 exec pod-1",
        "cp-0 delete job", "w-0 done_with",
    ]  # fmt: skip


def test_an_api_server_that_does_not_answer_says_nothing_about_gpus() -> None:
    work = verify(World(trouble="The connection to the server 10.0.0.1:6443 was refused"))
    assert not work.failures and [report.table for report in work.reports] == [TABLE]


def test_an_answer_that_will_not_change_is_not_asked_for_again() -> None:
    world = World(trouble='Error from server (NotFound): nodes "w-0" not found')
    (failure,) = verify(world).failures
    assert "not found" in failure.message and world.asked.count("cp-0 allocatable") == 1


def test_what_was_shown_before_is_only_counted() -> None:
    world = World()
    work = verify(world, done=(("gpus", verified_key(SPEC, LISTED)),))
    assert [report.table for report in work.reports] == [""]
    assert world.asked == ["w-0 nvidia-smi -L", "cp-0 allocatable"]


def test_fewer_gpus_than_the_host_has_is_a_failure_with_what_the_plugin_says() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such host"}}}
    work = verify(World(offers=(1,), pod={"status": {"phase": "Pending", "containerStatuses": [waiting]}}))
    (failure,) = work.failures
    assert failure.message == (
        "nvidia-smi lists 2 GPUs, the node offers 1; the device plugin: ImagePullBackOff no such host"
    )
    assert "Xid" in failure.hint


def test_devices_that_are_lost_by_daemon_reload_are_a_failure_and_the_pod_goes() -> None:
    world = World(after="Failed to initialize NVML: Unknown Error\n")
    (failure,) = verify(world).failures
    assert failure.message == "after systemctl daemon-reload a pod sees 0 of its 2 GPUs"
    assert world.asked[-1] == "cp-0 delete job"


def test_gpus_that_somebody_uses_are_no_failure_and_tried_another_time() -> None:
    world = World(pod={"status": {"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "x"}})
    work = verify(world)
    assert not work.failures and "in use" in work.reports[0].note
    assert "w-0 done_with" not in world.asked


def test_a_container_that_does_not_start_is_told_with_its_reason() -> None:
    ended = {"state": {"terminated": {"reason": "StartError", "message": "unresolvable CDI devices"}}}
    (failure,) = verify(World(pod={"status": {"phase": "Failed", "containerStatuses": [ended]}})).failures
    assert "does not run: StartError unresolvable CDI devices" in failure.message


def test_instances_of_a_divided_gpu_are_not_gpus() -> None:
    assert count_gpus(LISTED) == 2


def test_the_pod_may_do_nothing_but_look() -> None:
    pod = job_of(SPEC, "w-0", 2)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert container["securityContext"]["runAsNonRoot"] and not container["securityContext"].get("privileged")
    assert pod["automountServiceAccountToken"] is False and "volumes" not in pod
