"""The interface of the dashboard over an embedded engine: every request that a page makes, and hostile ones."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("starlette", reason="the extra ui is not installed")

import longboat
from longboat.core.jobs import Serve
from longboat.engines.engine import Submission
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.shared.files import open_lock, try_lock
from longboat.engines.shared.home import Home
from longboat.serving.local.records import ServiceFolder, Version, WantedService
from longboat.serving.local.services import LocalServices
from longboat.sweeps.submit import create_sweep, place_of, record_of
from longboat.web.views import scaling
from longboat.web.views.logs import READ_BYTES
from longboat.workbench.jobs import ServerOptions, bench_job
from tests.web.asgi import stream
from tests.web.dashboards import BEARER, AskedDashboard

TRAINER = """
import longboat, os, sys, time
for step in range(40):
    longboat.step(step, loss=1 / (step + 1))
    print("step", step, flush=True)
    time.sleep(0.005)
print("\\x1b[31m<script>alert(1)</script>\\x00", flush=True)
print("x" * 100_000, file=sys.stderr, flush=True)
os.makedirs(os.environ["LONGBOAT_CHECKPOINT_DIR"] + "/step-40", exist_ok=True)
open(os.environ["LONGBOAT_CHECKPOINT_DIR"] + "/step-40/.complete", "w").close()
sys.exit(int(os.environ.get("CODE", 0)))
"""
POOLS = "pools: [{name: a, max: 4, price: 2.0, boot: 2m, machine: {cpus: 8, memory: 32Gi, gpus: 4}}]"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskedDashboard]:
    """Two ended runs: `good` with a checkpoint, `bad` with exit code 7."""
    folder = tmp_path_factory.mktemp("web")
    dashboard = AskedDashboard(folder / "home")
    patch = pytest.MonkeyPatch()
    patch.setenv("LONGBOAT_HOME", str(folder / "home"))
    dashboard.run(folder / "code", TRAINER, "good", labels={"team": "vision"})
    dashboard.run(folder / "code", TRAINER, "bad", env={"CODE": "7"})
    dashboard.look()
    yield dashboard
    patch.undo()


def test_state_says_who_and_where(shown: AskedDashboard) -> None:
    state = shown.get("/api/state").data
    assert state["currency"] == "USD"
    assert state["readonly"] is False and state["user"] and len(state["csrf"]) == 64
    (cluster,) = state["clusters"]
    assert (cluster["name"], cluster["kind"], cluster["ok"], cluster["loading"]) == ("local", "local", True, False)
    assert cluster["gpu_hour"] == 0.0  # one's own


def test_prices_are_told_as_they_were_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGBOAT_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text("currency: EUR\n")
    dashboard = AskedDashboard(tmp_path / "home", gpu_hour=2.5)
    assert [cluster["gpu_hour"] for cluster in dashboard.get("/api/state").data["clusters"]] == [None]
    dashboard.look()
    state = dashboard.get("/api/state").data
    assert (state["currency"], state["clusters"][0]["gpu_hour"]) == ("EUR", 2.5)


def test_rows_have_an_address_and_nothing_empty(shown: AskedDashboard) -> None:
    answer = shown.get("/api/runs", **{"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    rows = {row["id"]: row for row in answer.data["runs"]}
    assert rows["good"]["phase"] == "succeeded" and rows["good"]["labels"] == {"team": "vision"}
    assert rows["bad"]["exit_code"] == 7 and rows["bad"]["reason"]
    for row in rows.values():
        assert row["cluster"] == "local" and row["kind"] == "run" and row["owner"]
        assert None not in row.values() and "" not in row.values()


def test_events_resume_and_tell_changes(shown: AskedDashboard) -> None:
    async def read() -> list[str]:
        pieces = stream(shown.app, "GET", f"/api/events?since={shown.watchers.events.epoch}-0", BEARER)
        status, headers = await anext(pieces)
        assert status == 200 and headers["content-type"].startswith("text/event-stream")
        texts = []
        async for piece in pieces:
            texts.append(piece.decode())
            if any("event: runs" in text for text in texts):
                break
        await pieces.aclose()
        return texts

    texts = asyncio.run(read())
    assert texts[0].startswith("event: heartbeat")
    event = next(text for text in texts if "event: runs" in text)
    data = json.loads(event.partition("data: ")[2])
    assert {row["id"] for row in data["changed"]} == {"good", "bad"} and data["removed"] == []
    assert event.startswith(f"id: {shown.watchers.events.epoch}-")


def test_one_run_in_full(shown: AskedDashboard) -> None:
    page = shown.get("/api/runs/local/bad").data
    assert page["status"]["exit_code"] == 7 and page["status"]["ranks"] and page["status"]["attempts"]
    assert "exit" in page["explain"]["headline"] and "python train.py" in page["job_yaml"]
    assert page["commands"]["reproduce"].startswith("longboat rerun bad")
    assert page["may"] == {"stop": False, "retry": True, "resume": True, "remove": True}
    phases = [span["phase"] for span in page["status"]["timeline"]]
    assert phases[-1] == "training"


def test_logs_are_counted_from_the_end_and_are_text(shown: AskedDashboard) -> None:
    last = shown.get("/api/runs/local/good/logs?to=2").data
    assert [line["stream"] for line in last["lines"]] == ["out", "err"] and last["more"] is True
    assert last["lines"][0]["text"] == "\x1b[31m<script>alert(1)</script>\x00"
    assert len(last["lines"][1]["text"]) == 16384 and last["lines"][1]["cut"] == 100_000 - 16384
    before = shown.get(f"/api/runs/local/good/logs?from=2&to=4&until={last['until']}").data
    assert [line["text"] for line in before["lines"]] == ["step 38", "step 39"]
    hits = shown.get("/api/runs/local/good/logs?grep=STEP%20[12]$&regex=1&ignore_case=1&rank=0").data
    assert [line["text"] for line in hits["lines"]] == ["step 1", "step 2"] and hits["more"] is False
    assert shown.get("/api/runs/local/good/logs?grep=step%20[12]$").data["lines"] == []  # plain text
    assert len(shown.get("/api/runs/local/good/logs?grep=alert(").data["lines"]) == 1
    early = shown.get(f"/api/runs/local/good/logs?until={hits['lines'][0]['time']}&to=1").data
    assert early["lines"] == [] or early["lines"][-1]["text"].startswith("step ")


LONG_LINE = """
import sys
sys.stdout.write("\\x1b[31m<script>" + 100 * ("x" * (1 << 20)) + "\\n")
sys.stdout.write("behind it\\n")
"""


def test_a_line_of_100_mb_costs_a_window(shown: AskedDashboard, tmp_path: Path) -> None:
    shown.run(tmp_path, LONG_LINE, "long-line")
    for target in ("logs?to=2", "logs?to=2&grep=behind", "logs/stream?tail=2"):
        tracemalloc.start()
        answer = shown.get(f"/api/runs/local/long-line/{target}")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert answer.status == 200 and b"behind it" in answer.body
        assert len(answer.body) < 1 << 20 and peak < 4 * READ_BYTES, (target, peak >> 20)


def test_a_log_stream_ends_with_the_run(shown: AskedDashboard) -> None:
    text = shown.get("/api/runs/local/good/logs/stream?tail=3").body.decode()
    lines = [line for line in text.splitlines() if line.startswith("data: ")]
    assert "step 39" in text and text.rstrip().endswith('data: {"reason":"ended"}')
    assert all(json.loads(line[6:]) is not None for line in lines)


def test_curves_and_checkpoints(shown: AskedDashboard) -> None:
    curves = shown.get("/api/runs/local/good/metrics").data
    assert curves["series"]["loss"][0][0] == 0 and curves["series"]["loss"][-1][0] == 39
    assert curves["step_times"]["0"]["slowness"] == 1.0 and curves["stragglers"] == []
    assert curves["attempts"][0]["number"] == 1
    kept = shown.get("/api/runs/local/good/checkpoints").data
    assert [(entry["step"], entry["complete"]) for entry in kept["checkpoints"]] == [(40, True)]


def test_runs_side_by_side(shown: AskedDashboard) -> None:
    data = shown.get("/api/compare?run=local/good&run=local/bad").data
    assert data["runs"] == ["good", "bad"] and data["differing"]["env.CODE"] == [None, "7"]
    assert len(data["curves"]["loss"]) == 2
    assert shown.get("/api/compare?run=local/good").status == 400


def test_a_sweep_is_stopped(shown: AskedDashboard, tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text("import time\ntime.sleep(600)\n")
    job = longboat.job(name="held", run="python wait.py", sweep={"x": [1, 2, 3], "parallel": 1})
    submission = Submission(job=job, base=str(tmp_path), environment=shown.engine.environment)
    record = record_of(Home(), shown.engine, submission, "held", place_of(shown.engine))
    create_sweep(Home(), shown.engine, record)
    assert shown.post("/api/sweeps/local/nothing/stop").status == 404
    assert shown.post("/api/sweeps/local/held/stop").data == {"cluster": "local", "name": "held"}
    deadline = time.monotonic() + 60
    while (seen := shown.get("/api/sweeps/local/held").data)["phase"] == "running":
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)
    assert seen["phase"] == "stopped" and len(seen["trials"]) < 3
    assert shown.post("/api/sweeps/local/held/stop").status == 200, "it has ended already"


@pytest.mark.parametrize("name", ["sweeps", "nodes", "queue", "services", "autoscaler", "clusters"])
def test_every_list_is_answered_where_it_is_empty(shown: AskedDashboard, name: str) -> None:
    answer = shown.get(f"/api/{name}")
    assert answer.status == 200
    (key, *_) = answer.data
    assert isinstance(answer.data[key], list)


@pytest.mark.parametrize(
    "target",
    [
        "/api/runs/local/nothing",
        "/api/runs/elsewhere/good",
        "/api/runs/local/..",
        "/api/runs/local/" + "x" * 5000,
        "/api/sweeps/local/" + "x" * 5000,
        "/api/runs/local/%2e%2e%2fgood/logs",
        "/api/runs/local/nothing/logs/stream",
        "/api/sweeps/local/nothing",
        "/api/other",
        "/static/..%2f__init__.py",
        "/static/../access.py",
        "/static//etc/passwd",
        "/static/index.html%00",
    ],
)
def test_what_is_not_there_is_not_found(shown: AskedDashboard, target: str) -> None:
    answer = shown.get(target)
    assert answer.status == 404 and answer.data["error"]


@pytest.mark.parametrize(
    "query",
    [
        "from=x",
        "to=0",
        "from=5&to=2",
        "to=999999999",
        "rank=-5",
        "rank=1e3",
        "attempt=0",
        "until=soon",
        "regex=1&grep=(",
    ],
)
def test_a_bad_query_is_answered_in_words(shown: AskedDashboard, query: str) -> None:
    answer = shown.get(f"/api/runs/local/good/logs?{query}")
    assert answer.status == 400 and answer.data["error"], answer


@pytest.mark.parametrize("body", [b"[", b"[]", b'"x"', b"\xff", b"[" * 5000])
def test_a_body_that_is_no_object_is_refused(shown: AskedDashboard, body: bytes) -> None:
    from tests.web.asgi import ask

    answer = asyncio.run(ask(shown.app, "POST", "/api/simulate", BEARER, body))
    assert answer.status == 400


def test_what_the_phase_rules_out_is_refused(shown: AskedDashboard) -> None:
    assert shown.post("/api/runs/local/good/stop").status == 200  # nothing happens to an ended run
    assert shown.post("/api/runs/local/good/stop", {"grace_s": "x"}).status == 400
    assert shown.post("/api/runs/local/good/explode").status == 404
    assert shown.post("/api/runs/local/nothing/remove").status == 404
    assert shown.get("/api/runs/local/good/stop").status == 404


def test_a_run_is_made_again_and_removed(shown: AskedDashboard) -> None:
    made = shown.post("/api/runs/local/good/retry").data
    assert made["cluster"] == "local" and made["id"] not in ("good", "bad")
    assert shown.engine.wait(made["id"], timeout_s=60).phase == "succeeded"
    assert shown.post(f"/api/runs/local/{made['id']}/remove", {"purge": True}).data == {"removed": made["id"]}
    assert shown.get(f"/api/runs/local/{made['id']}").status == 404


def test_read_only_changes_nothing(shown: AskedDashboard) -> None:
    other = AskedDashboard(Path(shown.engine.home.root), readonly=True)
    answer = other.post("/api/runs/local/good/remove")
    assert answer.status == 403 and "read-only" in answer.data["error"]
    assert other.post("/api/sweeps/local/any/stop").status == 403
    page = other.get("/api/runs/local/good").data
    assert not any(page["may"].values())


def test_the_way_into_a_notebook_is_shown_to_its_owner_alone(shown: AskedDashboard) -> None:
    """A run that holds a node stands for JupyterLab: it says of itself what JupyterLab's would say."""
    job = bench_job(longboat.job(name="bench", run="sh", workdir=None), "lab", ServerOptions(idle_s=600))
    job = msgspec.structs.replace(job, roles=(msgspec.structs.replace(job.roles[0], run="sleep 600"),))
    shown.engine.submit(Submission(job=job, base="/", run_id="bench", environment=shown.engine.environment))
    try:
        eventually(lambda: shown.engine.status("bench").phase == "running")
        node = Path(shown.engine.home.run_dir("bench"), "attempts", "0", "worker-0")
        (node / "workbench").mkdir(exist_ok=True)
        session = {"kind": "lab", "launcher": [], "port": 8888, "token": "secret"}
        (node / "workbench" / "session.json").write_text(json.dumps(session))
        guest = AskedDashboard(Path(shown.engine.home.root), readonly=True)
        ways = []
        for dashboard in (shown, guest):
            dashboard.look()
            (bench,) = dashboard.get("/api/services").data["benches"]
            ways.append((bench.get("url"), bench.get("open")))
        assert ways == [("http://127.0.0.1:8888/?token=secret", None), (None, "longboat notebook")]
        (node / "workbench" / "session.json").write_text(json.dumps({**session, "path": "//evil.example"}))
        (bench,) = shown.get("/api/services").data["benches"]
        assert "url" not in bench, "it leads elsewhere"
    finally:
        shown.engine.stop("bench", grace_s=0)


