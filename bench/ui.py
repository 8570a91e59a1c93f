"""The dashboard with 10,000 runs: first paint, a changed run, a log of 100 MB at its end, memory while ten stream.

python bench/ui.py [SECONDS]    how long ten clients stream (default: 60)

A real `longboat ui` with the embedded engine, and a real browser (tests/web/browser.py). The runs are their records
alone; the one that changes and those that print are real.
"""

from __future__ import annotations

import gzip
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

RUNS, TIMES, CLIENTS = 10_000, 5, 10
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""20,000 files are written at once: what a disk takes for that is not the dashboard's."""
LOG_BYTES = 100 << 20
PRINTS = f"""
import sys
line = "step %07d loss 2.5 " + "x" * 78 + "\\n"
for first in range(0, {LOG_BYTES} // 100, 1000):
    sys.stdout.write("".join(line % number for number in range(first, first + 1000)))
"""
STREAMS = """
import time
import longboat
for step in range(10**6):
    longboat.step(step, loss=1 / (step + 1))
    print("step", step, "x" * 200, flush=True)
    time.sleep(0.01)
"""
WAITS = "import time\ntime.sleep(3600)\n"
# Milliseconds from the beginning of the navigation (or of the click) until something is drawn, seen by the page itself.
DRAWN = """([selector, since]) => new Promise(resolve => {
  const done = () => resolve(performance.now() - since)
  const look = () => requestAnimationFrame(document.querySelector(selector) ? done : look)
  look()
})"""
PHASE_SEEN = """([name, phase]) => new Promise(resolve => {
  const look = () => {
    const rows = [...document.querySelectorAll(".run")]
    const row = rows.find(each => each.querySelector(".name").textContent === name)
    row?.querySelector(".c-phase").textContent.includes(phase) ? resolve(Date.now() / 1000) : setTimeout(look, 2)
  }
  look()
})"""


def measure(stream_s: float = 60.0) -> dict[str, float]:
    from tests.web.browser import opened_browser
    from tests.web.ui_process import Dashboard

    with tempfile.TemporaryDirectory(prefix="longboat-bench-", dir=MEMORY) as scratch, opened_browser() as browser:
        dashboard = Dashboard(Path(scratch))
        fill(Path(scratch) / "home")
        try:
            figures = {**page_weight(), **first_paint(dashboard, browser)}
            figures |= changed_run(dashboard, browser)
            figures |= long_log(dashboard, browser)
            figures |= streaming(dashboard, stream_s)
        finally:
            dashboard.stop()
            for name in ("printing", "streaming", *(f"live-{number}" for number in range(TIMES))):
                dashboard.longboat("rm", name, "--force", "--yes")
        return figures


def fill(home: Path) -> None:
    """Ended runs, as their records: labels, a reason, metrics as trainings leave them."""
    from longboat.core.jobs import Job, Role
    from longboat.core.runs import Attempt, Phase
    from longboat.engines.local.records import LocalRecord, LocalState, RunFolder

    roles = (Role(name="worker", run=("python", "train.py", "--lr", "0.1")),)
    jobs = [Job(name="train", roles=roles, ends=("worker",), labels={"team": f"team-{number}"}) for number in range(7)]
    now = time.time()
    os.environ["LONGBOAT_SYNC"] = "off"
    for number in range(RUNS):
        began = now - 60.0 * (RUNS - number)
        attempts = (Attempt(number=0, started=began, ended=began + 50.0),)
        folder = RunFolder(home / "runs" / f"train-{number}")
        folder.directory.mkdir(parents=True)
        folder.write_record(
            LocalRecord(
                name=folder.directory.name, uid=f"{number:012x}", job=jobs[number % 7], base="/", created=began,
                user="anna", number=number,
            )
        )  # fmt: skip
        phase: Phase = "failed" if number % 10 == 0 else "succeeded"
        reason = "rank 0 on node worker-0 failed first: exit code 1" if phase == "failed" else ""
        folder.write_state(
            LocalState(
                phase=phase, started=began, ended=began + 50.0, exit_code=int(phase == "failed"), reason=reason,
                attempts=attempts, step=1000, metrics={"loss": 0.25, "accuracy": 0.9},
            )
        )  # fmt: skip


def page_weight() -> dict[str, float]:
    """Everything that any page loads, as it is sent."""
    folder = ROOT / "src" / "longboat" / "web" / "static"
    files = [path for path in folder.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")]
    return {"all files of the pages, gzip, kB": sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) / 1000}


