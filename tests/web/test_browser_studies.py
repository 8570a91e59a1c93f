"""Runs, sweeps and comparisons in a real browser: what their pages say of many trials and of a run at work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra ui is not installed")

from tests.web.browser import open_page, row_of, signed_in
from tests.web.ui_process import Dashboard

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

COMPARED = "compare?run=local/tried-t1&run=local/tried-t2"
STRANGE = """
import os, time
import longboat
folder = os.environ["LONGBOAT_CHECKPOINT_DIR"] + "/step-2"
os.makedirs(folder, exist_ok=True)
open(folder + "/.complete", "w").close()
for step in range(6000):
    longboat.step(step, loss=float("nan"))
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Dashboard]:
    dashboard = Dashboard(tmp_path_factory.mktemp("studies"))
    dashboard.sweep()
    dashboard.start()
    try:
        yield dashboard
    finally:
        dashboard.stop()
        dashboard.remove_runs()


@pytest.fixture
def page(browser: Any, dashboard: Dashboard) -> Iterator[Any]:
    with signed_in(browser, dashboard.address) as opened:
        yield opened


def test_the_list_says_what_matters_of_a_run_at_work(page: Any, dashboard: Dashboard) -> None:
    """What it found, and by which checkpoint stopping it is asked: a list of runs alone has neither."""
    dashboard.run("strange", STRANGE)
    row = row_of(page, "strange")
    row.locator(".why .warn").wait_for()
    assert "Loss was not a finite number" in row.locator(".why").inner_text()
    row.get_by_role("checkbox").check()
    page.keyboard.press("s")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Its newest complete checkpoint is step-2:").wait_for()
    dialog.get_by_role("button", name="Stop now").click()
    dashboard.wait_for("strange", "stopped")


def test_trials_side_by_side_and_the_sweep_that_they_are_of(page: Any) -> None:
    open_page(page, COMPARED)
    table = page.get_by_role("region", name="Runs side by side")
    table.get_by_text("What they ran in").wait_for()
    assert "params.lr" in table.inner_text() and "GPU-h" not in table.inner_text(), "nothing is known of GPUs"
    open_page(page, "sweep/local/tried")
    page.locator(".lead").get_by_text("Best: loss").wait_for()
    page.keyboard.press("b")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="tried-t1").wait_for()
    open_page(page, "sweeps")
    row_of(page, "tried").get_by_text("2 of 2").wait_for()


def test_what_could_not_be_read_or_asked_again_is_said(page: Any) -> None:
    """Rows stay, and are said to be as they were; a damaged sweep is named beside those that can be read."""
    kept = page.evaluate("fetch('api/sweeps').then(answer => answer.json())")
    answers = [{**kept, "problems": ["the record of old is damaged"]}]
    refusal = {"error": "lab does not answer: connection refused", "hint": "kubectl get nodes asks the same server"}

    def answer(route: Any) -> None:
        route.fulfill(json=answers.pop()) if answers else route.fulfill(status=502, json=refusal)

    page.route("**/api/sweeps", answer)
    open_page(page, "sweeps")
    page.get_by_text("The record of old is damaged").wait_for()
    page.get_by_text("Lab does not answer: connection refused: what is shown is as it was.").wait_for()
    row_of(page, "tried").get_by_text("2 of 2").wait_for()
    nothing = {"services": [], "benches": [], "problems": ["lab: it does not answer"]}
    page.route("**/api/services", lambda route: route.fulfill(json=nothing))
    open_page(page, "services")
    page.get_by_text("Lab: it does not answer").wait_for()


PLACED = """async () => {
  const { placed, store } = await import("./static/lib/store.js")
  store.clusters = [{ name: "lab", options: "--on lab" }, { name: "local", options: "" }]
  return [placed("lab", "longboat logs a: the end of it"), placed("local", "longboat ps"), placed("lab", "wait")]
}"""


def test_commands_mean_the_place_that_they_are_shown_for(page: Any) -> None:
    assert page.evaluate(PLACED) == ["longboat logs a --on lab: the end of it", "longboat ps", "wait"]
    kept = page.evaluate("fetch('api/sweeps/local/tried').then(answer => answer.json())")
    runs = page.evaluate("fetch('api/runs').then(answer => answer.json())")
    far = {**runs["clusters"][0], "name": "lab", "kind": "kubernetes", "options": "--on lab"}
    page.route("**/api/runs", lambda route: route.fulfill(json={**runs, "clusters": [*runs["clusters"], far]}))
    page.route("**/api/sweeps/lab/tried", lambda route: route.fulfill(json={**kept, "cluster": "lab"}))
    page.reload()
    open_page(page, "sweep/lab/tried")
    page.get_by_role("button", name="Copy: longboat sweep status tried --on lab").wait_for()


