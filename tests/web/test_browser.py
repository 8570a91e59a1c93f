"""The dashboard in a real browser, against a live embedded engine: what people click, read and lose."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra ui is not installed")

from tests.web.browser import PATIENCE_MS, axe, open_page, row_of, signed_in
from tests.web.ui_process import Dashboard

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

PAGES = (
    "runs",
    "run/local/kept",
    "sweeps",
    "sweep/local/tried",
    "gpus",
    "autoscaler",
    "services",
    "clusters",
    "compare",
)
COMPARED = "compare?run=local/tried-t1&run=local/tried-t2"
POOLS = b"pools: [{name: a, max: 2, price: 2.0, boot: 2m, machine: {cpus: 64, memory: 512Gi, gpus: 8}}]"
OWNED = "<script>document.title='owned'</script>"
HOSTILE = f"<img src=x onerror=document.title='owned'> \x1b[31mred\x1b[0m \x07 {OWNED}"
TRAINER = f"""
import os, time
import longboat
print({HOSTILE!r}, flush=True)
print("pid", os.getpid(), flush=True)
for step in range(2000):
    longboat.step(step, loss=2.0 / (step + 1))
    print("trains, step", step, flush=True)
    time.sleep(0.1)
"""
SAVES = "import longboat\nwith longboat.checkpoint(7) as folder:\n    open(f'{folder}/weights', 'w').close()\n"
RAISES = 'print("before it", flush=True)\nraise ValueError("the loss is NaN")\n'


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Dashboard]:
    """One server for all tests: runs have names of their own."""
    dashboard = Dashboard(tmp_path_factory.mktemp("dashboard"))
    dashboard.environment["LONGBOAT_GPUS"] = "0,1,2"  # stated ones
    dashboard.run("kept", RAISES)
    dashboard.wait_for("kept", "failed")
    dashboard.sweep()
    dashboard.start()
    try:
        yield dashboard
    finally:
        dashboard.stop()
        dashboard.remove_runs()


@pytest.fixture
def page(browser: Any, dashboard: Dashboard) -> Iterator[Any]:
    """A page of a reader's own, signed in. No error and nothing that the content security policy stops may happen."""
    with signed_in(browser, dashboard.address) as opened:
        yield opened


LOADED = """name => {
  const main = document.querySelector("main")
  return main.dataset.page === name && main.querySelector("h1") && !main.querySelector("[aria-busy=true]")
}"""


