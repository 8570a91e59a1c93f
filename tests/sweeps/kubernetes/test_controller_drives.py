"""Sweeps that nobody looks at: the controller drives them. With pods on a cluster; a thousand on simulated nodes."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longboat.engines.kubernetes.reconcile.controller import Controller
from longboat.engines.kubernetes.record_store import list_records
from longboat.engines.shared.home import Home
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP, SECRET
from longboat.sweeps.drive import SweepDriver
from longboat.sweeps.kubernetes.controller import SweepController
from longboat.sweeps.kubernetes.removal import remove_cluster_sweep
from longboat.sweeps.kubernetes.store import ClusterSweep
from longboat.sweeps.kubernetes.trial_runs import ClusterTrials
from longboat.sweeps.kubernetes.turns import TrialTurns
from longboat.sweeps.submit import Place, create_sweep, record_of
from longboat.sweeps.trials import SweepState
from testbed import api, stages
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import Bench
from tests.storage.realstores import Unavailable
from tests.sweeps.optuna_packages import optuna_packages

TRAIN = """
import os, sys
import longboat

longboat.step(1, loss=abs(float(sys.argv[1]) - 0.03))
sys.exit(5 if sys.argv[1] == "0.1" and os.environ["LONGBOAT_ATTEMPT"] == "0" else 0)
"""
TRIALS = 1000
MOST_REQUESTS = 50
"""Of the controller, for the whole life of a trial: made, let in, looked at, written down, and its sweep driven."""


@contextlib.contextmanager
def controlled(bench: Bench, said: list[str]) -> Iterator[Client]:
    """Both controllers in this process, which lead without having been elected."""
    with Client.open(namespace=bench.namespace, environment=bench.environment) as client:
        sweeps = SweepController(client, namespaces=[bench.namespace], say=said.append)
        runs = Controller(client, namespaces=[bench.namespace], say=said.append, on_record=sweeps.note_record)
        runs.start()
        sweeps.start()
        try:
            yield client
        finally:
            sweeps.close()
            runs.close()


def begin(bench: Bench, code: str, as_name: str = "tune", **fields: object) -> ClusterSweep:
    home = Home(environment=bench.environment)
    place = Place(context=bench.engine.client.context, namespace=bench.namespace)
    record = record_of(home, bench.engine, bench.submission(code, **fields), as_name, place)
    create_sweep(home, bench.engine, record)
    return ClusterSweep(bench.engine.client, as_name)


def wait_for_end(sweep: ClusterSweep, within_s: float) -> SweepState:
    wait_for_trials(sweep, sys.maxsize, within_s)
    return sweep.state()


def wait_for_trials(sweep: ClusterSweep, wanted: int, within_s: float) -> None:
    def have_ended() -> bool:
        state = sweep.state()
        ended = sum(trial.is_final for trial in state.trials)
        print(f"{ended} trials have ended", flush=True)
        return state.is_final or ended >= wanted

    api.wait_for("enough trials have ended, or all", have_ended, within_s, every_s=5.0)


@pytest.mark.pods
@pytest.mark.soak
def test_a_sweep_goes_on_while_controllers_come_and_go(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    bench = Bench(cluster, namespace, tmp_path)
    sweep = begin(
        bench,
        TRAIN,
        name="tune",
        run="python train.py ${sweep.lr}",
        sweep={"lr": [0.1, 0.03, 0.05], "parallel": 2},
        cpus=0.1,
        memory="64Mi",
        retries=1,
    )
    said: list[str] = []
    with controlled(bench, said):
        api.wait_for("a trial is made", lambda: len(list(list_records(bench.engine.client))) > 0, 120.0, every_s=0.05)
    with controlled(bench, said):  # the first is gone, wherever it was
        state = wait_for_end(sweep, 300.0)
    assert (state.phase, said) == ("succeeded", [])
    assert [(trial.phase, trial.attempts) for trial in state.trials] == [
        ("succeeded", 2),  # made by one controller, made again of its own template by another
        ("succeeded", 1),
        ("succeeded", 1),
    ]
    assert min(state.trials, key=lambda trial: trial.metrics["loss"]).params == {"lr": 0.03}
    again = bench.engine.resubmission("tune-t2")
    assert (again.job.params, again.job.roles[0].run) == ({"lr": 0.03}, "python train.py 0.03")
    remove_cluster_sweep(bench.engine, "tune", purge=False)
    ours = bench.engine.client.list(CONFIG_MAP, labels="app.kubernetes.io/managed-by=longboat").items
    assert ours == []
    bench.close()


@pytest.mark.cluster
@pytest.mark.soak
def test_a_thousand_trials_on_simulated_nodes(
    cluster: Cluster, namespace: str, tmp_path: Path, kwok_nodes: Callable[..., list[str]]
) -> None:
    """The first controller goes when a third of them have ended, the second does the rest."""
    kwok_nodes("8:h100x8")
    bench = Bench(cluster, namespace, tmp_path)
    annotations = {stages.PREFIX + "run-for": "1s", stages.PREFIX + "exit-code": "0"}
    # With a storage nobody asks simulated nodes for the last lines of their pods.
    chosen = {"image": "x", "storage": {"path": "/kept"}, "pod": {"metadata": {"annotations": annotations}}}
    Path(bench.environment["LONGBOAT_HOME"], "config.yaml").write_text(json.dumps({"kubernetes": chosen}))
    bench.engine = bench.open()
    space = {"x": {"min": 0.0, "max": 1.0}, "method": "random", "trials": TRIALS, "parallel": 48}
    sweep = begin(bench, "print('trains')\n", name="tune", run="python train.py ${sweep.x}", sweep=space, gpus=1)
    said: list[str] = []
    requests = 0
    for wanted in (TRIALS // 3, sys.maxsize):
        with controlled(bench, said) as client:
            try:
                wait_for_trials(sweep, wanted, 1400.0)
            finally:
                requests += client.requests
                print(f"{requests} requests of controllers")
    state = sweep.state()
    assert (state.phase, said) == ("succeeded", [])
    assert len({trial.params["x"] for trial in state.trials}) == TRIALS
    runs = list(list_records(bench.engine.client))
    assert len(runs) == len({run.record.name for run in runs}) == TRIALS  # each once, none lost
    assert {len(run.state.attempts) for run in runs} == {1}
    assert len({run.record.bundle for run in runs}) == 1
    secrets = bench.engine.client.list(SECRET, labels="app.kubernetes.io/managed-by=longboat").items
    code = [secret for secret in secrets if secret["metadata"]["name"].startswith("longboat-code-")]
    assert 0 < len(code) < TRIALS / 100, "the code is there for many trials at once"
    assert requests <= MOST_REQUESTS * TRIALS
    bench.engine.close()


@pytest.mark.cluster
def test_a_sweep_of_optuna_is_driven_by_its_submitter_beside_a_controller(
    cluster: Cluster,
    namespace: str,
    tmp_path: Path,
    kwok_nodes: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller makes no trial of it, and looks after those that there are like any other run."""
    try:
        monkeypatch.syspath_prepend(str(optuna_packages()))
    except Unavailable as error:
        pytest.skip(str(error))
    kwok_nodes("1:h100x8")
    bench = Bench(cluster, namespace, tmp_path)
    annotations = {stages.PREFIX + "run-for": "1s", stages.PREFIX + "exit-code": "0"}
    chosen = {"image": "x", "storage": {"path": "/kept"}, "pod": {"metadata": {"annotations": annotations}}}
    Path(bench.environment["LONGBOAT_HOME"], "config.yaml").write_text(json.dumps({"kubernetes": chosen}))
    bench.engine = bench.open()
    space = {"x": {"min": 0.0, "max": 1.0}, "sampler": "cmaes", "trials": 5, "parallel": 2}
    sweep = begin(bench, "", name="tune", run="python train.py ${sweep.x}", sweep=space, gpus=1)
    said: list[str] = []
    with controlled(bench, said):
        other = begin(
            bench, "", name="other", run="python train.py ${sweep.x}", sweep={"x": [1, 2]}, gpus=1, as_name="other"
        )
        assert wait_for_end(other, 300.0).phase == "succeeded"
        assert list(sweep.state().trials) == [], "the controller was at work, and left it alone"
        driver = SweepDriver(ClusterTrials(sweep, turns=TrialTurns()), sweep)
        api.wait_for("the sweep has ended", lambda: driver.advance() is None, 300.0, every_s=0.5)
    state = sweep.state()
    assert (state.phase, said) == ("succeeded", [])
    assert len({trial.params["x"] for trial in state.trials}) == 5
    bench.engine.close()
