"""A real API server with simulated nodes beside an embedded engine: outlooks, GPUs, and a run that moves away."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from longboat.core.errors import NotFound
from longboat.engines.engine import Submission
from longboat.engines.lifecycle.budgets import Period
from longboat.engines.local.engine import LocalEngine
from longboat.engines.shared.home import Home
from longboat.multicluster import failover as module
from longboat.multicluster.ask import NamedEngine, outlook_at
from longboat.multicluster.failover import Failover
from longboat.multicluster.inventory import stocks_at
from longboat.multicluster.spending import pool_costs, run_costs
from testbed import api
from testbed.clusters import Cluster
from testbed.proxy import ApiProxy
from tests.engines.kubernetes.benches import Bench

pytestmark = pytest.mark.cluster
LONG_S = 120.0
RUN = "moving"


class Lab:
    """A cluster with two GPUs that a run holds, reached through a proxy; and this machine with a free one."""

    def __init__(self, cluster: Cluster, namespace: str, proxy: ApiProxy, root: Path) -> None:
        self.bench = Bench(cluster, namespace, root, proxy.kubeconfig)
        # With a storage nobody asks simulated nodes for the last lines of their pods.
        chosen = {"kubernetes": {"image": "x", "storage": {"path": "/kept"}, "gpu_hour": 2.5}}
        Path(self.bench.environment["LONGBOAT_HOME"], "config.yaml").write_text(json.dumps(chosen))
        environment = {**os.environ, "LONGBOAT_GPUS": "g0", "LONGBOAT_HOME": str(root / "here")}
        self.here = LocalEngine(root / "here", environment=environment)
        self.lab = NamedEngine("lab", self.bench.engine)
        self.proxy, self.root = proxy, root
        self.moving = msgspec.structs.replace(self.submission(gpus=1), run_id=RUN, environment=environment)

    def submission(self, **fields: object) -> Submission:
        return self.bench.submission("", run=["sleep", "600"], workdir=None, **fields)

    def driver(self) -> Failover:
        places = {"lab": self.lab, "here": NamedEngine("here", self.here)}
        home = Home(self.root / "mine")
        home.prepare()
        return Failover(home, places, self.moving, 0.0, tell=lambda text: None)

    def is_here(self) -> bool:
        try:
            return not self.here.status(RUN).is_final
        except NotFound:
            return False

    def drive_until_it_leaves(self) -> Failover:
        driver = self.driver()
        driver.begin("lab")

        def leaves() -> bool:
            assert driver.turn() is None
            return driver.transfer is not None and driver.transfer.step == "leave"

        api.wait_for("it leaves", leaves, LONG_S, every_s=0.1)
        return driver

    def drive_home(self) -> None:
        driver = self.driver()  # another process, after a crash
        api.wait_for("it has settled", lambda: driver.turn() is not None, LONG_S, every_s=0.1)
        assert self.is_here()
        with pytest.raises(NotFound):
            self.lab.engine.status(RUN)


@pytest.fixture
def lab(
    cluster: Cluster,
    namespace: str,
    api_proxy: ApiProxy,
    kwok_nodes: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lab]:
    monkeypatch.setattr(module, "ASK_AGAIN_S", 0.0)  # the test's patience, not the users'
    kwok_nodes("1:gpus=2,cpu=16,memory=64Gi")
    made = Lab(cluster, namespace, api_proxy, tmp_path)
    yield made
    api_proxy.restore()
    for run in made.here.list():
        made.here.delete(run.name)
    made.bench.close()


def test_what_a_cluster_answers_and_where_the_run_goes(lab: Lab) -> None:
    free = outlook_at(lab.lab, lab.moving)
    assert (free.answer, free.price) == ("now", 2.5)
    large = outlook_at(lab.lab, lab.submission(gpus=4))
    assert large.answer == "never" and "4" in large.reason
    claim = outlook_at(lab.lab, lab.submission(gpus=1, volumes={"/d": {"claim": "data"}}))
    assert claim.answer == "never" and "there is no claim data" in claim.reason

    lab.lab.engine.submit(lab.submission(gpus=2, name="holder", timeout="10m"))
    assert lab.lab.engine.list()[0].name == "holder"
    waits = outlook_at(lab.lab, lab.moving)
    assert (waits.answer, waits.reason) == ("waits", "waits for 1 GPU: 0 free of 2; held by holder")
    assert waits.wait_s is not None and 500 < waits.wait_s <= 720.0  # its timeout, and the time to start
    (stock,) = stocks_at(lab.lab)
    assert (stock.total, stock.price) == (2, 2.5)
    api.wait_for("its pods hold them", lambda: stocks_at(lab.lab)[0].free == 0, LONG_S, every_s=0.1)
    period = Period(start=0.0, end=2.0**40)
    ((run, cost),) = run_costs(lab.lab, period, with_use=False)
    assert (run.name, cost.used) == ("holder", None) and cost.asked > 0
    assert [row.name for row in pool_costs(lab.lab, period)] == ["(no pool)"]

    # The requests that stop it are refused for a while: until they arrive it is nowhere else.
    driver = lab.drive_until_it_leaves()
    lab.proxy.answer(403, only=lambda request: request.method == "PATCH")
    for _ in range(3):
        assert driver.turn() is None
        assert not lab.is_here()
    assert lab.lab.engine.status(RUN).phase == "pending"
    lab.proxy.restore()
    lab.drive_home()


@pytest.mark.soak
def test_a_cluster_that_is_cut_off_keeps_the_run_until_it_answers(lab: Lab) -> None:
    lab.lab.engine.submit(lab.submission(gpus=2, name="holder"))
    driver = lab.drive_until_it_leaves()
    lab.proxy.cut()
    for _ in range(2):
        assert driver.turn() is None
        assert not lab.is_here()
    lab.proxy.restore()
    lab.drive_home()