def settle(page: Any, path: str) -> None:
    """Until the page shows what it loads. Not `wait_for_function`: the content security policy lets nobody evaluate."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not page.evaluate(f"path => Boolean(({LOADED})(path))", re.split("[/?]", path)[0]):
        assert time.monotonic() < deadline, page.locator("main").inner_text()
        page.wait_for_timeout(50)


def test_a_run_from_its_start_to_its_end(page: Any, dashboard: Dashboard) -> None:
    """It appears by itself, its log comes as it is printed, one rank dies, and the page says why."""
    dashboard.run("seen", TRAINER)
    row = row_of(page, "seen")
    row.get_by_text("running").wait_for()
    row.get_by_role("link", name="seen", exact=True).click()
    log = page.get_by_role("log")
    log.get_by_text(re.compile(r"trains, step \d+")).first.wait_for()
    page.get_by_role("img", name=re.compile("^Phases: ")).wait_for()
    page.get_by_role("img", name=re.compile("^loss over time")).wait_for()

    page.get_by_label("Search the log").fill("onerror")
    line = log.locator(".line.hit .msg")
    line.wait_for()  # text, not a picture; no colours, no bell
    assert line.inner_text() == f"<img src=x onerror=document.title='owned'> red \ufffd {OWNED}"
    assert page.locator("img").count() == 0 and "owned" not in page.title()

    pid = int(re.findall(r"pid (\d+)", dashboard.longboat("logs", "seen").stdout)[0])
    os.kill(pid, signal.SIGKILL)
    page.get_by_role("heading", name="Why it failed").wait_for()
    page.locator(".run-head").get_by_text("failed", exact=True).wait_for()
    assert "SIGKILL" in page.locator("#why").inner_text()


def test_the_first_failure_is_one_key_away(page: Any) -> None:
    open_page(page, "run/local/kept")
    page.get_by_role("heading", name="Why it failed").wait_for()
    page.get_by_role("log").get_by_text("before it").wait_for()
    page.keyboard.press("f")
    marked = page.locator(".line.first .msg")
    marked.wait_for()
    assert marked.inner_text() == "ValueError: the loss is NaN"


def test_stop_is_asked_first_and_remove_too(page: Any, dashboard: Dashboard) -> None:
    dashboard.run("long", "import time\ntime.sleep(600)\n")
    row_of(page, "long").get_by_text("running").wait_for()
    open_page(page, "run/local/long")
    page.get_by_role("heading", name="long", exact=True).wait_for()
    page.keyboard.press("s")
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Cancel"
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    page.keyboard.press("s")
    dialog.get_by_role("button", name="Stop now").click()
    page.locator(".run-head").get_by_text("stopped", exact=True).wait_for()
    assert dashboard.wait_for("long", "stopped")

    page.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    row_of(page, "long").wait_for(state="detached")


def test_a_start_is_asked_first(page: Any, dashboard: Dashboard) -> None:
    """A key is pressed quickly, and what it starts takes machines."""
    dashboard.run("saved", SAVES)
    dashboard.wait_for("saved", "succeeded")
    open_page(page, "runs?q=saved")
    row_of(page, "saved").get_by_text("succeeded").wait_for()
    dialog = page.get_by_role("dialog")
    page.keyboard.press("j")
    page.keyboard.press("r")
    dialog.get_by_text("A new run of the same job and code: 1 node.", exact=True).wait_for()
    page.keyboard.press("Enter")  # on Cancel
    dialog.wait_for(state="detached")
    open_page(page, "run/local/saved")
    page.get_by_role("button", name="Resume from step-7").click()
    dialog.get_by_text("begins with step-7: 1 node.").wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert [row["name"] for row in dashboard.rows() if row["job"] == "saved"] == ["saved"]
    for button in ("Run again", "Resume"):
        page.get_by_role("button", name=button).click()
        dialog.get_by_role("button", name=button, exact=True).click()
        page.locator(".toast").get_by_text("is submitted").last.wait_for()
        dialog.wait_for(state="detached")
    dashboard.wait_for("saved-3", "succeeded")
    begun = dashboard.status("saved-3")["attempts"][0]["resumed_from"]
    assert begun and begun.endswith("step-7") and not dashboard.status("saved-2")["attempts"][0]["resumed_from"]


def test_ten_thousand_runs(page: Any) -> None:
    """Only what is in sight exists in the page; sorting and searching take all of them into account."""
    many = {"cursor": "", "clusters": [{"name": "local", "title": "this machine", "kind": "local", "ok": True}]}
    kept = page.evaluate("fetch('api/runs').then(answer => answer.json())")["runs"][0]
    rows = [{**kept, "name": f"run-{at:05}", "id": f"run-{at:05}", "uid": f"{at:012x}"} for at in range(10_000)]
    page.route("**/api/runs", lambda route: route.fulfill(json={**many, "runs": rows}))
    page.route("**/api/events*", lambda route: route.abort())
    page.reload()
    page.get_by_text("10,000 runs", exact=True).wait_for()
    assert 10 < page.get_by_role("row").count() < 100
    page.get_by_role("button", name="Run", exact=True).click()
    row_of(page, "run-00000").wait_for()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    row_of(page, "run-09999").wait_for()
    assert page.get_by_role("row").count() < 100
    page.keyboard.press("/")
    page.keyboard.type("run-07531")
    row_of(page, "run-07531").wait_for()
    assert "q=run-07531" in page.url  # a link shows a colleague the same
    page.get_by_role("status").filter(has_text=re.compile("^1 run$")).wait_for()


def test_keys(page: Any) -> None:
    row_of(page, "kept").wait_for()
    page.keyboard.press("j")
    page.locator(".run[aria-selected='true']").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("Single letters are commands").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.get_by_role("heading", name="GPUs", exact=True).wait_for()
    page.keyboard.press("Control+k")
    page.keyboard.type("kept")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="kept", exact=True).wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    before = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != before


def test_keys_go_from_gpu_to_gpu(page: Any, dashboard: Dashboard) -> None:
    dashboard.run("holds", "import time\ntime.sleep(600)\n", "--gpus", "1")
    dashboard.wait_for("holds", "running")
    open_page(page, "gpus")
    page.get_by_role("link", name="holds").first.wait_for()
    cells, chosen = page.locator(".slots .gpu"), page.locator(".gpu[aria-current=true]")
    page.keyboard.press("l")
    chosen.wait_for()
    held = [at for at in range(3) if "held" in cells.nth(at).inner_text()]
    assert chosen.get_attribute("title") == cells.first.get_attribute("title") and len(held) == 1
    for key, at in (("l", 1), ("l", 2), ("l", 2), ("h", 1), ("h", 0), ("h", 0)):  # the last one and the first one stay
        page.keyboard.press(key)
        page.locator(f".gpu[aria-current=true][title^='GPU {at},']").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("GPU to the left, to the right").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    for _ in range(held[0]):
        page.keyboard.press("l")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="holds").wait_for()
    dashboard.longboat("stop", "holds")


def test_the_key_that_retries_pools(page: Any) -> None:
    """The page is given the report of an autoscaler; what is asked of the server is answered by it."""
    scaled = {"name": "local", "ok": True, "decisions": [], "history": [], "pools": [{"name": "gpu", "size": 1}]}
    page.route("**/api/autoscaler", lambda route: route.fulfill(json={"clusters": [scaled]}))
    open_page(page, "autoscaler")
    settle(page, "autoscaler")
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("retry pools that are off or in back-off").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    page.keyboard.press("r")
    page.locator(".toast").get_by_text("This machine has no autoscaler").wait_for()


LATE_RELOAD = """async () => {
  const { html, render } = await import("./static/lib/html.js")
  const { useLoad } = await import("./static/lib/parts.js")
  const asked = {}, reloads = {}, box = document.createElement("div")
  const Part = ({ id }) => {
    const { data, reload } = useLoad(() => new Promise((answer) => (asked[id] = [...(asked[id] || []), answer])), [id])
    reloads[id] = reload
    return html`<p>${data || "nothing yet"}</p>`
  }
  const until = async (is) => { while (!is()) await new Promise((done) => setTimeout(done, 5)) }
  render(html`<${Part} id="before" />`, box)
  await until(() => asked.before)
  render(html`<${Part} id="after" />`, box)
  await until(() => asked.after)
  reloads.before()  // a timer of what was shown before
  asked.after[0]("after")
  await until(() => box.textContent !== "nothing yet")
  return [box.textContent, asked.before.length]
}"""


def test_a_late_timer_of_the_page_before_does_not_hide_this_one(page: Any) -> None:
    assert page.evaluate(LATE_RELOAD) == ["after", 1]


def test_filters_that_hide_everything_say_so(page: Any) -> None:
    row_of(page, "kept").wait_for()
    open_page(page, "runs?q=nosuchrun&phase=failed")
    page.get_by_role("heading", name="No run matches").wait_for()
    page.get_by_role("button", name="Drop all filters").click()
    row_of(page, "kept").wait_for()


def test_the_server_goes_and_comes_back(browser: Any, tmp_path: Path) -> None:
    dashboard = Dashboard(tmp_path)
    dashboard.start()
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    try:
        page.goto(dashboard.address)
        page.get_by_text("No runs yet").wait_for()
        port = dashboard.port
        dashboard.stop()
        page.get_by_text("The dashboard has lost its server.").wait_for()
        dashboard.start(port)  # with a new token: the old page may not go on with it
        page.get_by_text("This address has no valid token").wait_for()
        page.goto(dashboard.address)
        page.get_by_text("No runs yet").wait_for()
    finally:
        context.close()
        dashboard.stop()


def test_without_the_token_nothing_is_told(browser: Any, dashboard: Dashboard) -> None:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    try:
        assert page.goto(f"{dashboard.origin}/?token=wrong").status == 401
        assert page.request.get(f"{dashboard.origin}/api/runs").status == 401
        assert "kept" not in page.content()
    finally:
        context.close()


def test_another_site_cannot_act(page: Any, dashboard: Dashboard) -> None:
    """Its page sends what a browser lets it send, with the reader's cookies where the browser gives them."""
    target = f"{dashboard.origin}/api/runs/local/kept/remove"

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<!doctype html><title>another</title>"
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    try:
        other = page.context.new_page()
        other.goto(f"http://127.0.0.1:{site.server_port}/")
        options = {"method": "POST", "mode": "no-cors", "credentials": "include", "body": "{}"}
        other.evaluate("([url, options]) => fetch(url, options).catch(() => null).then(() => 1)", [target, options])
    finally:
        site.shutdown()
        site.server_close()
    assert dashboard.status("kept")["phase"] == "failed"  # still there


