"""Rows of runs and what has changed between two looks; events for readers at any pace."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="the extra ui is not installed")

import longboat
from longboat.core.runs import REPLICA_OF, Attempt, RunStatus
from longboat.engines.engine import Submission
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.gate.decide import ClusterUsage
from longboat.engines.local.engine import LocalEngine
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod, PodShape
from longboat.metrics.values import Activity
from longboat.web.events import EventLog
from longboat.web.places import LOCAL, ShownPlace, url_name
from longboat.web.rows import changes, row_of
from longboat.web.static_files import StaticFiles
from longboat.web.views.curves import step_times, thinned
from longboat.web.views.fleet import MOST_CELLS, cluster_nodes, services
from longboat.web.wakeups import FIGURES_S, KnownFigures
from longboat.web.watching import LONGEST_REST_S, Watchers, rest_after
from tests.web.dashboards import AskedDashboard

RUN = RunStatus(name="a", uid="u", job="a", phase="running", engine="local", created=100.0, nodes=1, gpus=4)


def test_a_row_has_an_address_and_leaves_out_what_is_empty() -> None:
    row = row_of(RUN, "lab")
    assert (row["cluster"], row["id"], row["kind"], row["attempt"]) == ("lab", "a", "run", 1)
    assert not {"reason", "labels", "exit_code", "ranks", "timeline", "gpu_hours"} & set(row)


def test_trials_replicas_and_hours() -> None:
    labels = {"sweep": "s", "trial": "3", REPLICA_OF: "x"}
    ended = msgspec.structs.replace(
        RUN, phase="failed", labels=labels, ended=4000.0, attempts=(Attempt(number=0, started=400.0, ended=4000.0),)
    )
    row = row_of(ended, "lab")
    assert (row["sweep"], row["trial"], row["kind"], row["gpu_hours"]) == ("s", "3", "replica", 4.0)
    assert "params" not in row and row_of(msgspec.structs.replace(RUN, params={"lr": 0.1}), "lab")["params"] == {
        "lr": 0.1
    }


def test_changes_are_what_is_new_other_or_gone() -> None:
    other, gone = msgspec.structs.replace(RUN, name="b"), msgspec.structs.replace(RUN, name="c")
    stepped = msgspec.structs.replace(other, step=7)
    difference = changes({"a": RUN, "b": other, "c": gone}, [stepped, RUN])
    assert (difference.changed, difference.removed) == ([stepped], ["c"])
    assert not changes({"a": RUN}, [RUN])


def test_contexts_become_names_that_urls_can_hold() -> None:
    assert url_name("lab", []) == "lab"
    assert url_name("arn:aws:eks:eu:1:cluster/x", []) == "arn-aws-eks-eu-1-cluster-x"
    assert url_name("a/b", ["a-b"]) == "a-b-2" and url_name("///", []) == "cluster"


def test_a_command_means_the_place_that_it_is_shown_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine(home)
    here = ShownPlace(LOCAL, "this machine", LOCAL, engine)
    places = [ShownPlace("lab", "lab/a", "kubernetes", engine, *where) for where in (("lab", "a b"), (None, "a"), ())]
    assert here.command("ps") == "longboat ps"
    assert [place.options for place in places] == [
        ["--on", "lab", "--namespace", "a b"],
        ["--namespace", "a"],
        ["--engine", "kubernetes"],
    ]
    assert Watchers(places[:1], EventLog()).clusters()[0]["options"] == "--on lab --namespace 'a b'"
    monkeypatch.setenv("LONGBOAT_ENGINE", "kubernetes")
    assert here.command("ps") == "longboat ps --engine local" and places[2].options == []


def test_services_that_cannot_be_listed_are_told_in_words(tmp_path: Path) -> None:
    lost = KubernetesEngine(environment={"KUBECONFIG": str(tmp_path / "none")})
    (problem,) = services([(ShownPlace("lab-1", "lab", "kubernetes", lost), [])])["problems"]
    assert problem.startswith("lab: ") and "none" in problem


def test_services_whose_records_are_damaged_are_named(home: Path) -> None:
    (home / "services" / "svc").mkdir(parents=True)
    (home / "services" / "svc" / "service.json").write_text("{")
    shown = services([(ShownPlace("this", "here", LOCAL, LocalEngine(home)), [])])
    (problem,) = shown["problems"]
    assert shown["services"] == [] and problem.startswith("here: the service svc is damaged: ")


def follow(events: EventLog, cursor: str) -> list[str]:
    async def read() -> list[str]:
        return [data.decode() async for data in events.follow(cursor, dict)]

    return asyncio.run(read())


def test_a_reader_that_fell_behind_is_told_and_ended() -> None:
    events = EventLog(most_events=3)
    start = events.cursor
    for number in range(5):
        events.publish("runs", number)
    assert 'event: reset\ndata: {"reason":"behind"}' in follow(events, start)[-1]
    assert "restarted" in follow(events, "abc-1")[-1]
    for bad in ("", "-", f"{events.epoch}-99", f"{events.epoch}-x", events.epoch + "-" + 5000 * "1"):
        assert events.after(bad) is None
    assert [event.number for event in events.after(f"{events.epoch}-3") or ()] == [4, 5]


def test_the_history_is_bounded_in_bytes_and_a_closed_one_ends() -> None:
    events = EventLog(most_bytes=1000)
    for _ in range(50):
        events.publish("lines", "x" * 100)
    assert len(events.after(events.beginning) or ()) < 10
    events.close()
    assert follow(events, events.beginning)[-1].startswith(f"id: {events.epoch}-50")


def test_a_place_that_does_not_answer_keeps_its_rows(tmp_path: Path) -> None:
    shown = AskedDashboard(tmp_path)
    shown.watchers.note(LOCAL, [RUN], 100.0)
    shown.watchers.note_trouble(LOCAL, "the API server does not answer")
    (cluster,) = shown.watchers.clusters()
    assert cluster["ok"] is False and "does not answer" in cluster["error"]
    assert len(shown.watchers.rows()[1]) == 1
    shown.watchers.note(LOCAL, [], 101.0)
    assert shown.watchers.clusters()[0]["ok"] and shown.watchers.rows()[1] == []


def test_too_many_changes_make_readers_load_the_list(tmp_path: Path) -> None:
    shown: Watchers = AskedDashboard(tmp_path).watchers
    cursor = shown.events.cursor
    shown.note(LOCAL, [msgspec.structs.replace(RUN, name=f"r{number}") for number in range(3000)], 100.0)
    assert shown.events.after(cursor) is None and len(shown.rows()[1]) == 3000


def test_thinned_curves_keep_their_extremes_and_end() -> None:
    points = [(step, float(step), 0.0) for step in range(100_000)]
    points[50_001] = (50_001, 1.0, 9.0)
    points[70_001] = (70_001, 1.0, -9.0)
    kept = thinned(points)
    assert len(kept) <= 2000 and points[50_001] in kept and points[70_001] in kept and kept[-1] == points[-1]
    assert thinned(points[:10]) == points[:10]


def test_slowness_is_against_the_median_rank() -> None:
    times = step_times({"0": [(1.0, 0.1)], "1": [(1.0, 0.1)], "2": [(1.0, 0.3)]})
    assert times["2"]["slowness"] == pytest.approx(3.0) and times["0"]["slowness"] == 1.0


def test_files_outside_of_the_folder_have_no_name(tmp_path: Path) -> None:
    folder = tmp_path / "static"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "a.js").write_text("1")
    (folder / "run.py").write_text("1")
    assert set(StaticFiles(folder).names()) == {"a.js"}


def test_a_look_is_followed_by_a_rest_that_a_busy_machine_does_not_lengthen() -> None:
    assert rest_after("local", wall_s=3.0, cpu_s=0.02) == pytest.approx(0.1)
    assert rest_after("local", wall_s=3.0, cpu_s=2.0) == LONGEST_REST_S  # the first look, which reads all
    assert rest_after("kubernetes", wall_s=3.0, cpu_s=0.02) == pytest.approx(15.0)


def test_a_place_that_always_has_news_is_told_of_as_alive_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages show the time of the last heartbeat as the age of what they show."""
    monkeypatch.setattr("longboat.web.events.HEARTBEAT_S", 0.0)
    events = EventLog()

    async def beats() -> int:
        count = 0
        events.publish("runs", {})
        async for data in events.follow(events.beginning, dict):
            events.publish("runs", {})
            count += 1
            if count > 1 and data.startswith(b"event: heartbeat"):
                return count
            assert count < 100
        return 0

    assert asyncio.run(beats()) == 4  # a beat, the two events that were there, a beat


