"""The dashboard in a real browser, against the test cluster and this machine at once: a run from start to end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.kubeapi import kubeconfig
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import IMAGE
from tests.web.browser import open_page, row_of, signed_in
from tests.web.ui_process import Dashboard

pytestmark = [pytest.mark.pods, pytest.mark.browser, pytest.mark.xdist_group("browser")]

TRAINER = """
import os, time
for step in range(6000):
    print("pid", os.getpid(), "trains, step", step, flush=True)
    time.sleep(0.1)
"""


class TwoPlaces(Dashboard):
    """A dashboard of this machine and of a cluster."""

    def __init__(self, folder: Path, cluster: Cluster, namespace: str) -> None:
        environment = {"KUBECONFIG": str(cluster.kubeconfig)}
        self.context = kubeconfig.find(None, None, environment).context
        self.there = ("--on", self.context, "--namespace", namespace)
        super().__init__(folder, *self.there)
        self.environment |= environment
        (folder / "home").mkdir()
        (folder / "home" / "config.yaml").write_text(json.dumps({"kubernetes": {"image": IMAGE}}))


@pytest.fixture
def dashboard(tmp_path: Path, cluster: Cluster, namespace: str) -> Iterator[TwoPlaces]:
    dashboard = TwoPlaces(tmp_path, cluster, namespace)
    dashboard.start()
    try:
        yield dashboard
    finally:
        dashboard.stop()
        dashboard.longboat("rm", "near", "--force", "--yes", "--engine", "local")


def test_a_run_of_a_cluster_from_its_start_to_its_end(browser: Any, dashboard: TwoPlaces) -> None:
    """It appears beside one of this machine, its log comes as it is printed, a rank is killed, another run stopped."""
    with signed_in(browser, dashboard.address) as page:
        dashboard.run("near", "import time\ntime.sleep(600)\n", "--engine", "local")
        dashboard.run("far", TRAINER, *dashboard.there)
        for name, place in (("near", "this machine"), ("far", dashboard.context)):
            row = row_of(page, name)
            row.get_by_text("running").wait_for()
            assert place in row.inner_text()

        row_of(page, "far").get_by_role("link", name="far", exact=True).click()
        log = page.get_by_role("log")
        log.get_by_text(re.compile(r"trains, step \d+")).first.wait_for()
        pid, seen = map(int, re.findall(r"\d+", log.locator(".msg").last.inner_text()))
        log.get_by_text(f"trains, step {seen + 20}").wait_for()  # what was printed after that
        page.get_by_role("img", name=re.compile("^Phases: .*training")).wait_for()

        kills = f"import os; os.kill({pid}, 9)"  # the image has no `kill`
        killed = dashboard.longboat("exec", "far", *dashboard.there, "--", "python3", "-c", kills)
        assert killed.returncode == 0, killed.stderr
        page.get_by_role("heading", name="Why it failed").wait_for()
        page.locator(".run-head").get_by_text("failed", exact=True).wait_for()
        assert "SIGKILL" in page.locator("#why").inner_text()

        page.get_by_role("button", name="Run again").click()
        page.get_by_role("dialog").get_by_role("button", name="Run again").click()  # started in the page's sight
        page.locator(".toast").get_by_role("link", name="Show").click()
        page.locator(".run-head").get_by_text("running", exact=True).wait_for()
        again = page.get_by_role("heading", level=1).inner_text()
        assert again != "far"
        page.keyboard.press("s")
        page.get_by_role("dialog").get_by_role("button", name="Stop now").click()
        page.locator(".run-head").get_by_text("stopped", exact=True).wait_for()

        open_page(page, "runs")
        row_of(page, again).get_by_text("stopped", exact=True).wait_for()
        row_of(page, "near").get_by_text("running", exact=True).wait_for()