def test_what_if_replays_a_trace_while_sliders_move(page: Any) -> None:
    """Its pools and its trace are loaded by hand: no cluster is shown here."""
    open_page(page, "autoscaler")
    settle(page, "autoscaler")
    panel = page.locator("#whatif")
    file = {"name": "pools.yaml", "mimeType": "text/yaml", "buffer": POOLS}
    panel.get_by_label("Load pools").set_input_files(files=[file])
    panel.get_by_role("button", name="Use an example").click()
    wait = panel.get_by_role("row", name=re.compile("^99% wait less than"))
    wait.wait_for()
    assert len(set(wait.get_by_role("cell").all_inner_texts())) == 1, "nothing was moved yet"
    panel.get_by_label("Limit of machines").fill("32")
    page.wait_for_timeout(0)
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while len(set(wait.get_by_role("cell").all_inner_texts())) == 1:
        assert time.monotonic() < deadline, panel.inner_text()
        page.wait_for_timeout(50)
    panel.get_by_role("button", name="Reset").click()
    panel.get_by_text("as it is").nth(2).wait_for()


BEYOND = "[...document.querySelectorAll('.top button')].some(each => each.getBoundingClientRect().right > innerWidth)"
"""Whether a button of the bar at the top is cut off: it clips, so the page does not scroll for it."""
SCREENS = [("light", 1440), ("dark", 1440), ("light", 768), ("light", 390), ("dark", 390)]


@pytest.mark.parametrize(("theme", "width"), SCREENS)
def test_every_page_is_accessible_and_fits(page: Any, theme: str, width: int) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 844})
    page.evaluate(axe())
    problems = []
    for path in (*PAGES, COMPARED):
        open_page(page, path)
        settle(page, path)
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        problems += [f"{path}: {found['id']}: {found['nodes'][0]['html'][:200]}" for found in result["violations"]]
        if page.evaluate(f"document.documentElement.scrollWidth > innerWidth || {BEYOND}"):
            problems.append(f"{path}: is too wide")
    assert not problems, "\n".join(problems)
