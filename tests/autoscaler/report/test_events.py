"""What others are told: a webhook (a real server), events (a real cluster), metrics, lines of the log, the report."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest

from longboat.autoscaler.loop import AutoscalerLoop
from longboat.autoscaler.model.backoff import BackoffWindow
from longboat.autoscaler.model.plan import NodeNote, PendingItem, PoolNote, ScalingAction, ScalingPlan
from longboat.autoscaler.model.snapshot import ClusterSnapshot, Gang, Order
from longboat.autoscaler.model.turn import ActionResult, LoopTurn
from longboat.autoscaler.providers.kwok import KwokProvider
from longboat.autoscaler.report.events import Events, Webhook, events_of, sentence
from longboat.autoscaler.report.metrics import Metrics, serve
from longboat.autoscaler.report.status import DETAILS, Reporter, public, read_report, report_of
from longboat.autoscaler.report.turn_log import lines
from longboat.core.errors import UsageError
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP, EVENT, NAMESPACE
from tests.autoscaler.stages import Stage, pool, wait_for
from tests.storage.answering import Told, answering

GROW = ScalingAction(kind="grow", pool="gpu", count=2, reason="2 for default/r", zones={"a": 1, "b": 1})
REMOVE = ScalingAction(kind="delete", node="n1", pool="gpu", reason="idle")
TURN = LoopTurn(
    now=1_794_744_000.0,
    snapshot=ClusterSnapshot(
        pools=(pool("gpu", price=2.5), pool("shut")),
        orders=(
            Order(pool="gpu", machine="t/0", asked=1_794_743_990.0, zone="a", gang="default/r"),
            Order(pool="gpu", machine="t/1", asked=1_794_743_990.0, zone="a", gang="default/r"),
            Order(pool="gpu", machine="late", asked=0.0),
        ),
    ),
    plan=ScalingPlan(
        waiting=(
            PendingItem(run="default/r", reason="machines are ordered", expected=1_794_744_300.0),
            PendingItem(pod="default/never", reason='needs 9 "GPUs"\nno machine has them'),
        ),
        nodes=(
            NodeNote(node="n1", state="busy", reason="pods", pool="gpu"),
            NodeNote(node="x", state="unmanaged", reason=""),
        ),
        pools=(
            PoolNote(
                pool="gpu",
                reason="grows by 2",
                size=3,
                coming=2,
                ordered=2,
                backoffs=(
                    BackoffWindow(
                        kind="stockout", zone="a", until=1_794_745_000.5, count=3, reason="stockout, not asked"
                    ),
                    BackoffWindow(kind="throttled", until=1_794_744_001.0, reason="throttled", is_delay=True),
                ),
            ),
            PoolNote(
                pool="shut",
                reason="does not grow",
                backoffs=(BackoffWindow(kind="auth", reason="off because of auth"),),
            ),
        ),
    ),
    results=(ActionResult(action=GROW), ActionResult(action=REMOVE, trouble="a pod is there")),
    decide_s=0.25,
    total_s=0.5,
)


class Hook:
    """A web server that keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.kinds: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.kinds.append(self.headers.get("Content-Type"))
                outer.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/services/secret"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    yield found
    found.close()


def test_a_webhook_is_told_what_was_done_and_who_is_refused_once(hook: Hook) -> None:
    said: list[str] = []
    webhook = Webhook(hook.url, said.append, name="lab")
    webhook.turned(TURN)
    webhook.turned(LoopTurn(now=0.0, snapshot=TURN.snapshot, plan=TURN.plan))  # nothing new
    webhook.failed("no answer")
    webhook.failed("no answer")
    webhook.turned(LoopTurn(now=0.0, snapshot=ClusterSnapshot(), plan=ScalingPlan()))
    webhook.close()
    assert [set(body) for body in hook.bodies] == [{"text"}] * 3 and set(hook.kinds) == {"application/json"}
    first, second, third = (body["text"] for body in hook.bodies)
    assert first.startswith("longboat autoscaler (lab): pool gpu grows by 2: 2 for default/r\n")
    assert "node n1 was to be removed: idle - not done: a pod is there" in first and "default/never waits" in first
    assert "default/r" not in first.partition("\n")[2]
    assert "cannot work: no answer" in second and "works again" in third
    assert said == []


def test_a_webhook_that_is_down_is_told_once_and_stops_nothing(hook: Hook) -> None:
    hook.server.server_close()
    said: list[str] = []
    webhook = Webhook(hook.url, said.append)
    webhook.turned(TURN)
    webhook.failed("x")
    webhook.close()
    assert len(said) == 1 and "127.0.0.1 cannot be told" in said[0] and "secret" not in said[0]


