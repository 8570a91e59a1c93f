"""Port-forward to real pods: many connections, large answers byte for byte, and ports where nobody listens."""

from __future__ import annotations

import hashlib
import io
import socket
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, ObjectNotFound
from longboat.kubeapi.streams.exec import run_in_pod
from longboat.kubeapi.streams.port_forward import PortForward
from tests.kubeapi.pods import SERVES, SLEEPS, pod_of, running

pytestmark = pytest.mark.pods
FILE = "/usr/bin/python3.11"
ECHOES = """
import socket, threading
listener = socket.create_server(("", 8000))
def echo(link):
    with link:
        while block := link.recv(65536):
            link.sendall(block)
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],)).start()
"""
PROBE = """
import socket, time
while True:
    try:
        socket.create_connection(("127.0.0.1", 8000))
        break
    except OSError:
        time.sleep(0.1)
"""


def fetched(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60.0) as answer:
        return bytes(answer.read())


def wait_until_served(client: Client, pod: str) -> None:
    assert run_in_pod(client, pod, ["python3", "-c", PROBE], timeout_s=90.0) == 0


def test_requests_reach_the_pod(client: Client) -> None:
    pod = running(client, "serving", SERVES)
    wait_until_served(client, pod)
    out = io.BytesIO()
    run_in_pod(client, pod, ["sha256sum", FILE], stdout=out)
    with PortForward(client, pod, 8000) as forward:
        assert fetched(forward.port, "/etc/hostname") == b"serving\n"
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: fetched(forward.port, FILE), range(8)))
        assert {hashlib.sha256(one).hexdigest() for one in found} == {out.getvalue().decode().split()[0]}
        assert forward.trouble is None
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", forward.port), timeout=5.0)


def test_both_directions_byte_for_byte(client: Client) -> None:
    pod = running(client, "echoing", ECHOES)
    wait_until_served(client, pod)
    content = bytes(range(256)) * 8192
    with PortForward(client, pod, 8000) as forward:
        with socket.create_connection(("127.0.0.1", forward.port), timeout=60.0) as link:
            with ThreadPoolExecutor(1) as pool:
                sending = pool.submit(link.sendall, content)
                found = bytearray()
                while len(found) < len(content):
                    found += link.recv(65536)
                sending.result()
        assert found == content


def test_a_port_where_nobody_listens(client: Client) -> None:
    pod = running(client, "quiet", SLEEPS)
    told: list[str] = []
    with PortForward(client, pod, 8001, on_trouble=told.append) as forward:
        with socket.create_connection(("127.0.0.1", forward.port), timeout=60.0) as link:
            assert link.recv(1) == b""
        deadline = time.monotonic() + 30.0
        while not told:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "connection refused" in told[0]
        assert forward.trouble == told[0]


def test_a_pod_that_is_not_there_or_does_not_run(client: Client) -> None:
    with pytest.raises(ObjectNotFound):
        PortForward(client, "no-such-pod", 8000)
    waiting = pod_of("waiting", "pass")
    waiting["spec"]["nodeSelector"] = {"no": "node"}
    client.create(waiting)
    with pytest.raises(ApiError, match="does not run: its phase is Pending"):
        PortForward(client, "waiting", 8000)
    with pytest.raises(ValueError, match="not a port"):
        PortForward(client, "waiting", 0)