def test_curves_of_many_ranks(page: Any) -> None:
    """More samples than a call has room for arguments."""
    samples = [[1_700_000_000 + 5 * at, at % 7] for at in range(1000)]
    told = page.evaluate("fetch('api/runs/local/tried-t1/metrics').then(answer => answer.json())")
    answer = {**told, "system": {str(rank): {"cpu": samples} for rank in range(200)}}
    page.route("**/api/runs/local/tried-t1/metrics", lambda route: route.fulfill(json=answer))
    open_page(page, "run/local/tried-t1")
    page.get_by_role("img", name="CPU cores of 200 ranks").wait_for()


@pytest.mark.parametrize("width", [1440, 390])
def test_names_without_spaces_break(page: Any, width: int) -> None:
    """Addresses of checkpoints and names of images have none; the page would scroll sideways."""
    image = "registry.example.com/team/trainer@sha256:" + "0123456789abcdef" * 4
    page.set_viewport_size({"width": width, "height": 900})
    kept = page.evaluate("fetch('api/runs/local/tried-t1').then(answer => answer.json())")
    attempts = [{**kept["status"]["attempts"][0], "resumed_from": f"s3://{image}"}]
    explain = {"headline": f"it cannot pull {image}", "facts": [image], "lines": [], "next_steps": [image]}
    answer = {**kept, "explain": explain, "status": {**kept["status"], "attempts": attempts}}
    page.route("**/api/runs/local/tried-t1", lambda route: route.fulfill(json=answer))
    open_page(page, "run/local/tried-t1")
    page.get_by_text(f"from s3://{image}").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


SPY = """
window.drawn = []
const { fillText } = CanvasRenderingContext2D.prototype
CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
  window.drawn.push([text, x / this.canvas.width])
  return fillText.call(this, text, x, ...rest)
}"""


def test_a_narrow_chart_of_some_minutes_has_its_times_below_it(page: Any) -> None:
    """Also where none of them is a multiple of five: times stand below the curve, and not behind its end."""
    page.add_init_script(SPY)
    page.set_viewport_size({"width": 390, "height": 844})
    told = page.evaluate("fetch('api/runs/local/tried-t1/metrics').then(answer => answer.json())")
    began = 5666667 * 300 + 10
    answer = {**told, "series": {"loss": [[at, began + 28 * at, 1.0 / (at + 1)] for at in range(11)]}}
    page.route("**/api/runs/local/tried-t1/metrics", lambda route: route.fulfill(json=answer))
    open_page(page, "run/local/tried-t1")
    page.reload()
    page.locator(".chart canvas").wait_for()
    places: list[float] = []
    while not places:
        page.wait_for_timeout(100)
        places = [x for text, x in page.evaluate("window.drawn") if text[2:3] == ":"]
    assert all(0.05 < x < 0.95 for x in places), places


AXES = """async () => {
  const { axisOf } = await import("./static/pages/parallel.js")
  const wide = [0.001, 0.4]
  return [axisOf("drop", wide, { min: 0, max: 0.5 }).place(0.25),
    axisOf("lr", wide, { min: 1e-4, max: 1, log: true }).place(0.01),
    axisOf("loss", wide).place(0.02), axisOf("words", ["b", "a", "c"], ["b", "a", "c"]).place("b"),
    axisOf("near", [1, 10, 10.2]).ticks.map(([at]) => at), axisOf("far", [1, 5, 10]).ticks.map(([, word]) => word)]
}"""


def test_a_sweep_of_many_trials(page: Any) -> None:
    """Axes are as its space has them; the best trials are drawn, all of them when they are asked for."""
    *places, near, far = page.evaluate(AXES)
    assert places == pytest.approx([0.5, 0.5, 0.5, 0.5])
    assert (near, far) == ([0, 0.25, 0.5, 0.75, 1], ["1", "5", "10"]), "labels that would cover each other give way"
    kept = page.evaluate("fetch('api/sweeps/local/tried').then(answer => answer.json())")
    trial = kept["trials"][0]
    many = [{**trial, "trial": at, "run": f"many-t{at}", "metric": float(at)} for at in range(1, 301)]
    answer = {**kept, "name": "many", "trials": many, "planned": 300}
    page.route("**/api/sweeps/local/many", lambda route: route.fulfill(json=answer))
    open_page(page, "sweep/local/many")
    table = page.get_by_role("region", name="Table of trials")
    row_of(page, "many-t200").wait_for()
    assert table.get_by_role("row").count() == 201 and row_of(page, "many-t201").count() == 0
    page.get_by_role("button", name="Show all").click()
    row_of(page, "many-t300").wait_for()
    page.set_viewport_size({"width": 390, "height": 844})
    lines = page.locator("svg.parallel")
    names = [f"parameter_{number}" for number in range(9)]
    wide = [{**each, "params": dict.fromkeys(names, at)} for at, each in enumerate(many[:20])]
    page.route("**/api/sweeps/local/wide", lambda route: route.fulfill(json={**answer, "name": "wide", "trials": wide}))
    open_page(page, "sweep/local/wide")
    page.get_by_role("heading", level=1, name="wide").wait_for()
    assert lines.bounding_box()["height"] == 300 and lines.bounding_box()["width"] == 900, "all axes, to be scrolled to"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
