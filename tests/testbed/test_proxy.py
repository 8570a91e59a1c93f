"""A client behind the proxy: it is who it was, sees each fault, and recovers."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import api, binaries, certificates
from testbed.clusters import Cluster
from testbed.proxy import ApiProxy

VERSION = "/version"
NODES = "/api/v1/nodes"


@contextlib.contextmanager
def connected(proxy: ApiProxy, timeout_s: float = 30.0) -> Iterator[http.client.HTTPSConnection]:
    pki = proxy.cluster.pki
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
    connection = http.client.HTTPSConnection("127.0.0.1", proxy.port, timeout=timeout_s, context=context)
    try:
        yield connection
    finally:
        connection.close()


def get(connection: http.client.HTTPSConnection, path: str) -> http.client.HTTPResponse:
    connection.request("GET", path)
    return connection.getresponse()


def has_ended(connection: http.client.HTTPSConnection) -> bool:
    """Whether the other side has closed it; an open one on which nothing comes raises TimeoutError."""
    assert connection.sock is not None
    try:
        return connection.sock.recv(1) == b""
    except ConnectionResetError:
        return True


def fetched(proxy: ApiProxy, path: str = VERSION, timeout_s: float = 30.0) -> dict[str, Any]:
    with connected(proxy, timeout_s) as connection:
        found: dict[str, Any] = json.loads(get(connection, path).read())
        return found


def kubectl(proxy: ApiProxy, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = str(binaries.find(("kubernetes",))["kubectl"])
    command = [program, f"--kubeconfig={proxy.kubeconfig}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.cluster
def test_identity_passes_by_certificate_and_by_token(api_proxy: ApiProxy, cluster_api: api.Api, namespace: str) -> None:
    assert "longboat-testbed-admin" in kubectl(api_proxy, "auth", "whoami").stdout
    scheduler = api_proxy.cluster.folder / "as-scheduler.kubeconfig"
    certificates.write_kubeconfig(api_proxy.cluster, "scheduler", scheduler, server=api_proxy.server)
    assert "system:kube-scheduler" in kubectl(api_proxy, f"--kubeconfig={scheduler}", "auth", "whoami").stdout
    path = api.path_of("ServiceAccount", "v1", namespace, "default") + "/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = cluster_api.call("POST", path, asked)["status"]["token"]
    nobody = Path(f"{scheduler}.empty")
    nobody.touch()
    own = [f"--kubeconfig={nobody}", f"--server={api_proxy.server}", f"--token={token}"]
    authority = f"--certificate-authority={api_proxy.cluster.pki / 'ca.crt'}"
    assert f"system:serviceaccount:{namespace}:default" in kubectl(api_proxy, *own, authority, "auth", "whoami").stdout
    for file in (scheduler, nobody):
        file.unlink()


@pytest.mark.cluster
def test_large_bodies_and_many_requests_on_one_connection(
    api_proxy: ApiProxy, cluster_api: api.Api, namespace: str
) -> None:
    large = {"text": "x" * 700_000}
    path = api.path_of("ConfigMap", "v1", namespace)
    with connected(api_proxy) as connection:
        for number in range(3):
            item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}, "data": large}
            connection.request("POST", path, json.dumps(item), {"Content-Type": "application/json"})
            assert json.loads(connection.getresponse().read())["data"] == large
        assert len(json.loads(get(connection, path).read())["items"]) >= 3
        connection.request("HEAD", VERSION)
        assert connection.getresponse().read() == b""
        assert json.loads(get(connection, VERSION).read())["major"] == "1"
    assert len(cluster_api.items(path)) >= 3


@pytest.mark.cluster
def test_cut_and_restored(api_proxy: ApiProxy) -> None:
    with connected(api_proxy) as connection:
        assert get(connection, VERSION).read()
        api_proxy.cut()
        with pytest.raises((OSError, http.client.HTTPException)):
            get(connection, VERSION)
    with pytest.raises(OSError):
        fetched(api_proxy)
    assert kubectl(api_proxy, "get", "--raw", VERSION).returncode != 0
    api_proxy.restore()
    assert fetched(api_proxy)["major"] == "1"
    assert kubectl(api_proxy, "get", "--raw", VERSION).returncode == 0


@pytest.mark.cluster
def test_a_share_is_answered_with_429(api_proxy: ApiProxy) -> None:
    api_proxy.answer(429, share=0.25, retry_after=1, only=lambda request: request.path == NODES)
    with connected(api_proxy) as connection:
        statuses = []
        for _ in range(20):
            answer = get(connection, NODES)
            told = json.loads(answer.read())
            statuses.append(answer.status)
            if answer.status == 429:
                assert answer.headers["Retry-After"] == "1" and told["reason"] == "TooManyRequests"
        assert get(connection, VERSION).status == 200, "other paths are not concerned"
    assert statuses.count(429) == 5 and statuses.count(200) == 15
    assert [seen.outcome for seen in api_proxy.seen].count("429") == 5


@pytest.mark.cluster
def test_kubectl_tries_again_after_429(api_proxy: ApiProxy) -> None:
    api_proxy.answer(429, share=0.5, retry_after=1)
    done = kubectl(api_proxy, "get", "--raw", NODES)
    again = kubectl(api_proxy, "get", "--raw", NODES)
    assert done.returncode == again.returncode == 0, done.stderr + again.stderr
    assert "429" in [seen.outcome for seen in api_proxy.seen]


@pytest.mark.cluster
def test_watches_are_dropped(api_proxy: ApiProxy, namespace: str) -> None:
    path = api.path_of("ConfigMap", "v1", namespace)
    with connected(api_proxy) as watching, connected(api_proxy) as other:
        answer = get(watching, f"{path}?watch=1")
        assert json.loads(answer.readline())["object"]["metadata"]["name"] == "kube-root-ca.crt"
        assert get(other, VERSION).read()
        api_proxy.drop_watches()
        assert has_ended(watching)
        assert get(other, VERSION).read(), "a connection without a watch stays"
    api_proxy.drop_watches_every(0.5)
    done = kubectl(api_proxy, "get", "--raw", f"{path}?watch=1")
    assert "ADDED" in done.stdout
    assert len([seen for seen in api_proxy.seen if seen.request.is_watch]) == 2


@pytest.mark.cluster
def test_a_half_open_connection_hangs_until_the_clients_timeout(api_proxy: ApiProxy) -> None:
    with connected(api_proxy, 30.0) as connection:
        assert get(connection, VERSION).read()
        api_proxy.freeze()
        connection.request("GET", VERSION)
        assert connection.sock is not None
        connection.sock.settimeout(1.0)
        with pytest.raises(TimeoutError):
            connection.sock.recv(1)
        with pytest.raises(TimeoutError):
            fetched(api_proxy, timeout_s=1.0)
        api_proxy.restore()
        connection.sock.settimeout(30.0)
        assert connection.getresponse().status == 200, "it goes on where it stopped"


@pytest.mark.cluster
def test_delayed(api_proxy: ApiProxy) -> None:
    api_proxy.delay(3600.0)
    with pytest.raises(TimeoutError):
        fetched(api_proxy, timeout_s=1.0)
    api_proxy.restore()
    assert fetched(api_proxy)["major"] == "1"
    api_proxy.delay(0.2)
    assert fetched(api_proxy)["major"] == "1"


@pytest.mark.cluster
def test_a_client_that_leaves_ends_its_watch(api_proxy: ApiProxy, cluster: Cluster, namespace: str) -> None:
    path = api.path_of("ConfigMap", "v1", namespace)
    with connected(api_proxy) as watching:
        get(watching, f"{path}?watch=1").readline()
        assert api_proxy.open_watches == 1
    api.wait_for("the watch has ended", lambda: api_proxy.open_watches == 0, 30.0)
    file = api_proxy.kubeconfig
    assert file.exists()
    api_proxy.close()
    assert not file.exists()