@pytest.mark.parametrize(
    "answer",
    [b"nonsense\r\n\r\n", b"", b"HTTP/1.1 99999 x\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n"],
    ids=["no status line", "nothing", "no status", "too many headers"],
)
def test_a_webhook_that_speaks_no_http_is_told_again(answer: bytes) -> None:
    """Whatever it answered to one message, the next one is sent, by the same thread."""
    answers = [Told(raw=answer)] * 4
    said: list[str] = []
    with answering(lambda _: answers.pop() if answers else Told(body=b"ok")) as server:
        webhook = Webhook(server.url, said.append)
        webhook.failed("first")
        webhook.failed("second")
        webhook.failed("third")
        webhook.close()
        texts = [json.loads(asked.body)["text"].rpartition(" ")[2] for asked in server.requests]
    assert texts == ["first"] * 3 + ["second"] * 2 + ["third"] and len(said) == 1


@pytest.mark.parametrize("address", ["file:///etc/passwd", "slack.com/x", "http:///x"])
def test_an_invalid_webhook_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError):
        Webhook(address, print)


def test_metrics_are_in_prometheus_text_format() -> None:
    metrics = Metrics(lambda: True)
    metrics.turned(TURN)
    metrics.turned(TURN)
    metrics.failed("x")
    server = serve(0, metrics, {"/readyz": lambda: "blind"})
    try:
        port = server.server_address[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/x", timeout=10)
    finally:
        server.shutdown()
        server.server_close()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    own = {key.removeprefix("longboat_autoscaler_"): value for key, value in found.items()}
    assert own["leader"] == "1" and own["loops_total"] == "2" and own["loop_failures_total"] == "1"
    assert own["decide_cpu_seconds_total"] == "0.5"
    assert own['actions_total{kind="grow",pool="gpu"}'] == "4"
    assert own['actions_failed_total{kind="delete",pool="gpu"}'] == "2"
    assert own['nodes{pool="gpu",state="busy"}'] == "1" and own['nodes{pool="",state="unmanaged"}'] == "1"
    assert own['machines{pool="gpu"}'] == "3" and own['price_per_hour{pool="gpu"}'] == "7.5"
    assert own['waiting{kind="pod"}'] == "1" and own['waiting_served{kind="run"}'] == "1"
    assert own['refusals{pool="gpu",zone="a",kind="stockout"}'] == "3"
    assert own['refusals{pool="shut",zone="",kind="auth"}'] == "1"
    assert own['backoff_until_timestamp_seconds{pool="gpu",zone="a",kind="stockout"}'] == "1794745000.5"
    assert 'backoff_until_timestamp_seconds{pool="shut",zone="",kind="auth"}' not in own
    assert own['pool_off{pool="gpu"}'] == "0" and own['pool_off{pool="shut"}'] == "1"
    assert own['machines_ordered{pool="gpu"}'] == "2"
    heads = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))


def test_the_state_of_every_node_is_logged_as_text_and_as_json() -> None:
    text = list(lines(TURN, "text"))
    assert "2026-11-15T12:00:00Z node node=n1 state=busy pool=gpu: pods" in text
    assert any("kind=grow" in line and "zones=a:1,b:1" in line for line in text)
    assert any("(not done: a pod is there)" in line for line in text)
    records = [json.loads(line) for line in lines(TURN, "json")]
    assert {"time": "2026-11-15T12:00:00Z", "what": "node", "node": "x", "state": "unmanaged", "reason": ""} in records
    assert len(records) == len(text) == 2 + 2 + 2 + 2
    shut = next(one for one in records if one.get("pool") == "shut")
    assert shut["backoffs"] == [{"kind": "auth", "count": 1, "reason": "off because of auth"}]
    assert not any("backoffs" in line for line in text)


def test_pools_that_are_not_asked_are_told_of_by_events_but_not_those_that_wait_for_seconds() -> None:
    told = [(one.name, one.reason, one.message) for one in events_of(TURN, "home") if one.part]
    assert told == [
        ("longboat-autoscaler", "PoolBackOff", "pool gpu, zone a: stockout, not asked"),
        ("longboat-autoscaler", "PoolOff", "pool shut: off because of auth"),
    ]


