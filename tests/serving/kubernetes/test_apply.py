"""What a version before had and the new one has not must not stay; logs come in pieces."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec

from longboat.core.jobs import Serve
from longboat.kubeapi.errors import ApiError, Unreachable
from longboat.kubeapi.kinds import DEPLOYMENT, HPA, INGRESS, SERVICE
from longboat.serving.kubernetes import apply
from longboat.serving.kubernetes.logs import LOOK_S, LogFollower, follow_lines, past_lines
from longboat.serving.kubernetes.manifests import NAME, RECORD, TRACK, ServingRecord, autoscaler_object, service_objects
from longboat.serving.kubernetes.services import ClusterServices
from tests.sweeps.kubernetes.memory_cluster import MemoryCluster

OPEN = ServingRecord(run="r", step=None, version=1, command=("x",), serve=Serve(ingress="model.example.org"))
CLOSED = msgspec.structs.replace(OPEN, version=2, serve=Serve())


def objects_of(record: ServingRecord) -> list[dict[str, Any]]:
    template = {"spec": {"containers": [{"name": "main", "image": "x", "command": ["python3"]}]}}
    job = {"kind": "Job", "metadata": {"name": "j", "namespace": "default"}, "spec": {"template": template}}
    return service_objects("svc", record, [job], "n0")


def served() -> Any:
    client: Any = MemoryCluster()
    apply.put(client, objects_of(OPEN))
    return client


def test_an_ingress_goes_with_the_first_version_that_has_none() -> None:
    client = served()
    apply.change(client, objects_of(msgspec.structs.replace(OPEN, version=2)))
    assert client.find(INGRESS, "svc") is not None
    apply.change(client, objects_of(CLOSED))
    assert client.find(INGRESS, "svc") is None and client.find(SERVICE, "svc") is not None


def test_an_ingress_of_somebody_else_stays() -> None:
    client = served()
    client.patch(INGRESS, "svc", {"metadata": {"ownerReferences": None}})
    apply.change(client, objects_of(CLOSED))
    assert client.find(INGRESS, "svc") is not None


def test_an_autoscaler_is_removed_by_the_same_rule() -> None:
    client = served()
    deployment = client.get(DEPLOYMENT, "svc")
    apply.remove_owned(client, deployment, HPA)
    apply.put_owned(client, deployment, autoscaler_object("svc", "default", Serve(replicas=1, max_replicas=3)))
    assert client.find(HPA, "svc") is not None
    apply.remove_owned(client, deployment, HPA)
    assert client.find(HPA, "svc") is None


def test_a_damaged_canary_hides_no_other_service() -> None:
    client, told = served(), list[str]()
    for name in ("other", "other-canary"):
        objects = objects_of(CLOSED)
        apply.put(client, [{**objects[0], "metadata": {**objects[0]["metadata"], "name": name}}])
    labels = {NAME: "other", TRACK: "canary"}
    client.patch(DEPLOYMENT, "other-canary", {"metadata": {"labels": labels, "annotations": {RECORD: "{}"}}})
    engine: Any = SimpleNamespace(client=client)
    assert [status.name for status in ClusterServices(engine, told.append).list()] == ["svc"]
    assert len(told) == 1 and "of other-canary is damaged" in told[0]


class LongLog:
    """A log of which the next piece is made when it is asked for."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces, self.given, self.is_closed = pieces, 0, False

    def log(self, pod: str, *, tail: int | None, **_: Any) -> LongLog:
        return self

    def now(self) -> float:
        return 0.0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self.given += 1
            yield piece

    def close(self) -> None:
        self.is_closed = True


