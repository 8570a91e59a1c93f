"""The client on a real API server: every verb, refusals, pages, and what is repeated when the server misbehaves."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from longboat.kubeapi.client import Client, as_text, continue_in, read
from longboat.kubeapi.connection import transport
from longboat.kubeapi.errors import AlreadyExists, ApiError, Conflict, Invalid, ObjectNotFound, Unreachable
from longboat.kubeapi.kinds import CONFIG_MAP, JOBSET, NAMESPACE, POD
from testbed import faults
from testbed.clusters import Cluster
from testbed.messages import Request
from testbed.proxy import ApiProxy
from tests.kubeapi.objects import ConfigMapStruct

TEXT = "current-context: a\ncontexts: [{name: a, context: {cluster: b}}]\nclusters: [{name: b, cluster: {server: %s}}]"
REVIEW = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SelfSubjectAccessReview",
    "spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}},
}


def config(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    meta = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def names(client: Client, **selection: Any) -> list[str]:
    found = client.list(CONFIG_MAP, into=ConfigMapStruct, **selection).items
    return sorted(one.metadata.name for one in found if one.metadata.name != "kube-root-ca.crt")


def is_write(request: Request) -> bool:
    return request.method in ("POST", "PUT", "PATCH", "DELETE")


def test_what_is_not_set_is_not_asked() -> None:
    assert as_text(None) == ""
    assert as_text({"a": "", "b": None, "c": False, "d": 0, "e": "x y", "f": ["1", "&"]}) == "?d=0&e=x+y&f=1&f=%26"


def test_what_is_null_or_missing_is_empty_and_what_is_unknown_is_skipped() -> None:
    for text in (b"{}", b'{"metadata": {}, "data": null}', b'{"metadata": {"labels": null}, "kind": "ConfigMap"}'):
        assert read(ConfigMapStruct, text) == ConfigMapStruct()
    assert read(ConfigMapStruct, b'{"metadata": {"resourceVersion": "7"}}').metadata.resource_version == "7"


@pytest.mark.parametrize(
    ("page", "token"),
    [
        (b'{"metadata":{"resourceVersion":"1","continue":"abc_-=","remainingItemCount":3},"items":[]}', "abc_-="),
        (b'{"metadata":{"continue":"a\\u0062c"},"items":[]}', "abc"),
        (b'{"metadata":{"resourceVersion":"1"},"items":[{"data":{"continue":"no"}}]}', ""),
        (b'{"metadata":{"continue":""},"items":[]}', ""),
    ],
)
def test_the_token_of_the_next_page(page: bytes, token: str) -> None:
    assert continue_in(page) == token


@pytest.mark.cluster
def test_an_object_from_create_to_delete(client: Client) -> None:
    made = client.create(config("one", a="1"))
    assert client.get(CONFIG_MAP, "one")["data"] == {"a": "1"}
    assert client.get(CONFIG_MAP, "one", into=ConfigMapStruct).data == {"a": "1"}
    with pytest.raises(AlreadyExists):
        client.create(config("one"))
    changed = client.replace({**made, "data": {"a": "2"}})
    assert changed["data"] == {"a": "2"}
    with pytest.raises(Conflict):
        client.replace({**made, "data": {"a": "3"}})
    assert client.patch(CONFIG_MAP, "one", {"data": {"b": "1"}})["data"] == {"a": "2", "b": "1"}
    remove = [{"op": "remove", "path": "/data/a"}]
    assert client.patch(CONFIG_MAP, "one", remove, kind_of_patch="json")["data"] == {"b": "1"}
    client.delete(CONFIG_MAP, "one", uid="another")
    assert client.find(CONFIG_MAP, "one") is not None
    client.delete(CONFIG_MAP, "one", uid=made["metadata"]["uid"])
    assert client.find(CONFIG_MAP, "one", into=ConfigMapStruct) is None
    client.delete(CONFIG_MAP, "one")
    with pytest.raises(ObjectNotFound):
        client.get(CONFIG_MAP, "one")


@pytest.mark.cluster
def test_apply_owns_its_fields(client: Client) -> None:
    client.apply(config("one", a="1", b="1"))
    found = client.apply(config("one", a="2"))
    assert found["data"] == {"a": "2"}
    assert {one["manager"] for one in found["metadata"]["managedFields"]} == {"longboat"}


@pytest.mark.cluster
def test_unknown_fields_are_errors_and_a_dry_run_makes_nothing(client: Client) -> None:
    with pytest.raises(Invalid, match="dota"):
        client.create({**config("one"), "dota": {}})
    with pytest.raises(Invalid, match="dota"):
        client.apply({**config("one"), "dota": {}})
    assert client.create(config("one", a="1"), dry_run=True)["data"] == {"a": "1"}
    assert client.apply(config("one", a="1"), dry_run=True)["data"] == {"a": "1"}
    assert client.find(CONFIG_MAP, "one") is None


@pytest.mark.cluster
def test_kinds_without_a_namespace_or_a_name(client: Client) -> None:
    assert client.get(NAMESPACE, client.namespace)["metadata"]["name"] == client.namespace
    assert client.create(REVIEW)["status"]["allowed"]
    with pytest.raises(ObjectNotFound):
        client.list(JOBSET)  # not served here


@pytest.mark.cluster
def test_lists_follow_their_pages_and_selectors(client: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: client.create(config(f"c-{at:03}", {"even": str(at % 2 == 0)})), range(45)))
    before = client.requests
    expected = [f"c-{at:03}" for at in range(45)]
    assert names(client, page=10) == expected
    assert client.requests - before == 5  # 46 with the cluster's own
    assert names(client, labels="even=True") == expected[::2]
    assert names(client, fields="metadata.name=c-007") == ["c-007"]
    assert set(expected) <= set(names(client, everywhere=True, page=17))
    listing = client.list(CONFIG_MAP, labels="even=True", page=10)
    assert int(listing.version) > 0


@pytest.mark.cluster
def test_a_list_whose_pages_expired_is_read_again(proxied: Client, api_proxy: ApiProxy) -> None:
    for at in range(5):
        proxied.create(config(f"c-{at}"))
    told = {"count": 0}

    def is_third_page(request: Request) -> bool:
        told["count"] += "continue=" in request.target
        return "continue=" in request.target and told["count"] == 2

    api_proxy.answer(410, only=is_third_page)
    assert names(proxied, page=2) == [f"c-{at}" for at in range(5)]
    assert "410" in {seen.outcome for seen in api_proxy.seen}
    api_proxy.restore()
    api_proxy.answer(410, only=lambda request: "continue=" in request.target)
    with pytest.raises(Exception, match="410"):
        names(proxied, page=2)


@pytest.mark.cluster
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_storm_of_errors_is_survived(proxied: Client, api_proxy: ApiProxy, status: int) -> None:
    api_proxy.answer(status, share=0.5)
    made = [proxied.create(config(f"c-{at}")) for at in range(6)]
    assert [proxied.get(CONFIG_MAP, one["metadata"]["name"])["metadata"]["uid"] for one in made] == [
        one["metadata"]["uid"] for one in made
    ]
    assert len([seen for seen in api_proxy.seen if seen.outcome == str(status)]) >= 6


@pytest.mark.cluster
def test_what_could_be_done_twice_is_not_repeated(proxied: Client, api_proxy: ApiProxy) -> None:
    api_proxy.answer(500, only=is_write)
    unnamed = config("")
    unnamed["metadata"] = {"generateName": "c-"}
    with pytest.raises(Unreachable, match="500"):
        proxied.create(unnamed)
    add = [{"op": "add", "path": "/data/a", "value": "1"}]
    with pytest.raises(Unreachable, match="500"):
        proxied.patch(CONFIG_MAP, "c", add, kind_of_patch="json")
    assert [seen.request.method for seen in api_proxy.seen] == ["POST", "PATCH"]


@pytest.mark.cluster
def test_when_to_come_back_is_heeded_and_patience_ends(proxied: Client, api_proxy: ApiProxy) -> None:
    api_proxy.answer(429, retry_after=60)
    with pytest.raises(Unreachable) as caught:
        proxied.get(NAMESPACE, proxied.namespace)
    # A minute is more than all our patience: nobody waits for nothing.
    assert len(api_proxy.seen) == 1
    assert (caught.value.status, caught.value.reason) == (429, "TooManyRequests")
    assert caught.value.details["retryAfterSeconds"] == 60


@pytest.mark.cluster
def test_a_connection_that_was_cut_while_idle_is_replaced(proxied: Client, api_proxy: ApiProxy) -> None:
    proxied.create(config("one"))
    for _ in range(3):
        api_proxy.cut()
        api_proxy.restore()
        assert proxied.get(CONFIG_MAP, "one")["metadata"]["name"] == "one"
        api_proxy.cut()
        api_proxy.restore()
        assert proxied.create(REVIEW)["status"]["allowed"]


@pytest.mark.cluster
def test_a_server_that_comes_back_is_waited_for(proxied: Client, api_proxy: ApiProxy) -> None:
    proxied.create(config("one"))
    api_proxy.cut()
    threading.Timer(1.0, api_proxy.restore).start()
    assert proxied.get(CONFIG_MAP, "one")["metadata"]["name"] == "one"


@pytest.mark.cluster
def test_a_frozen_server_times_out(proxied: Client, api_proxy: ApiProxy) -> None:
    proxied.create(config("one"))
    api_proxy.freeze()
    with pytest.raises(Unreachable, match="timed out"):
        proxied.request("POST", "/api", body={}, timeout_s=0.5)
    api_proxy.restore()
    assert proxied.get(CONFIG_MAP, "one")["metadata"]["name"] == "one"


def test_a_server_that_never_answered_is_told_with_its_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "STARTING_S", 0.5)
    file = tmp_path / "kubeconfig"
    for server, told in (("https://127.0.0.1:1", "refused"), ("https://no-such-host.invalid", "name is not known")):
        file.write_text(TEXT % server)
        with Client.open(environment={"KUBECONFIG": str(file)}) as client:
            with pytest.raises(Unreachable, match=told) as caught:
                client.get(POD, "x")
        assert "context 'a'" in caught.value.message
        assert "kubeconfig" in str(caught.value.hint)
        assert client.requests == 0


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<html", "not understood"),
        (b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n", "redirects"),
    ],
)
def test_a_server_that_is_no_api_server(tmp_path: Path, answer: bytes, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as link:
                link.recv(65536)
                link.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        file = tmp_path / "kubeconfig"
        file.write_text(TEXT % f"http://127.0.0.1:{listener.getsockname()[1]}")
        with Client.open(environment={"KUBECONFIG": str(file)}) as client:
            with pytest.raises(ApiError, match=told) as caught:
                client.get(POD, "x")
        serving.join()
    assert caught.value.hint == "is this the address of an API server?"


@pytest.mark.parametrize("answer", [b'{"metadata": true, "items": []}', b'{"metadata": {}, "items": {"a": 1}}', b"[1]"])
def test_a_list_of_another_shape_is_told(tmp_path: Path, answer: bytes) -> None:
    with answering(tmp_path, answer) as client, pytest.raises(ApiError, match="not understood"):
        client.list(POD)


def test_a_list_whose_pages_never_end_is_told(tmp_path: Path) -> None:
    with answering(tmp_path, b'{"metadata": {"continue": "again"}, "items": []}') as client:
        with pytest.raises(ApiError, match="a list that has no end"):
            client.list(POD)


@contextlib.contextmanager
def answering(tmp_path: Path, answer: bytes) -> Iterator[Client]:
    """A client of a server that gives this answer to every request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as link:
                while link.recv(65536):
                    link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))

        serving = threading.Thread(target=serve)
        serving.start()
        file = tmp_path / "kubeconfig"
        file.write_text(TEXT % f"http://127.0.0.1:{listener.getsockname()[1]}")
        with Client.open(environment={"KUBECONFIG": str(file)}) as client:
            yield client
        serving.join()


@pytest.mark.cluster
@pytest.mark.slow
def test_a_restart_of_the_server_is_survived(client: Client, cluster: Cluster) -> None:
    client.create(config("one"))
    restarting = threading.Thread(target=faults.restart, args=(cluster, "kube-apiserver"))
    restarting.start()
    seen = 0
    while restarting.is_alive():
        assert client.get(CONFIG_MAP, "one")["metadata"]["name"] == "one"
        seen += 1
    restarting.join()
    assert seen > 0
    assert client.get(CONFIG_MAP, "one")["metadata"]["name"] == "one"


@pytest.mark.cluster
def test_many_threads_share_a_client(client: Client) -> None:
    def work(at: int) -> str:
        client.create(config(f"c-{at}"))
        return str(client.get(CONFIG_MAP, f"c-{at}")["metadata"]["name"])

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(work, range(64))) == [f"c-{at}" for at in range(64)]