def test_read_only_starts_nothing(shown: AskedDashboard, tmp_path: Path) -> None:
    home = Path(shown.engine.home.root)
    job = longboat.job(name="orphan", run="sleep 600", workdir=None)
    shown.engine.submit(Submission(job=job, base="/", run_id="orphan", environment=shown.engine.environment))
    files = RunFiles(home / "runs" / "orphan")
    eventually(lambda: files.state().phase == "running")
    supervisor = files.state().supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    eventually(lambda: is_free(files.lock))
    version = Version(number=1, run="good", step=None, checkpoint=None, command=("true",), job=job, base="/")
    folder = ServiceFolder(shown.engine.home, "left")
    folder.directory.mkdir(parents=True)
    wanted = {"uid": "u1", "created": 1.0, "user": "me", "host": "127.0.0.1", "port": 0, "serve": Serve(replicas=0)}
    folder.write_wanted(WantedService(name="left", versions=(version,), current=1, **wanted))  # type: ignore[arg-type]
    try:
        other = AskedDashboard(home, readonly=True)
        other.look()
        for path in ("runs/local/orphan", "runs/local/orphan/logs", "runs/local/orphan/metrics", "services", "queue"):
            assert other.get(f"/api/{path}").status == 200, path
        (service,) = other.get("/api/services").data["services"]
        assert service["phase"] == "failed" and "it is only looked at" in service["reason"]
        assert is_free(files.lock) and not folder.log.exists()
        folder.request_stop()
        assert other.get("/api/services").data["services"][0]["phase"] == "stopping"
        assert not folder.log.exists()
    finally:
        shown.engine.delete("orphan")
        LocalServices(shown.engine).stop("left")


def is_free(lock: Path) -> bool:
    descriptor = open_lock(lock)
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_files_have_tags_and_pages_their_own_address(shown: AskedDashboard) -> None:
    page = shown.get("/runs/local/good")
    assert page.status == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    again = shown.get("/", **{"if-none-match": page.headers["etag"]})
    assert again.status == 304 and again.body == b""
    assert shown.get("/static/index.html", **{"accept-encoding": "gzip"}).body == page.body


def test_what_if_is_answered_without_a_cluster(shown: AskedDashboard) -> None:
    pools = "pools: [{name: a, max: 4, price: 2.0, boot: 2m, machine: {cpus: 8, memory: 32Gi, gpus: 4}}]"
    asked = {"trace": "generate:even", "jobs": 10, "pools": pools, "idle_s": 0, "max": 8}
    data = shown.post("/api/simulate", asked).data
    assert data["after"]["jobs_finished"] == 10 and data["settings"] == {"idle_s": 0, "spare": 0, "max": 8}
    assert shown.post("/api/simulate", {**asked, "spare": -1}).status == 400
    assert shown.post("/api/simulate", {"pools": pools}).status == 404  # no run with GPUs within a week


@pytest.mark.parametrize(
    "field", [{"trace": "a,b\n1,2"}, {"trace": "\0"}, {"pools": "pools: [{name: A b}]"}, {"pools": "["}]
)
def test_mistakes_in_a_trace_or_pools_are_the_senders(shown: AskedDashboard, field: dict[str, str]) -> None:
    answer = shown.post("/api/simulate", {"trace": "generate:even", "jobs": 2, "pools": POOLS, **field})
    assert answer.status == 400, answer
    (name,) = field
    assert answer.data["error"].startswith({"trace": "trace.csv", "pools": "pools.yaml"}[name])


def test_a_trace_without_end_is_given_up(shown: AskedDashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = "timestamp,duration,num_gpus\n" + "\n".join(f"{moment * 60},1e9,4" for moment in range(20))
    answer = shown.post("/api/simulate", {"trace": trace, "pools": POOLS})
    assert answer.status == 400 and "more than 366 days" in answer.data["error"]
    monkeypatch.setattr(scaling, "LONGEST_S", 1e-6)
    answer = shown.post("/api/simulate", {"trace": "generate:even", "jobs": 50, "pools": POOLS})
    assert answer.status == 400 and "s to simulate" in answer.data["error"]
