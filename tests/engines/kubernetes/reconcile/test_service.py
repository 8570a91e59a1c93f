"""What the controller tells Prometheus of runs, asked of their launchers in real pods."""

from __future__ import annotations

import time

import pytest

from longboat.engines.kubernetes.observe.run_gauges import RunGauges
from longboat.engines.kubernetes.reconcile.service import ControllerService
from longboat.engines.kubernetes.records import State
from testbed import api
from tests.engines.kubernetes.benches import Bench
from tests.engines.kubernetes.controlling import LONG_S

pytestmark = pytest.mark.pods
STEPPING = (
    "import longboat, time\nfor step in range(100000):\n    longboat.step(step, loss=1.0)\n    time.sleep(0.05)\n"
)


def test_the_step_of_a_run_is_on_the_page_while_somebody_scrapes(bench: Bench) -> None:
    client = bench.engine.client
    run = bench.engine.submit(bench.submission(STEPPING))
    runs = lambda: bench.engine.status(run.name).phase == "running"  # noqa: E731  # a look takes its turns too
    api.wait_for("it runs", runs, LONG_S, every_s=0.5)
    gauges = RunGauges()
    gauges.note(bench.namespace, run.name, State(phase="running"))
    service = ControllerService(client, bench.namespace, (), where="", say=pytest.fail, companions=[pytest.fail])
    service.ending.set()  # no pauses
    turns = iter((True, True, False))
    service.ask_pace(client, gauges, lambda: next(turns))
    wanted = f'longboat_run_step{{namespace="{bench.namespace}",run="{run.name}"}}'
    assert wanted not in gauges.text(lambda: True), "nobody had scraped"
    deadline = time.monotonic() + LONG_S

    def goes_on() -> bool:
        assert time.monotonic() < deadline
        return wanted not in gauges.text(lambda: True)

    service.ask_pace(client, gauges, goes_on)
    page = gauges.text(lambda: True)
    assert f'longboat_run_findings{{namespace="{bench.namespace}",run="{run.name}"}} 0' in page
    assert f'longboat_run_memory_bytes{{namespace="{bench.namespace}",run="{run.name}"}}' in page
    bench.engine.stop(run.name)
