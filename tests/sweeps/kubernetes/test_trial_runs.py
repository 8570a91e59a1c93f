"""Trials in a cluster: each made once, whoever drives the sweep and wherever he dies, only of what is vouched for."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.core.errors import EngineError
from longboat.core.jobs import Sweep
from longboat.engines.kubernetes.manifests import retry_template
from longboat.engines.kubernetes.reconcile.workqueue import RunKey
from longboat.engines.kubernetes.record_store import write_state
from longboat.engines.kubernetes.records import State, Storage
from longboat.engines.kubernetes.status import STARTING
from longboat.engines.shared.stop_request import StopRequest
from longboat.sweeps import drive as drive_module
from longboat.sweeps.drive import SweepDriver
from longboat.sweeps.kubernetes.controller import SweepController
from longboat.sweeps.kubernetes.store import ClusterSweep, SweepChanged, read_sweep
from longboat.sweeps.kubernetes.sweep_objects import map_name, pack_state
from longboat.sweeps.kubernetes.trial_runs import ClusterTrials
from longboat.sweeps.record import needs_submitter
from longboat.sweeps.trials import SweepState, SweepTrial
from tests.sweeps.kubernetes.memory_cluster import (
    GRID,
    RANDOM,
    RETRIED,
    Killed,
    MemoryCluster,
    base_record,
    begin,
    let_runs_end,
    replace,
    runs_of,
    sweep_record,
)


def cluster_with(sweep: Any = GRID, **fields: Any) -> MemoryCluster:
    client, record = MemoryCluster(), sweep_record(sweep, **fields)
    begin(client, record, base_record(record))
    client.requests = 0
    client.made.clear()
    return client


def driver_of(client: Any) -> SweepDriver:
    store = ClusterSweep(client, "s")
    return SweepDriver(ClusterTrials(store), store)


def drive(client: MemoryCluster, looks: dict[str, int], turns: int = 60) -> SweepState:
    driver = driver_of(client)
    for _ in range(turns):
        if driver.advance() is None:
            return read_sweep(client.bodies["ConfigMap", "s.sweep"]).state
        let_runs_end(client, looks)
    raise AssertionError("the sweep does not end")


def outcome(state: SweepState) -> list[tuple[Any, str, float]]:
    return [(trial.params["x"], trial.phase, trial.metrics["loss"]) for trial in state.trials]


def test_a_sweep_is_driven_to_its_end_with_few_requests() -> None:
    client = cluster_with(**RETRIED)
    state = drive(client, {})
    assert state.phase == "succeeded" and outcome(state) == [(x, "succeeded", float(x)) for x in (3, 1, 2, 4)]
    assert len(client.made) == len(set(client.made)) == 4 * 5
    assert client.requests <= 15 * 4
    trial, _ = runs_of(client)["s-t3"]
    assert (trial.job.roles[0].run, trial.job.params, trial.job.sweep) == ("train 2", {"x": 2}, None)
    assert trial.job.labels == {"sweep": "s", "trial": "3", "sweep-uid": "feedbeef0123"}


def test_making_a_trial_costs_five_requests() -> None:
    client = cluster_with(**RETRIED)
    store = ClusterSweep(client, "s")  # type: ignore[arg-type]
    trials = ClusterTrials(store)
    costs = []
    for number, value in ((1, 3), (2, 1)):
        before = client.requests
        trials.submit(SweepTrial(number=number, params={"x": value}, run=f"s-t{number}"))
        costs.append(client.requests - before)
    assert costs == [8, 5]  # the first reads the sweep, its Secret and its template


def test_killed_at_every_request_every_trial_is_made_once() -> None:
    whole = cluster_with(**RETRIED)
    expected = outcome(drive(whole, {}))
    for moment in range(1, 2 * whole.requests + 1):
        client, looks = cluster_with(**RETRIED), dict[str, int]()
        client.dies_at = moment
        try:
            drive(client, looks)
        except Killed:
            client.dies_at = None
        state = drive(client, looks)
        assert outcome(state) == expected, moment
        assert sorted(client.made) == sorted(whole.made), moment


def test_two_drivers_make_no_trial_twice() -> None:
    client, looks = cluster_with(RANDOM), dict[str, int]()
    drivers = [driver_of(client), driver_of(client)]
    late = 0
    for number in range(200):
        driver = drivers[number % 2]
        before = driver.store.state()
        if before.is_final:
            break
        let_runs_end(client, looks)
        drivers[(number + 1) % 2].advance()  # in between
        try:
            driver.turn(before)
        except SweepChanged:
            late += 1
    state = read_sweep(client.bodies["ConfigMap", "s.sweep"]).state
    assert state.phase == "succeeded" and late > 0
    assert len(client.made) == len(set(client.made)) and sum("Job" in name for name in client.made) == 6


def test_a_stop_is_passed_on() -> None:
    client, looks = cluster_with(), dict[str, int]()
    driver = driver_of(client)
    driver.advance()
    ClusterSweep(client, "s").request_stop(StopRequest(at=5.0, grace_s=1.0))  # type: ignore[arg-type]
    state = drive(client, looks)
    assert [trial.phase for trial in state.trials] == ["stopped", "stopped"] and state.phase == "stopped"


def test_pods_are_those_of_the_template_with_the_names_of_the_trial() -> None:
    record = sweep_record(**RETRIED)
    base = base_record(record, storage=Storage(claim="kept", folder="x"))
    client = MemoryCluster()
    begin(client, record, base)
    template = client.bodies["Job", "s-sweep-worker"]["spec"]["template"]["spec"]
    template["containers"][0]["image"] = "admission.changed/this:1"
    driver_of(client).advance()
    job = client.bodies["Job", "s-t2-a0-worker"]
    spec = job["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == "admission.changed/this:1"
    assert spec["subdomain"] == "s-t2-a0" and {"secretName": "s-t2-a0", "defaultMode": 0o444} in [
        volume.get("secret") for volume in spec["volumes"]
    ]
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert (labels["trial"], labels["longboat.dev/run"], labels["sweep-uid"]) == ("2", "s-t2", record.uid)
    assert not any(entry["name"] == retry_template.PIN for entry in spec["containers"][0].get("env", ()))
    again = client.bodies["Job", "s-t2-t-worker"]
    assert again["spec"]["suspend"] and again["spec"]["parallelism"] == 0 and len(retry_template.pins_of(again)) == 1
    trial = runs_of(client)["s-t2"][0]
    assert trial.storage is not None and trial.storage.folder == f"longboat/s-t2-{trial.uid[:8]}"


FORGED = {
    "record": lambda body: body["data"].update(sweep=body["data"]["sweep"].replace("train ", "steal ")),
    "run": lambda body: body["data"].update(run=body["data"]["run"].replace("longboat.test", "evil.test")),
}


@pytest.mark.parametrize("part", FORGED)
def test_a_record_that_was_changed_makes_no_trial(part: str) -> None:
    client = cluster_with()
    FORGED[part](client.bodies["ConfigMap", "s.sweep"])
    assert driver_of(client).advance() is None
    state = read_sweep(client.bodies["ConfigMap", "s.sweep"]).state
    assert state.phase == "failed" and "is not the one that was submitted" in state.reason and not client.made


def test_without_a_template_nothing_is_made_and_its_submitter_is_waited_for() -> None:
    client = cluster_with()
    del client.bodies["Job", "s-sweep-worker"]
    client.bodies["ConfigMap", "s.sweep"]["metadata"]["creationTimestamp"] = "1970-01-01T00:16:40Z"
    driver = driver_of(client)
    assert driver.advance() is True and driver.store.state().trials[0].reason == "the sweep s is being made"
    client.requests += 500
    assert driver.advance() is None and not client.made
    assert "has no template" in driver.store.state().reason


@pytest.mark.parametrize("fault", ["no template", "being made", "changed"])
def test_nothing_is_computed_from_a_state_that_nobody_vouches_for(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes minutes to decide on would hold the workers of all namespaces."""
    client = cluster_with(RANDOM)
    forged = tuple(
        SweepTrial(number=number, params={"x": 0.5}, run="", is_submitted=number < 4) for number in range(1, 6)
    )
    body = client.bodies["ConfigMap", "s.sweep"]
    body["binaryData"]["state"] = pack_state(SweepState(trials=forged))
    if fault == "changed":
        FORGED["record"](body)
    else:
        del client.bodies["Job", "s-sweep-worker"]
        made = "1970-01-01T00:16:40Z" if fault == "being made" else "1970-01-01T00:00:00Z"
        body["metadata"]["creationTimestamp"] = made
    monkeypatch.setattr(drive_module, "decide", lambda *_: pytest.fail("decided"))
    monkeypatch.setattr(ClusterTrials, "look", lambda *_: pytest.fail("looked at runs"))
    if fault == "being made":
        with pytest.raises(EngineError, match="is being made"):
            driver_of(client).advance()
    else:
        assert driver_of(client).advance() is None
        assert read_sweep(client.bodies["ConfigMap", "s.sweep"]).state.phase == "failed"
    assert not client.made


