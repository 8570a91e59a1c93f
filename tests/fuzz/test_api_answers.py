"""An API server that answers with anything: cut, slow, wrong or hostile. A value or an error of ours, in bounded time.

The client is the real one, over TCP; the server is a socket that says what the example wants.
"""

from __future__ import annotations

import copy
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.core.errors import LongboatError
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.kubeapi import client as client_module
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, POD
from longboat.kubeapi.leases import Lease
from longboat.kubeapi.watch import Watch, WatchScope
from tests.fuzz.mutations import as_json, examples, spoiled, strange
from tests.fuzz.test_stored import CONFIG_MAP as RECORD

TEXT = """
apiVersion: v1
kind: Config
current-context: lab
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: lab, context: {cluster: c, user: u}}]
"""
BOUND_S = 30.0
"""No call takes longer, whatever the server does; most take milliseconds."""

META = {"name": "digits", "namespace": "default", "uid": "0a0b", "resourceVersion": "7"}
BODIES: list[Any] = [
    {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7", "continue": ""},
        "items": [
            {
                "metadata": {**META, "labels": {"longboat.dev/run": "digits"}},
                "spec": {"nodeName": "n"},
                "status": {"phase": "Running"},
            }
        ],
    },
    {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [RECORD]},
    {"kind": "ConfigMap", "apiVersion": "v1", "metadata": META, "data": {"a": "b"}},
    {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "no",
        "reason": "Forbidden",
        "code": 403,
        "details": {"kind": "pods"},
    },
    {
        "kind": "Lease",
        "apiVersion": "coordination.k8s.io/v1",
        "metadata": META,
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15},
    },
    {"type": "ADDED", "object": {"kind": "Pod", "metadata": META, "status": {}}},
    {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}},
]
STATUSES = (
    b"200 OK",
    b"201 Created",
    b"403 Forbidden",
    b"404 Not Found",
    b"409 Conflict",
    b"410 Gone",
    b"422 Unprocessable",
    b"302 Found",
)


def answer_of(body: bytes, status: bytes = b"200 OK", how: str = "length") -> bytes:
    head = b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\n"
    if how == "chunked":
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    if how == "gzip":
        body, head = gzip.compress(body), head + b"Content-Encoding: gzip\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


SAMPLES = [answer_of(as_json(body), how=how) for body in BODIES for how in ("length", "chunked", "gzip")]


class Hostile:
    """Answers every request of every connection with the bytes of the moment, in pieces, and hangs up."""

    def __init__(self) -> None:
        self.said, self.piece = b"", 1 << 20
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(link,), daemon=True).start()

    def _answer(self, link: socket.socket) -> None:
        try:
            with link:
                link.settimeout(5)
                while b"\r\n\r\n" not in link.recv(1 << 20, socket.MSG_PEEK):
                    time.sleep(0.001)
                link.recv(1 << 20)
                for at in range(0, len(self.said), self.piece):
                    link.sendall(self.said[at : at + self.piece])
        except OSError:
            pass


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    made = Hostile()
    yield made
    made.listener.close()


@pytest.fixture(scope="module")
def environment(hostile: Hostile, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("api")
    (folder / "config").write_text(TEXT % hostile.port)
    return {
        "KUBECONFIG": str(folder / "config"),
        "HOME": str(folder),
        "LONGBOAT_HOME": str(folder / "home"),
        "PATH": "",
    }


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may get better is asked again, but not for half a minute in each of many examples."""
    monkeypatch.setattr(client_module, "TOTAL_S", 0.05)


def lines_of_watch(client: Client) -> None:
    for change in Watch(client, WatchScope(POD), "7", silence_s=2.0):
        assert change.type


def lines_of_log(client: Client) -> None:
    list(client.log("digits-0", patience_s=0.0))


CALLS: dict[str, Callable[[Client], object]] = {
    "list": lambda client: client.list(POD),
    "records": lambda client: client.list(CONFIG_MAP),
    "get": lambda client: client.get(CONFIG_MAP, "digits"),
    "patch": lambda client: client.patch(JOB, "digits", {"spec": {"suspend": True}}),
    "create": lambda client: client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}),
    "delete": lambda client: client.delete(POD, "digits-0"),
    "lease": lambda client: Lease(client, "default", "longboat-gate", "me").try_hold(),
    "watch": lines_of_watch,
    "log": lines_of_log,
}


def in_words(act: Callable[[], object]) -> None:
    began = time.monotonic()
    try:
        act()
    except LongboatError as error:
        assert error.message and len(error.message) < 20_000
    assert time.monotonic() - began < BOUND_S


@examples(0.01)
@given(said=spoiled(SAMPLES), piece=st.sampled_from((1 << 20, 1 << 20, 40)), call=st.sampled_from(sorted(CALLS)))
def test_bytes(hostile: Hostile, environment: dict[str, str], said: bytes, piece: int, call: str) -> None:
    hostile.said, hostile.piece = said, piece
    with Client.open(environment=environment) as client:
        in_words(lambda: CALLS[call](client))


@examples(0.01)
@given(body=strange(BODIES), status=st.sampled_from(STATUSES), call=st.sampled_from(sorted(CALLS)))
def test_well_formed_answers_that_are_wrong(
    hostile: Hostile, environment: dict[str, str], body: Any, status: bytes, call: str
) -> None:
    hostile.said, hostile.piece = answer_of(as_json(body), status), 1 << 20
    with Client.open(environment=environment) as client:
        in_words(lambda: CALLS[call](client))


@examples(0.005)
@given(body=strange([BODIES[1]]), said=spoiled(SAMPLES[3:6]), is_bytes=st.booleans())
def test_what_ps_makes_of_it(
    hostile: Hostile, environment: dict[str, str], body: Any, said: bytes, is_bytes: bool
) -> None:
    hostile.said, hostile.piece = said if is_bytes else answer_of(as_json(body)), 1 << 20
    engine = KubernetesEngine(namespace="default", environment=environment)
    try:
        in_words(engine.list)
    finally:
        engine.close()


def test_a_server_that_heeds_no_selector(hostile: Hostile, environment: dict[str, str]) -> None:
    """It lists objects as pods of runs that say of no run."""
    body = copy.deepcopy(BODIES[1])
    del body["items"][0]["metadata"]["labels"]["longboat.dev/run"], body["items"][0]["data"]["state"]
    hostile.said, hostile.piece = answer_of(as_json(body)), 1 << 20
    engine = KubernetesEngine(namespace="default", environment=environment)
    try:
        in_words(engine.list)
    finally:
        engine.close()


HOSTILE = {
    "a header without end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * (1 << 21),
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200_000,
    "continue without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000,
    "a length below zero": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
    "a length without end": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 900\r\n\r\n{}",
    "a chunk below zero": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
    "a chunk without end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 4000 + b"\r\n{}\r\n",
    "nested without end": answer_of(b"[" * 500_000),
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "nothing": b"",
    "gzip that is none": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    "gzip that grows": answer_of(b" " * (600 << 20), how="gzip"),
    "a list that goes on for ever": answer_of(json.dumps({"metadata": {"continue": "again"}, "items": []}).encode()),
}  # fmt: skip


@pytest.mark.parametrize("call", sorted(CALLS))
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_server(hostile: Hostile, environment: dict[str, str], what: str, call: str) -> None:
    hostile.said, hostile.piece = HOSTILE[what], 1 << 20
    with Client.open(environment=environment) as client:
        in_words(lambda: CALLS[call](client))
