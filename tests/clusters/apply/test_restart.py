"""A host that is restarted is waited for; one that does not come back is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.clusters.apply import restart
from longboat.clusters.apply.execute import Execution
from longboat.clusters.apply.step_log import StepEvent
from longboat.clusters.hosts.connection import CommandResult, HostUnreachable, Line
from longboat.clusters.plan.steps import RESTART_HELPS, ClusterPlan, HostPlan, Step


class Machine:
    """Works after `boots` restarts; is off for some looks after each; `off_s` for ever if it never returns."""

    def __init__(self, boots: int, *, returns: bool = True, code: int = RESTART_HELPS, boot: str = "boot") -> None:
        self.name, self.boots, self.returns, self.code, self.boot = "w-0", boots, returns, code, boot
        self.restarts, self.off = 0, 0

    def run(
        self, script: str, *, stdin: bytes | Path = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        if self.off:
            self.off -= 1 if self.returns else 0
            raise HostUnreachable(self.name, "no route to host")
        if "systemctl reboot" in script:
            self.restarts, self.off = self.restarts + 1, 3
        if "boot_id" in script:
            return CommandResult(code=0, stdout=f"{self.boot} {self.restarts or ''}\n", stderr="")
        works = "nvidia-smi" not in script or self.restarts >= self.boots
        return CommandResult(code=0 if works else self.code, stdout="", stderr="" if works else "error: no driver")

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "_LOOK_S", 0.0)


def execute(machine: Machine) -> list[str]:
    step = Step(host="w-0", name="restart", title="", script="nvidia-smi", kind="restart")
    plan = ClusterPlan(hosts=(HostPlan(host="w-0", steps=(step,)),))
    events: list[StepEvent] = []
    return [each.message for each in Execution({"w-0": machine}, lambda _: b"", events.append).run(plan)]


@pytest.mark.parametrize(("boots", "restarts"), [(0, 0), (1, 1)])
def test_a_host_is_restarted_only_if_it_must_be(boots: int, restarts: int) -> None:
    machine = Machine(boots)
    assert execute(machine) == [] and machine.restarts == restarts


def test_a_driver_that_does_not_work_after_a_restart_is_a_failure() -> None:
    machine = Machine(2)
    assert execute(machine) == ["error: no driver"] and machine.restarts == 1


def test_a_failure_that_a_restart_does_not_mend_restarts_nothing() -> None:
    machine = Machine(1, code=1)
    assert execute(machine) == ["error: no driver"] and machine.restarts == 0


def test_the_machine_that_runs_the_command_is_never_restarted() -> None:
    machine = Machine(1, boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    (failure,) = execute(machine)
    assert "the machine that this command runs on" in failure and machine.restarts == 0


def test_a_host_that_does_not_come_back_is_named() -> None:
    with pytest.raises(HostUnreachable, match=r"w-0: not back 0 s after a restart: no route to host"):
        restart.restart(Machine(1, returns=False), timeout_s=0)