def test_a_template_of_another_owner_vouches_for_nothing() -> None:
    client = cluster_with()
    client.bodies["Job", "s-sweep-worker"]["metadata"]["ownerReferences"] = [{"uid": "other"}]
    client.bodies["ConfigMap", "s.sweep"]["metadata"]["creationTimestamp"] = "1970-01-01T00:00:00Z"
    assert driver_of(client).advance() is None and not client.made


@pytest.mark.parametrize("params", [{"x": "$(reboot)"}, {"x": 9}, {"y": 1}, {}])
def test_parameters_of_a_forged_state_are_never_filled_in(params: Any) -> None:
    client = cluster_with()
    forged = SweepState(trials=(SweepTrial(number=1, params=params, run="kube-dns"),))
    client.bodies["ConfigMap", "s.sweep"]["binaryData"]["state"] = pack_state(forged)
    driver_of(client).advance()
    state = read_sweep(client.bodies["ConfigMap", "s.sweep"]).state
    assert state.trials[0].phase == "failed" and "ConfigMap s-t1" not in client.made
    assert state.trials[0].run == "s-t1"


def test_a_run_of_somebody_else_is_not_taken_for_a_trial() -> None:
    other = cluster_with()
    driver_of(other).advance()
    theirs = other.bodies["ConfigMap", "s-t1"]
    client = cluster_with()
    theirs["data"]["record"] = theirs["data"]["record"].replace("train 3", "steal 3")
    client.bodies["ConfigMap", "s-t1"] = theirs
    driver_of(client).advance()
    state = read_sweep(client.bodies["ConfigMap", "s.sweep"]).state
    assert (state.trials[0].phase, state.trials[0].reason) == ("failed", "s-t1 is a run of somebody else")
    assert "Job s-t1-a0-worker" not in client.made and "Job s-t2-a0-worker" in client.made