def pod_with(name: str, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    status = {"name": "main", "state": state, "restartCount": 0, **more}
    return {"metadata": {"name": name, "uid": name}, "status": {"containerStatuses": [status]}}


CRASHED = pod_with("crashes", {"waiting": {"reason": "CrashLoopBackOff"}}, lastState={"terminated": {"exitCode": 1}})


class BrokenLog(LongLog):
    """An API server that reaches the node of no pod but one."""

    def log(self, pod: str, *, tail: int | None, **_: Any) -> LongLog:
        if pod == "lost":
            raise ApiError("dial tcp: no route to host", status=500)
        return super().log(pod, tail=tail)


def test_a_pod_without_a_log_hides_no_other() -> None:
    told: list[str] = []
    pods = [
        {"metadata": {"name": "new"}, "status": {}},
        pod_with("starts", {"waiting": {"reason": "ContainerCreating"}}),
        pod_with("lost", {"running": {}}),
        CRASHED,
    ]
    client: Any = BrokenLog([b"last words\n"])
    assert [(line.node, line.data) for line in past_lines(client, pods, None, told.append)] == [
        ("crashes", b"last words\n")
    ]
    assert told == ["the log of lost cannot be read: dial tcp: no route to host"]


def test_what_crashed_between_two_looks_is_followed_too() -> None:
    client: Any = LongLog([b"last words\n"])
    follower = LogFollower(client, None)
    for _ in range(2):
        follower.follow(CRASHED)
    assert [line.data for line in follower.arrived(60.0)] == [b"last words\n"]
    follower.close()


class AwayServer(LongLog):
    """An API server that goes away for a minute after the first line, and then loses the node for a moment."""

    def __init__(self, *then: Exception | list[bytes]) -> None:
        super().__init__([])
        self.then, self.asked = list(then), list[tuple[int | None, str | None]]()

    def log(self, pod: str, *, tail: int | None, since_time: str | None = None, **_: Any) -> LongLog:
        self.asked.append((tail, since_time))
        answer = self.then.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return LongLog(answer)


def numbered(*seconds: int) -> list[bytes]:
    return [b"0.out %d 2026-01-01T00:00:%02d.5Z at %d\n" % (second, second, second) for second in seconds]


def test_the_log_of_the_server_is_followed_whatever_runs_beside_it() -> None:
    client: Any = LongLog([b"last words\n"])
    statuses = [{"name": "istio-proxy", "state": {"waiting": {"reason": "PodInitializing"}}}]
    pod = {**CRASHED, "status": {"containerStatuses": [*statuses, *CRASHED["status"]["containerStatuses"]]}}
    follower = LogFollower(client, None)
    follower.follow(pod)
    assert [line.data for line in follower.arrived(5.0)] == [b"last words\n"]
    follower.close()


def test_a_log_is_taken_up_at_its_last_line_however_long_the_server_was_away() -> None:
    away = Unreachable("connection refused")
    client: Any = AwayServer(away, numbered(3), away, ApiError("no route to host", status=502), numbered(3, 4, 50))
    running, ended = pod_with("p", {"running": {}}), pod_with("p", {"terminated": {"exitCode": 0}})
    follower, lines = LogFollower(client, 7), list[bytes]()
    for pod in (running, running, running, running, ended, ended):
        follower.follow(pod)
        for thread in threading.enumerate():
            if thread.name == "log-p":
                thread.join(60.0)
        lines += [line.data for line in follower.arrived(0.0)]
    assert lines == [b"at 3\n", b"at 4\n", b"at 50\n"], "each once"
    since = "2026-01-01T00:00:01Z"
    assert client.asked == [(7, None), (7, None), (None, since), (None, since), (None, since)]


class SlowLog(LongLog):
    def __iter__(self) -> Iterator[bytes]:
        for piece in super().__iter__():
            time.sleep(0.001)
            yield piece


def test_pods_are_looked_for_now_and_then_however_often_lines_come() -> None:
    looks = []

    def pods() -> list[dict[str, Any]]:
        looks.append(time.monotonic())
        return [pod_with("p", {"running": {}})]

    client: Any = SlowLog([b"line\n"] * 300)
    lines = follow_lines(client, pods, None)
    for _ in range(300):
        next(lines)
    assert len(looks) <= 2 + (time.monotonic() - looks[0]) / LOOK_S
    lines.close()  # type: ignore[attr-defined]


def test_a_log_is_passed_on_as_it_comes() -> None:
    """As the server wrote it: what the launcher puts before each line, and what it only puts aside, is not shown."""
    stamp = b"2026-01-01T00:00:00.5Z "
    packed = b"node.out+1000000000000 7 " + stamp + b"eJyrVsrPVrJSUEpMTlGqBQAZ1wPh\n"
    log: Any = LongLog([b"0.out 0 " + stamp + b"one\n0.err 0 " + stamp + b"tw", b"o\n", packed, b"foreign\nrest"])
    lines = past_lines(log, [pod_with("p", {"running": {}})], None, print)
    first = next(lines)
    assert (first.data, first.stream, first.node, first.rank) == (b"one\n", "out", "p", 0)
    assert log.given == 1, "not the whole log first"
    assert [(line.data, line.stream) for line in lines] == [(b"two\n", "err"), (b"foreign\n", "err"), (b"rest", "err")]
    assert log.is_closed