@contextmanager
def reader(browser: Any) -> Iterator[Any]:
    """A page of a browser that knows nothing yet."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(120_000)
    try:
        yield context.new_page()
    finally:
        context.close()


def first_paint(dashboard: Any, browser: Any) -> dict[str, float]:
    began = time.perf_counter()
    dashboard.start()
    up = time.perf_counter() - began
    painted, asked, size = [], [], 0.0
    with reader(browser) as page:  # the server reads all records for the first time
        page.goto(dashboard.address)
        cold = page.evaluate(DRAWN, [".run", 0]) / 1000
    for _ in range(TIMES):
        with reader(browser) as page:
            page.goto(dashboard.address)
            painted.append(page.evaluate(DRAWN, [".run", 0]) / 1000)
            taken, size = page.evaluate(
                "async () => { const began = performance.now(); const answer = await fetch('api/runs');"
                " const text = await answer.text(); return [performance.now() - began, text.length] }"
            )
            asked.append(taken / 1000)
    return {
        "until `longboat ui` prints its address, s": up,
        f"{RUNS:,} runs: first paint right after that, s": cold,
        f"{RUNS:,} runs: first paint, s": statistics.median(painted),
        f"{RUNS:,} runs: of it the list from the server, s": statistics.median(asked),
        f"{RUNS:,} runs: the list before compression, MB": size / 1e6,
        f"{RUNS:,} runs: the server's memory, MiB": memory_of(dashboard),
    }


def changed_run(dashboard: Any, browser: Any) -> dict[str, float]:
    """From the write of a run's state until its row shows it, with all the others in the list."""
    delays = []
    with reader(browser) as page:
        page.goto(f"{dashboard.address}#/runs?order=newest")
        page.evaluate(DRAWN, [".run", 0])
        for number in range(TIMES):
            name = f"live-{number}"
            dashboard.run(name, WAITS)
            page.evaluate(PHASE_SEEN, [name, "running"])
            stop = subprocess.Popen(
                [sys.executable, "-m", "longboat", "stop", name],
                env=dashboard.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            seen = page.evaluate(PHASE_SEEN, [name, "stopped"])
            stop.wait()
            state = dashboard.folder / "home" / "runs" / name / "state.json"
            delays.append(seen - state.stat().st_mtime)
    return {
        "a changed run is drawn after, s": statistics.median(delays),
        "a changed run is drawn after, the latest, s": max(delays),
    }


def long_log(dashboard: Any, browser: Any) -> dict[str, float]:
    dashboard.run("printing", PRINTS)
    dashboard.wait_for("printing", "succeeded")
    opened = []
    for _ in range(TIMES):
        with reader(browser) as page:
            page.goto(dashboard.address)
            page.evaluate(DRAWN, [".run", 0])
            since = page.evaluate("() => { location.hash = '#/run/local/printing'; return performance.now() }")
            opened.append(page.evaluate(DRAWN, [".line .msg", since]) / 1000)
            assert "step 1048" in page.locator(".line .msg").last.inner_text()
    return {"a log of 100 MB is open at its end after, s": statistics.median(opened)}


def streaming(dashboard: Any, stream_s: float) -> dict[str, float]:
    """Ten clients that read events and the log of a run that prints a hundred lines each second."""
    dashboard.run("streaming", STREAMS)
    dashboard.wait_for("streaming", "running")
    over = threading.Event()
    counts = [0] * (2 * CLIENTS)

    def read(index: int, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=30)
        connection.request("GET", path, headers={"Authorization": f"Bearer {dashboard.address.partition('token=')[2]}"})
        answer = connection.getresponse()
        while not over.is_set() and (line := answer.readline()):
            counts[index] += len(line)
        connection.close()

    paths = ("/api/events", "/api/runs/local/streaming/logs/stream")
    threads = [threading.Thread(target=read, args=(n, paths[n % 2]), daemon=True) for n in range(2 * CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(stream_s / 3)
    early = memory_of(dashboard)
    time.sleep(stream_s * 2 / 3)
    late = memory_of(dashboard)
    over.set()
    for thread in threads:
        thread.join(60)
    assert min(counts) > 0, counts
    dashboard.longboat("stop", "streaming")
    return {
        f"{CLIENTS} clients stream, s": stream_s,
        f"{CLIENTS} clients: received by all, MB": sum(counts) / 1e6,
        f"{CLIENTS} clients: the server's memory after a third, MiB": early,
        f"{CLIENTS} clients: the server's memory at the end, MiB": late,
    }


def memory_of(dashboard: Any) -> float:
    text = Path(f"/proc/{dashboard.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


if __name__ == "__main__":
    for name, value in measure(*map(float, sys.argv[1:2])).items():
        print(f"{name}: {value:.3f}")