class Written:
    """Keeps what a client is asked to write; asking it for anything else fails."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def create(self, body: dict[str, Any]) -> None:
        self.bodies.append(body)


def test_the_record_of_a_run_is_not_read_to_tell_of_it() -> None:
    client, said = Written(), list[str]()
    gang = Gang(name="team/r", pods=(), run="r", owner="uid-of-r")
    waiting = (PendingItem(run="team/r", reason="no quota"),)
    turn = LoopTurn(now=0.0, snapshot=ClusterSnapshot(gangs=(gang,)), plan=ScalingPlan(waiting=waiting))
    Events(cast(Client, client), "home", said.append).turned(turn)
    (event,) = client.bodies
    assert event["involvedObject"]["uid"] == "uid-of-r" and not said


def test_orders_in_flight_are_in_the_report() -> None:
    (order,) = report_of(TURN, None, "me").orders
    assert (order.pool, order.zone, order.count, order.gang) == ("gpu", "a", 2, "default/r")
    assert (order.asked, order.expected) == (1_794_743_990.0, 1_794_744_010.0)


@pytest.mark.cluster
def test_events_on_pods_runs_and_nodes_and_the_report(stage: Stage) -> None:
    said: list[str] = []
    stage.job("train", run_for="0.1s")
    stage.job("never", gpus=9)
    listeners = (
        Events(stage.client, stage.namespace, said.append),
        Reporter(stage.client, stage.namespace, "me", said.append),
    )
    config = stage.config(stage.pool("gpu"))
    loop = AutoscalerLoop(
        stage.client, config, {"kwok": KwokProvider(stage.client, stage.namespace)}, listeners=listeners
    )
    ending = threading.Event()
    thread = threading.Thread(target=loop.run, args=(ending,))
    thread.start()
    try:
        wait_for("it has ended", lambda: stage.is_done("train"))
        wait_for("all machines are gone", lambda: not stage.machines() and not stage.nodes())
        wait_for("the report tells", lambda: "removed" in report_text(stage))
    finally:
        ending.set()
        thread.join()
    assert said == []
    events = stage.client.list(EVENT, namespace=stage.namespace, fields="reportingComponent=").items
    mine = [one for one in events if (one.get("source") or {}).get("component") == "longboat-autoscaler"]
    about = {(one["involvedObject"]["name"].rpartition("-")[0], one["reason"], one["type"]) for one in mine}
    assert ("train-0", "TriggeredScaleUp", "Normal") in about
    assert ("never-0", "NotTriggerScaleUp", "Warning") in about
    assert len(mine) <= 4, "what has not changed is not told again"
    nodes = stage.client.list(EVENT, namespace="default", fields="involvedObject.kind=Node").items
    reasons = {one["reason"] for one in nodes if one["involvedObject"]["name"].startswith(stage.prefix)}
    assert {"ScaleDown", "ScaleDownDelete"} <= reasons
    report = read_report(stage.client, stage.namespace)
    assert report is not None and report.identity == "me" and report.waiting_count >= 1
    assert report.pools[0].max == 10


@pytest.mark.cluster
def test_a_namespace_that_is_being_deleted_is_no_trouble(stage: Stage) -> None:
    """Its pods may wait for a while yet; nothing can be made there any more, and nobody is left to be told."""
    name, said = f"{stage.namespace}-gone", list[str]()
    stage.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    held = {"name": "held", "namespace": name, "finalizers": ["longboat.test/held"]}
    stage.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held})
    stage.client.delete(NAMESPACE, name)
    try:
        events = Events(stage.client, stage.namespace, said.append)
        waiting = (PendingItem(pod=f"{name}/p", reason="needs 9 GPUs"),)
        events.turned(LoopTurn(now=0.0, snapshot=ClusterSnapshot(), plan=ScalingPlan(waiting=waiting)))
        lost = (PendingItem(pod=f"{name}-never/p", reason="needs 9 GPUs"),)
        for _ in range(2):
            events.turned(LoopTurn(now=0.0, snapshot=ClusterSnapshot(), plan=ScalingPlan(waiting=lost)))
    finally:
        stage.client.patch(CONFIG_MAP, "held", {"metadata": {"finalizers": []}}, namespace=name)
    assert said == [f'an event cannot be written: namespaces "{name}-never" not found']


def test_what_everybody_may_read_names_nobody() -> None:
    report = report_of(TURN, None, "me")
    assert "default/r" in repr(report), "there is somebody to name"
    shown = public(report)
    assert shown.is_public and [one.note.pool for one in shown.pools] == [one.note.pool for one in report.pools]
    assert shown.waiting_count == report.waiting_count
    text = repr(shown)
    assert not any(word in text for word in ("default/", "n1", "never")), text


def test_what_was_not_done_is_told_as_such() -> None:
    for kind in ("grow", "cordon", "uncordon", "drain", "delete", "forget"):
        action = ScalingAction(kind=kind, reason="x", pool="gpu", count=2, node="n1", machine="m1")  # type: ignore[arg-type]
        done, planned = sentence(ActionResult(action=action)), sentence(ActionResult(action=action, trouble="no"))
        assert done != planned and " to " in planned


@pytest.mark.cluster
def test_only_who_may_read_the_report_sees_names(stage: Stage) -> None:
    said: list[str] = []
    Reporter(stage.client, stage.namespace, "me", said.append).turned(TURN)
    full = read_report(stage.client, stage.namespace)
    assert full is not None and full.waiting and not full.is_public
    stage.client.delete(CONFIG_MAP, DETAILS, namespace=stage.namespace)
    found = read_report(stage.client, stage.namespace)
    assert found is not None and found.is_public and not found.waiting and found.pools and said == []


def report_text(stage: Stage) -> str:
    found = read_report(stage.client, stage.namespace)
    return " ".join(one.text for one in found.deeds) if found is not None else ""
