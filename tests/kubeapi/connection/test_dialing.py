"""The way to the server: proxies that the environment wants or the kubeconfig names, TLS that trusts nobody else."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.kubeapi.client import Client
from longboat.kubeapi.connection import dialing
from longboat.kubeapi.errors import KubeconfigError, Unreachable
from longboat.kubeapi.kubeconfig import ClusterAccess
from testbed.clusters import Cluster


def access(server: str = "https://api.example:6443", **cluster: Any) -> ClusterAccess:
    return ClusterAccess("some", "default", server, {"server": server, **cluster}, {})


@pytest.mark.parametrize(
    ("host", "excepted", "is_used"),
    [
        ("api.example", "", True),
        ("api.example", "*", False),
        ("api.example", "example", False),
        ("api.example", ".example", False),
        ("example", ".example", True),
        ("example", "example", False),
        ("api.example", "other, api.example:6443", False),
        ("api.example", "api.example:443", True),
        ("notexample", "example", True),
        ("10.1.2.3", "10.0.0.0/8", False),
        ("11.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3", False),
        ("fd00::1", "fd00::/8", False),
        ("localhost", "", False),
        ("127.0.0.1", "", False),
        ("::1", "", False),
    ],
)
def test_which_addresses_go_through_the_environments_proxy(host: str, excepted: str, is_used: bool) -> None:
    for variables in (
        {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": excepted},
        {"https_proxy": "http://proxy:3128", "no_proxy": excepted},
    ):
        found = dialing.proxy_for("https", host, 6443, variables)
        assert found == ("http://proxy:3128" if is_used else "")


def test_the_kubeconfigs_own_proxy_counts_first() -> None:
    variables = {"HTTPS_PROXY": "http://environment:1", "NO_PROXY": "*"}
    found = dialing.target_of(access(**{"proxy-url": "http://own:2"}), variables).proxy
    assert found is not None and (found.hostname, found.port) == ("own", 2)
    assert dialing.target_of(access(), variables).proxy is None


def test_a_server_may_have_a_path_and_another_name() -> None:
    found = dialing.target_of(access("https://gateway/k8s/clusters/c-1", **{"tls-server-name": "inner"}), {})
    assert found.authority == "gateway"
    assert found == ("gateway", 443, True, "/k8s/clusters/c-1", "inner", None)
    assert dialing.target_of(access("https://[fd00::1]:6443"), {}).authority == "[fd00::1]:6443"


@pytest.mark.parametrize("server", ["ftp://x", "https://", "https://x:port", "https://[x"])
def test_what_is_no_server_is_refused(server: str) -> None:
    with pytest.raises(KubeconfigError):
        dialing.target_of(access(server), {})


def test_a_proxy_we_cannot_speak_to_is_refused_without_its_password() -> None:
    with pytest.raises(KubeconfigError) as caught:
        dialing.target_of(access(**{"proxy-url": "https://user:secret@proxy"}), {})
    assert "http and socks5" in caught.value.message
    assert "secret" not in caught.value.message


def test_certificates_that_are_none_are_told() -> None:
    with pytest.raises(KubeconfigError, match="certificate-authority of context 'some'"):
        dialing.tls_of(access(**{"certificate-authority-data": base64.b64encode(b"no").decode()}), None)
    with pytest.raises(KubeconfigError, match="client certificate of context 'some'"):
        dialing.tls_of(access(), b"no certificate")


def test_authorities_of_this_machine_are_read_only_where_they_are_trusted() -> None:
    """Reading them takes as long as a list of runs."""
    own = (Path(__file__).parent / "other-authority.pem").read_bytes()
    trusting = dialing.tls_of(access(**{"certificate-authority-data": base64.b64encode(own).decode()}), None)
    assert trusting.cert_store_stats()["x509"] == 1 and trusting.check_hostname
    blind = dialing.tls_of(access(**{"insecure-skip-tls-verify": True, "certificate-authority": "/none"}), None)
    assert blind.cert_store_stats()["x509"] == 0 and blind.verify_mode == ssl.CERT_NONE
    assert dialing.tls_of(access(), None).verify_mode == ssl.CERT_REQUIRED


class Proxy:
    """A real proxy that speaks CONNECT and SOCKS 5, and remembers where it was asked to go."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses
        self.asked: list[tuple[str, str, int]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, local: socket.socket) -> None:
        with local, contextlib.suppress(OSError):
            first = local.recv(1)
            way, host, port = self._socks(local) if first == b"\x05" else self._connect(local, first)
            self.asked.append((way, host, port))
            if self.refuses:
                local.sendall(b"\x05\x02\x00\x01" + bytes(6) if way == "socks" else b"HTTP/1.1 407 No\r\n\r\n")
                return
            answer = b"\x05\x00\x00\x01" + bytes(6) if way == "socks" else b"HTTP/1.1 200 OK\r\n\r\n"
            with socket.create_connection((host, port)) as remote:
                local.sendall(answer)
                threading.Thread(target=self._pass, args=(remote, local), daemon=True).start()
                self._pass(local, remote)

    def _connect(self, local: socket.socket, head: bytes) -> tuple[str, str, int]:
        while not head.endswith(b"\r\n\r\n"):
            head += local.recv(1)
        host, _, port = head.split(b" ")[1].decode().rpartition(":")
        user = head.partition(b"Proxy-Authorization: Basic ")[2].split(b"\r\n")[0]
        return f"connect as {base64.b64decode(user).decode()}", host, int(port)

    def _socks(self, local: socket.socket) -> tuple[str, str, int]:
        local.recv(local.recv(1)[0])
        local.sendall(b"\x05\x00")
        assert local.recv(4) == b"\x05\x01\x00\x01"
        return "socks", socket.inet_ntoa(local.recv(4)), int.from_bytes(local.recv(2), "big")

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(65536):
                target.sendall(block)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    found = Proxy()
    yield found
    found.close()