@pytest.mark.parametrize(
    ("has", "asked", "shown"), [(8, 3, 8), (0, 8, 8), (8, 3 << 60, MOST_CELLS), (3 << 60, 1, MOST_CELLS)]
)
def test_what_a_pod_asks_for_fills_no_page(has: int, asked: int, shown: int) -> None:
    """Whoever may make pods can bind one to a node whose kubelet is gone, with any number of GPUs."""
    pod = Pod(name="x", namespace="tenant", node="n", shape=PodShape(requests=(("nvidia.com/gpu", asked),)))
    node = NodeShape(name="n", allocatable=(("nvidia.com/gpu", has),))
    (row,) = cluster_nodes("lab", ClusterUsage(nodes=(node,), pods=(pod,)), Activity(), "ns")
    assert len(row["gpus"]) == shown


SLOW = """
import os, sys, time
import longboat
folder = os.environ["LONGBOAT_CHECKPOINT_DIR"] + "/step-2"
os.makedirs(folder, exist_ok=True)
open(folder + "/.complete", "w").close()
for step in range(100000):
    longboat.step(step, loss=float("nan"))
    time.sleep(0.05)
"""


def test_a_run_at_work_tells_what_matters_of_it_in_the_list_too(tmp_path: Path) -> None:
    """Findings, pace and the newest checkpoint: lists have none of them, and stopping asks by them."""
    dashboard = AskedDashboard(tmp_path / "home")
    engine, figures = dashboard.engine, KnownFigures(dashboard.engine)
    (tmp_path / "train.py").write_text(SLOW)
    job = longboat.job(name="slow", run="python train.py")
    engine.submit(Submission(job=job, base=str(tmp_path), run_id="slow", environment=engine.environment))
    try:
        deadline, row = time.monotonic() + 60, dict[str, Any]()
        times = itertools.count(0.0, FIGURES_S["local"])
        while not {"findings", "steps_per_s", "checkpoint"} <= row.keys():
            assert time.monotonic() < deadline, row
            (run,) = figures.add(engine.list())
            figures.ask(lambda: next(times))
            row = row_of(run, LOCAL)
            time.sleep(0.1)
        assert "loss" in row["findings"][0] and row["checkpoint"].endswith("step-2")
        assert not {"findings", "checkpoint"} & row_of(engine.list()[0], LOCAL).keys()
    finally:
        engine.stop("slow")
        engine.wait("slow", timeout_s=60)
    (ended,) = figures.add(engine.list())
    assert ended.is_final and ended.findings == ()


def test_one_run_at_a_time_is_looked_at_in_full(tmp_path: Path) -> None:
    asked: list[str] = []

    class Counting(LocalEngine):
        def status(self, run: str) -> RunStatus:
            asked.append(run)
            return msgspec.structs.replace(RUN, name=run, uid=run, findings=("slow",))

    figures = KnownFigures(Counting(tmp_path))
    runs = [msgspec.structs.replace(RUN, name=name, uid=name) for name in "abc"]
    runs.append(msgspec.structs.replace(RUN, name="waits", uid="w", phase="pending"))
    assert figures.add(runs) == runs
    for look in range(4):
        figures.ask(lambda look=look: float(look))
    assert asked == ["a", "b", "c"]
    assert [run.findings for run in figures.add(runs)] == [("slow",)] * 3 + [()]
    clock = iter([FIGURES_S["local"], FIGURES_S["local"] + 0.5])  # half a second: the next may be asked in five
    figures.ask(lambda: next(clock))
    figures.ask(lambda: FIGURES_S["local"] + 5.4)
    assert asked[3:] == ["a"]
    figures.ask(lambda: FIGURES_S["local"] + 5.5)
    assert asked[3:] == ["a", "b"]
