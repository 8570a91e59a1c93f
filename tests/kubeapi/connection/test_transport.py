"""Answers that come in pieces: logs of real pods, to their end, cut short, closed by another thread."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from longboat.kubeapi.client import Client
from longboat.kubeapi.connection import transport
from longboat.kubeapi.connection.transport import ApiRequest
from longboat.kubeapi.errors import Invalid, ObjectNotFound, Unreachable
from testbed.proxy import ApiProxy
from tests.kubeapi.pods import SAYS, SLEEPS, running

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: lab
clusters: [{name: c, cluster: {server: "http://127.0.0.1:PORT"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: lab, context: {cluster: c, user: u}}]
"""
COUNTS = "for at in range(200_000): print('line', at)"
EXPECTED = b"".join(b"line %d\n" % at for at in range(200_000))


@pytest.mark.pods
def test_a_log_is_complete(client: Client) -> None:
    pod = running(client, "counting", COUNTS)
    assert b"".join(client.log(pod, follow=True)) == EXPECTED
    assert b"".join(client.log(pod)) == EXPECTED
    assert b"".join(client.log(pod, tail=2)) == b"line 199998\nline 199999\n"
    assert b"".join(client.log(pod, tail=0)) == b""
    assert b"".join(client.log(pod, limit_bytes=6)) == b"line 0"
    assert b"".join(client.log(pod, since_time="2200-01-01T00:00:00Z")) == b""


@pytest.mark.pods
def test_a_log_that_cannot_be_had_says_why(client: Client) -> None:
    pod = running(client, "counting", COUNTS)
    with pytest.raises(ObjectNotFound):
        client.log("no-such-pod")
    with pytest.raises(Invalid, match="container other is not valid"):
        client.log(pod, container="other")


@pytest.mark.pods
def test_a_log_that_breaks_is_no_log_that_ended(proxied: Client, api_proxy: ApiProxy, client: Client) -> None:
    pod = running(client, "talking", SAYS)
    stream = proxied.log(pod, follow=True)
    assert b"tick" in next(stream)
    api_proxy.cut()
    with pytest.raises(Unreachable, match="connection broke"):
        list(stream)
    api_proxy.restore()
    assert b"tick 0\n" in next(proxied.log(pod, follow=True))


@pytest.mark.pods
def test_silence_is_an_error_only_where_it_is_asked_for(client: Client) -> None:
    pod = running(client, "quiet", SLEEPS)
    with pytest.raises(Unreachable, match="timed out"):
        list(client.log(pod, follow=True, idle_s=0.5))
    stream = client.log(pod, follow=True)
    threading.Timer(1.0, stream.close).start()
    assert list(stream) == []


@pytest.mark.pods
def test_a_stream_closed_by_another_thread_ends(client: Client) -> None:
    pod = running(client, "talking", SAYS)
    for _ in range(5):
        stream = client.log(pod, follow=True)
        closing = threading.Thread(target=lambda held=stream: (next(held), held.close()))
        closing.start()
        list(stream)
        closing.join(10.0)
        assert not closing.is_alive()


@pytest.mark.cluster
def test_connections_are_kept_and_shared(proxied: Client, api_proxy: ApiProxy) -> None:
    for _ in range(5):
        proxied.request("GET", "/version")
    assert len(api_proxy._links) == 2  # one to the proxy, one from it
    threads = [threading.Thread(target=proxied.request, args=("GET", "/version")) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(api_proxy._links) <= 8
    proxied.close()
    deadline = time.monotonic() + 10.0
    while api_proxy._links:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    proxied.request("GET", "/version")


@pytest.mark.cluster
def test_a_first_connection_that_is_refused_is_tried_again(proxied: Client, api_proxy: ApiProxy) -> None:
    """As when the API server restarts at the moment at which a command begins."""
    api_proxy.cut()
    threading.Timer(2.0, api_proxy.restore).start()
    made = proxied.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}})
    assert made["metadata"]["uid"]


def test_a_wrong_address_is_told_of_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "config"
    file.write_text(KUBECONFIG.replace("PORT", str(port)))
    monkeypatch.setattr(transport, "STARTING_S", 1.0)
    client = Client.open(environment={"KUBECONFIG": str(file)})
    with pytest.raises(Unreachable, match="does not answer: connection refused") as caught:
        client.request("GET", "/version")
    assert "address" in str(caught.value.hint)
    file.write_text(KUBECONFIG.replace("127.0.0.1:PORT", "no-such-host.invalid:443"))
    monkeypatch.setattr(transport, "STARTING_S", 600.0)
    with pytest.raises(Unreachable, match="its name is not known"):
        Client.open(environment={"KUBECONFIG": str(file)}).request("GET", "/version")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(), True),
        (ConnectionResetError(), True),
        (ssl.SSLEOFError(), True),
        (ssl.SSLCertVerificationError(), False),
        (socket.gaierror(), False),
        (TimeoutError(), False),
        (OSError(113, "No route to host"), False),
    ],
)
def test_what_may_be_a_server_that_restarts(error: Exception, expected: bool) -> None:
    assert transport.is_restart(error) is expected


@pytest.mark.cluster
def test_patience_has_an_end(proxied: Client, api_proxy: ApiProxy) -> None:
    proxied.request("GET", "/version")
    api_proxy.cut()
    with pytest.raises(Unreachable, match="does not answer") as caught:
        proxied.transport.request(ApiRequest("GET", "/version", total_s=1.0))
    assert "try again" in str(caught.value.hint)
    api_proxy.restore()
    api_proxy.answer(500)
    with pytest.raises(Unreachable, match=r"cannot answer now \(500\)"):
        proxied.transport.request(ApiRequest("GET", "/version", total_s=1.0))
    assert len([one for one in api_proxy.seen if one.outcome == "500"]) >= 2
