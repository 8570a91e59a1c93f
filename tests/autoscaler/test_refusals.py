"""Providers that refuse, each kind in its way, on a real cluster with simulated machines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.autoscaler.model.snapshot import Pool, ProviderFailure
from longboat.autoscaler.observe.orders import OrderStore
from longboat.autoscaler.providers.kwok import KwokProvider, SimulatedFault
from longboat.autoscaler.providers.provider import Instance, MachineRequest, ProviderError
from longboat.autoscaler.report.events import Events
from longboat.kubeapi.kinds import EVENT
from tests.autoscaler.stages import Stage, job_of, wait_for
from tests.autoscaler.test_service import Command

pytestmark = [pytest.mark.cluster]


def failures(stage: Stage) -> tuple[ProviderFailure, ...]:
    return OrderStore(stage.client, stage.namespace).load().failures


class Throttled(KwokProvider):
    """A cloud that wants to be asked more slowly: every order is taken at the third attempt."""

    asked = 0

    def grow(self, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        self.asked += 1
        if self.asked < 3:
            raise ProviderError("slower, please", kind="throttled")
        return super().grow(pool, request)


def test_who_throttles_is_asked_again_later_and_no_dearer_pool_is_taken_instead(stage: Stage) -> None:
    label = {"class": stage.prefix}
    cheap = stage.pool("cheap", price=1.0, zones=("a", "b"), machine={"labels": label})
    dear = stage.pool("dear", price=9.0, provider="other", machine={"labels": label})
    stage.client.create(job_of("train", stage.namespace, label, pods=2))  # no gang, so each zone gets one
    provider = Throttled(stage.client, stage.namespace)
    both = {"kwok": provider, "other": KwokProvider(stage.client, stage.namespace)}
    with stage.scaling(stage.config(cheap, dear), provider=both) as told:
        wait_for("it runs", lambda: len(stage.pods("Running")) == 2)
    assert {one.pool for one in stage.machines()} == {cheap.name}
    assert provider.asked == 4, "once, once more, and then for both zones: the second zone was not asked in vain"
    assert [bool(result.trouble) for result in told.results("grow")] == [True, True, False]
    words = [one.reason for turn in told.turns for one in turn.plan.waiting]
    assert any("a little later" in text and "slower, please" in text for text in words)
    assert failures(stage) == ()


def test_without_rights_a_pool_is_off_until_somebody_says_otherwise(stage: Stage, tmp_path: Path) -> None:
    pool = stage.pool("gpu")
    stage.fault(SimulatedFault(pool=pool.name, kind="auth"))
    stage.job("train")
    said: list[str] = []
    config = stage.config(pool)
    with stage.scaling(config, listeners=(Events(stage.client, stage.namespace, said.append),)) as told:
        wait_for("it is off", lambda: failures(stage))
        stage.fault()
        before = len(told.turns)
        wait_for("more loops", lambda: len(told.turns) > before + 3)
        assert len(told.results("grow")) == 1, "it is not asked again by itself"
        note = told.turns[-1].plan.pools[0]
        assert "off because of auth" in note.reason and f"longboat autoscaler retry {pool.name}" in note.reason
        assert [(one.kind, one.until) for one in note.backoffs] == [("auth", None)]
        mine = [one.reason for one in told.turns[-1].plan.waiting if f"{stage.namespace}/" in str(one.run or one.pod)]
        assert len(mine) == 1 and "off because of auth" in mine[0]
        assert said == [] and "PoolOff" in {one["reason"] for one in events(stage)}
        command = Command(stage, tmp_path)
        assert "is not in backoff" in command("retry", "nothing", code=202)
        assert command("retry", pool.name).split() == [pool.name]
        wait_for("it runs", lambda: len(stage.pods("Running")) == 1)
    assert failures(stage) == () and command("retry") == ""


def test_a_change_in_the_pools_file_has_a_pool_asked_again(stage: Stage) -> None:
    pool = stage.pool("gpu")
    stage.fault(SimulatedFault(pool=pool.name, kind="auth"))
    stage.job("train")
    with stage.scaling(stage.config(pool)):
        wait_for("it is off", lambda: failures(stage))
    stage.fault()
    with stage.scaling(stage.config(pool)) as told:  # a new process alone changes nothing
        wait_for("some loops", lambda: len(told.turns) > 3)
        assert not told.results("grow")
    with stage.scaling(stage.config(msgspec.structs.replace(pool, max=pool.max + 1))):
        wait_for("it runs", lambda: len(stage.pods("Running")) == 1)


class Forgetful(KwokProvider):
    """It says of every machine that is to be deleted that there is none; the second time it is right."""

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        super().shrink(pool, machines, tokens)
        raise ProviderError("InvalidInstanceID.NotFound", kind="not-found")


def test_a_machine_that_is_not_there_is_deleted(stage: Stage) -> None:
    provider = Forgetful(stage.client, stage.namespace)
    with stage.scaling(stage.config(stage.pool("gpu")), provider=provider) as told:
        stage.job("train", run_for="0.1s")
        wait_for("it has ended", lambda: stage.is_done("train"))
        wait_for("all machines are gone", lambda: not stage.machines() and not stage.nodes())
    *before, last = [result.trouble for result in told.results("delete")]
    assert last == "" and all("looked at again in the next loop" in trouble for trouble in before)
    assert failures(stage) == ()


class Jailed(KwokProvider):
    """Who may not delete here."""

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        raise ProviderError("not authorized to terminate", kind="auth")


def test_who_may_not_delete_does_not_buy(stage: Stage) -> None:
    provider = Jailed(stage.client, stage.namespace)
    with stage.scaling(stage.config(stage.pool("gpu")), provider=provider) as told:
        stage.job("first", run_for="0.1s")
        wait_for("it is off", lambda: failures(stage))
        stage.job("second", pods=2)
        wait_for("it is refused", lambda: "off because of auth" in " ".join(reasons(told.turns[-1])))
    assert sum(result.action.count for result in told.results("grow")) == 1
    assert [one.kind for one in failures(stage)] == ["auth"]


def reasons(turn: Any) -> list[str]:
    return [one.reason for one in turn.plan.waiting]


def events(stage: Stage) -> list[dict[str, Any]]:
    found = stage.client.list(EVENT, namespace=stage.namespace, fields="involvedObject.kind=ConfigMap").items
    return [one for one in found if one["involvedObject"]["name"] == "longboat-autoscaler"]


def test_back_offs_and_orders_are_in_the_status(stage: Stage, tmp_path: Path) -> None:
    command = Command(stage, tmp_path)
    stage.fault(SimulatedFault(pool=stage.name("gpu"), kind="quota"))
    stage.job("train")
    process = command.start()
    try:
        wait_for("the backoff is shown", lambda: "BACKOFF" in shown(command))
        table = shown(command)
        assert "quota" in table and "not asked again before" in table and "ORDERED" not in table
        stage.fault(SimulatedFault(pool=stage.name("gpu"), kind="other", joins=False))
        command("retry")
        wait_for("the order is shown", lambda: "ORDERED" in shown(command))
        table = shown(command)
        assert "BACKOFF" not in table and stage.name("gpu") in table.partition("ORDERED")[2]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def shown(command: Command) -> str:
    """While there is nothing to show yet, nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "longboat", "autoscaler", "status", "--home", command.stage.namespace],
        env=command.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout
