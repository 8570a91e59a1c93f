"""Azure blobs against a real server: with the account's key, a shared access signature, and without either."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import os
import time
import urllib.parse
from collections.abc import Mapping

import pytest

from longboat.core.errors import EngineError
from longboat.storage.stores import object_store
from longboat.storage.stores.object_store import ObjectStore
from longboat.storage.stores.registry import open_store
from longboat.storage.transfers import Transfer
from longboat.storage.urls import object_url
from tests.storage.faulty import between
from tests.storage.realstores import ACCOUNT, ACCOUNT_KEY, Running, check_any_name, content

QUICK = Transfer(timeout_s=10.0, attempts=3, backoff_s=0.01)


def opened(environment: Mapping[str, str], url: str = "az://data") -> ObjectStore:
    return open_store(object_url(url), environment, QUICK)


def stored(azure: Running, **more: str) -> dict[str, str]:
    return {
        "HOME": "/nonexistent",
        "AZURE_STORAGE_ACCOUNT": ACCOUNT,
        "AZURE_STORAGE_SERVICE_ENDPOINT": azure.url,
        **more,
    }


def signature(permissions: str) -> str:
    """A shared access signature of the account, as its owner makes them."""
    fields = {
        "sv": "2021-12-02",
        "ss": "b",
        "srt": "co",
        "sp": permissions,
        "se": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600)),
        "spr": "https,http",
    }
    text = "\n".join((ACCOUNT, permissions, "b", "co", "", fields["se"], "", "https,http", "2021-12-02", "", ""))
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    return urllib.parse.urlencode({**fields, "sig": base64.b64encode(digest).decode()})


@pytest.mark.parametrize("key", ["plain", "a b/c+d/%25.txt", "ü/日本", "x~y!z'(1)*", "&<>=;,:@$"])
def test_any_name(azure: Running, key: str) -> None:
    check_any_name(opened(azure.environment), key)


def test_large_blobs_travel_in_blocks(azure: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART", 1 << 20)
    data = os.urandom((9 << 20) + 3)
    with between(azure.url.removesuffix(f"/{ACCOUNT}")) as net:
        environment = stored(azure, AZURE_STORAGE_KEY=ACCOUNT_KEY)
        environment["AZURE_STORAGE_SERVICE_ENDPOINT"] = f"{net.url}/{ACCOUNT}"
        store = opened(environment)
        net.answers.append((503, "ServerBusy"))
        store.write("large", io.BytesIO(data), len(data))
        assert len({path for method, path, _ in net.requests if "blockid=" in path}) == 10
    assert content(opened(azure.environment), "large") == data


def test_a_list_has_many_pages(azure: Running) -> None:
    store = opened(azure.environment)
    names = [f"pages/{number:03}" for number in range(25)]
    for name in names:
        store.put(name, b"x")
    genuine = store.request

    def few(method: str, key: str, query: object, headers: object, body: object) -> object:
        added = [*query, ("maxresults", "10")] if not key else query  # type: ignore[misc]
        return genuine(method, key, added, headers, body)  # type: ignore[arg-type]

    store.request = few  # type: ignore[method-assign, assignment]
    assert [found.key for found in store.listed("pages/")] == names


def test_a_shared_access_signature(azure: Running) -> None:
    opened(azure.environment).put("shared", b"1")
    reader = opened(stored(azure, AZURE_STORAGE_SAS_TOKEN="?" + signature("rl")))
    assert content(reader, "shared") == b"1"
    assert "shared" in [found.key for found in reader.listed("")]
    with pytest.raises(EngineError, match="the credentials do not allow this") as caught:
        reader.put("shared", b"2")
    assert "sig" not in f"{caught.value.message} {caught.value.hint}"


def test_public_blobs_need_no_credentials(azure: Running) -> None:
    store = opened(azure.environment, "az://open")
    store.ask("PUT", query=[("restype", "container")], headers={"x-ms-blob-public-access": "container"}, body=b"")
    store.put("x", b"for all")
    metadata = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:1"}
    assert content(opened(stored(azure, **metadata), "az://open"), "x") == b"for all"
    with pytest.raises(EngineError, match="no credentials were found") as caught:
        content(opened(stored(azure, **metadata)), "x")
    assert caught.value.hint is not None and "AZURE_STORAGE_KEY" in caught.value.hint


def test_what_goes_wrong(azure: Running) -> None:
    wrong = base64.b64encode(b"canary" * 8).decode()
    with pytest.raises(EngineError, match="the credentials") as caught:
        content(opened(stored(azure, AZURE_STORAGE_KEY=wrong)), "x")
    assert wrong not in f"{caught.value.message} {caught.value.hint}"
    with pytest.raises(EngineError, match="there is no bucket nowhere"):
        content(opened(azure.environment, "az://nowhere"), "x")
    with pytest.raises(EngineError, match="az://data/nothing: there is no such object"):
        content(opened(azure.environment), "nothing")