def test_a_trial_that_was_given_up_before_it_was_made_is_made_anew() -> None:
    client = cluster_with()
    client.dies_at = 15
    with pytest.raises(Killed):
        drive(client, {})
    client.dies_at = None
    assert "ConfigMap s-t1" in client.made and "Job s-t1-a0-worker" not in client.made
    version = client.bodies["ConfigMap", "s-t1"]["metadata"]["resourceVersion"]
    write_state(client, "s-t1", version, State(phase="failed", reason="given up", ended=5.0))  # type: ignore[arg-type]
    state = drive(client, {})
    assert [trial.phase for trial in state.trials] == ["succeeded"] * 4
    assert runs_of(client)["s-t1"][1] != State(reason=STARTING)


def test_a_run_that_was_removed_is_a_failed_trial() -> None:
    client = cluster_with()
    driver_of(client).advance()
    del client.bodies["ConfigMap", "s-t1"]
    state = drive(client, {})
    assert state.trials[0].reason == "its run was removed" and state.trials[1].phase == "succeeded"


def test_the_same_trial_from_a_machine_that_died_is_the_same_run() -> None:
    first, second = cluster_with(), cluster_with()
    for client in (first, second):
        driver_of(client).advance()
    one, two = runs_of(first)["s-t2"][0], runs_of(second)["s-t2"][0]
    assert one == replace(two, created=one.created) and one.uid != runs_of(first)["s-t1"][0].uid


def test_a_state_of_another_version_is_not_replaced() -> None:
    client = cluster_with()
    mine, theirs = (ClusterSweep(client, "s") for _ in range(2))  # type: ignore[arg-type]
    mine.state(), theirs.state()
    theirs.write_state(SweepState(reason="theirs"))
    with pytest.raises(SweepChanged):
        mine.write_state(SweepState(reason="mine"))
    assert mine.state().reason == "theirs"
    with pytest.raises(EngineError, match="more than|about another|damaged"):
        client.bodies["ConfigMap", map_name("s")]["binaryData"]["state"] = "AAAA"
        mine.state()


def test_a_controller_leaves_a_sweep_of_optuna_to_its_submitter() -> None:
    for method, is_driven in (("random", True), ("optuna", False)):
        client = cluster_with(Sweep(space={"x": (0.1, 0.2)}, method=method, trials=2))
        controller = SweepController(client, say=print)  # type: ignore[arg-type]
        assert (controller._open(RunKey("default", "s")) is not None) is is_driven
        assert needs_submitter(ClusterSweep(client, "s").record()) is not is_driven
