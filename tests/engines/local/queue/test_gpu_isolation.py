"""Which device files a node may not open, and why this machine may be unable to hide them. Values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import EngineError, Refused
from longboat.doctor.checks.machine import CHECKS
from longboat.doctor.examination import judge
from longboat.doctor.facts import MACHINE, Seen
from longboat.doctor.findings import Finding
from longboat.doctor.observe.machine import machine_facts
from longboat.engines.engine import Submission
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.queue import gpu_isolation
from longboat.engines.local.queue.gpu_isolation import (
    IsolationProblem,
    device_files,
    hidden_devices,
    isolated,
    node_devices,
    why_not,
)
from longboat.engines.local.queue.machine import Gpu
from longboat.engines.local.settings import LocalSettings
from longboat.engines.shared.home import Home
from tests.engines.local.values import job

FILES = {n: f"/dev/nvidia{n}" for n in range(4)}
GPUS = [Gpu(id=f"GPU-{n}", index=n, minor=3 - n) for n in range(4)]
STATED = Gpu(id="MIG-7", index=0, is_stated=True)


def test_device_files_are_those_of_gpus_by_number(tmp_path: Path) -> None:
    names = ("nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvram", "null")
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "nvidia-caps").mkdir()
    assert device_files(tmp_path) == {0: f"{tmp_path}/nvidia0", 10: f"{tmp_path}/nvidia10"}


def test_without_a_driver_there_are_no_device_files(tmp_path: Path) -> None:
    assert device_files(tmp_path) == {}


def test_a_node_opens_the_devices_of_its_run_and_no_others() -> None:
    own = GPUS[0]
    assert hidden_devices(FILES, [own], [own]) == ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"]
    # GPUs of one run talk to each other directly: each node may open those of its peers.
    assert hidden_devices(FILES, [own], GPUS[:2]) == ["/dev/nvidia0", "/dev/nvidia1"]
    assert hidden_devices(FILES, GPUS, GPUS) == []


def test_a_node_without_gpus_opens_none_though_its_run_has_some() -> None:
    assert hidden_devices(FILES, [], GPUS[:1]) == list(FILES.values())
    assert hidden_devices(FILES, [], [STATED]) == list(FILES.values())


def test_a_gpu_without_a_known_device_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="the device file of GPU MIG-7 is not known"):
        hidden_devices(FILES, [STATED], [STATED])
    assert hidden_devices({}, [STATED], [STATED]) == []  # stated on a machine that has none
    monkeypatch.setattr(gpu_isolation, "device_files", lambda: FILES)
    assert node_devices("auto", [STATED], [STATED]) == []
    with pytest.raises(EngineError, match="is not known"):
        node_devices("required", [STATED], [STATED])


def test_off_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_isolation, "device_files", lambda: FILES)
    assert node_devices("off", [], []) == []
    assert node_devices("auto", [], []) == node_devices("required", [], []) == list(FILES.values())


def test_a_command_is_wrapped_only_where_there_is_something_to_hide() -> None:
    assert isolated([], ["ls", "-l"], is_required=True) == ["ls", "-l"]
    wrapped = isolated(["/dev/a", "/dev/b"], ["/bin/ls", "-l"], is_required=False)
    assert wrapped[-5:] == ["--isolated", "auto", "/dev/a,/dev/b", "/bin/ls", "-l"]


@pytest.mark.parametrize(
    ("name", "value", "command"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000"),
    ],
)
def test_the_setting_that_forbids_user_namespaces_is_named(tmp_path: Path, name: str, value: str, command: str) -> None:
    (tmp_path / "kernel").mkdir()
    (tmp_path / "user").mkdir()
    (tmp_path / "user/max_user_namespaces").write_text("63000\n")
    (tmp_path / name).write_text(value + "\n")
    problem = why_not("mount: Permission denied", is_root=False, sysctls=tmp_path)
    assert name.replace("/", ".") in problem.reason and command in problem.hint


def test_other_reasons_are_what_the_kernel_said(tmp_path: Path) -> None:
    said = "unshare: Operation not permitted"
    assert said in why_not(said, is_root=False, sysctls=tmp_path).reason
    assert "CAP_SYS_ADMIN" in why_not(said, is_root=True, sysctls=tmp_path).hint


PROBLEM = IsolationProblem(reason="no user namespaces here", hint="run it as root")


def finding_of(folder: Path, setting: Any) -> Finding:
    """What the doctor says of the isolation on this machine."""
    facts = machine_facts(Home(folder), os.environ, LocalSettings(gpu_isolation=setting))
    return next(each for each in judge(CHECKS, Seen({MACHINE: facts})) if each.name == "gpu isolation")


@pytest.mark.parametrize(
    ("setting", "problem", "status", "detail"),
    [
        ("auto", None, "ok", "enforced: "),
        ("auto", PROBLEM, "warning", "not enforced: no user namespaces here"),
        ("required", PROBLEM, "broken", "not enforced: no user namespaces here"),
        ("off", None, "warning", "off: "),
    ],
)
def test_the_doctor_says_whether_it_is_enforced(monkeypatch, tmp_path, setting, problem, status, detail) -> None:
    monkeypatch.setattr(gpu_isolation, "device_files", lambda: FILES)
    monkeypatch.setattr(gpu_isolation, "find_problem", lambda devices: problem)
    check = finding_of(tmp_path, setting)
    assert (check.status, check.detail.startswith(detail), bool(check.hint)) == (status, True, status != "ok")


def test_the_doctor_on_a_machine_without_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu_isolation, "device_files", dict)
    assert finding_of(tmp_path, "required").status == "ok"


def test_what_is_required_and_cannot_be_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_isolation, "device_files", lambda: FILES)
    monkeypatch.setattr(gpu_isolation, "find_problem", lambda devices: PROBLEM)
    engine = LocalEngine(tmp_path / "home", settings=LocalSettings(gpu_isolation="required"))
    with pytest.raises(Refused, match="gpu_isolation` is required: no user namespaces here") as refused:
        engine.submit(Submission(job=job(), base=str(tmp_path)))
    assert "run it as root" in str(refused.value.hint)