def through(cluster: Cluster, folder: Path, **changes: Any) -> Client:
    content = json.loads(cluster.kubeconfig.read_text())
    content["clusters"][0]["cluster"].update(changes)
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content))
    return Client.open(environment={"KUBECONFIG": str(file)})


@pytest.mark.cluster
@pytest.mark.parametrize(("scheme", "way"), [("http", "connect as me:pass word"), ("socks5", "socks")])
def test_requests_go_through_the_proxy(cluster: Cluster, proxy: Proxy, tmp_path: Path, scheme: str, way: str) -> None:
    url = f"{scheme}://me:pass%20word@127.0.0.1:{proxy.port}"
    with through(cluster, tmp_path, **{"proxy-url": url}) as client:
        assert b"gitVersion" in client.request("GET", "/version")
    assert proxy.asked == [(way, cluster.address, cluster.ports["apiserver"])]


@pytest.mark.cluster
@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_a_proxy_that_refuses_is_named(cluster: Cluster, tmp_path: Path, scheme: str) -> None:
    proxy = Proxy(refuses=True)
    with through(cluster, tmp_path, **{"proxy-url": f"{scheme}://127.0.0.1:{proxy.port}"}) as client:
        with pytest.raises(Unreachable, match=r"proxy 127\.0\.0\.1") as caught:
            client.request("GET", "/version")
    proxy.close()
    assert "through the proxy" in str(caught.value.hint)


@pytest.mark.cluster
def test_a_server_of_another_authority_is_not_trusted(cluster: Cluster, tmp_path: Path) -> None:
    other = Path(__file__).with_name("other-authority.pem").read_bytes()
    wrong = {"certificate-authority-data": base64.b64encode(other).decode()}
    with through(cluster, tmp_path, **wrong) as client:
        with pytest.raises(Unreachable, match="not trusted") as caught:
            client.request("GET", "/version")
    assert "certificate-authority" in str(caught.value.hint)
    with through(cluster, tmp_path, **{**wrong, "insecure-skip-tls-verify": True}) as client:
        assert b"gitVersion" in client.request("GET", "/version")


@pytest.mark.cluster
def test_the_name_in_the_certificate_counts(cluster: Cluster, tmp_path: Path) -> None:
    with through(cluster, tmp_path, **{"tls-server-name": "another.example"}) as client:
        with pytest.raises(Unreachable, match="not trusted"):
            client.request("GET", "/version")
    with through(cluster, tmp_path, **{"tls-server-name": "kubernetes.default.svc"}) as client:
        assert b"gitVersion" in client.request("GET", "/version")
