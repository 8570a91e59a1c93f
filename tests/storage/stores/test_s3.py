"""S3 against a real server, and through one that fails on demand."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from longboat.core.errors import EngineError
from longboat.storage.stores import object_store
from longboat.storage.stores.object_store import ObjectStore
from longboat.storage.stores.registry import open_store
from longboat.storage.stores.s3 import checked_endpoint
from longboat.storage.transfers import Transfer
from longboat.storage.urls import object_url
from tests.storage.faulty import between
from tests.storage.realstores import ALONE, KEYS, READER, Running, check_any_name, content
from tests.storage.servers import serving

QUICK = Transfer(timeout_s=10.0, attempts=3, backoff_s=0.01)
CANARY = "canary"


def opened(environment: Mapping[str, str], url: str = "s3://data") -> ObjectStore:
    return open_store(object_url(url), environment, QUICK)


@pytest.mark.parametrize(
    "key", ["plain", "a b/c+d/%25.txt", "ü/日本", "x~y!z'(1)*", "deep/" * 20 + "end", '&<>"=;,:@$']
)
def test_any_name(s3: Running, key: str) -> None:
    check_any_name(opened(s3.environment), key)


def test_a_list_has_many_pages(s3: Running) -> None:
    store = opened(s3.environment)
    for number in range(1005):
        store.put(f"pages/{number:04}", b"x")
    store.put("pages-beside", b"")
    assert [found.key for found in store.listed("pages/")] == [f"pages/{number:04}" for number in range(1005)]


def test_large_objects_travel_in_parts(s3: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART", 5 << 20)
    data = os.urandom((22 << 20) + 7)
    with between(s3.url) as net:
        store = opened({**s3.environment, "AWS_ENDPOINT_URL": net.url})
        net.answers += [(503, "SlowDown"), (500, "InternalError")]
        store.write("large", io.BytesIO(data), len(data))
        parts = [path for method, path, _ in net.requests if method == "PUT"]
        assert len({path for path in parts if "partNumber=" in path}) == 5
    store = opened(s3.environment)
    assert content(store, "large") == data
    with store.open("large", {"Range": f"bytes={1 << 20}-"}, 10.0) as response:
        assert response.status == 206 and response.read() == data[1 << 20 :]


def test_an_upload_that_fails_leaves_nothing(s3: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART", 5 << 20)
    data = bytes(22 << 20)
    with between(s3.url) as net:
        store = opened({**s3.environment, "AWS_ENDPOINT_URL": net.url})

        class Broken(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                if self.tell() > 15 << 20:
                    raise OSError("the disk broke")
                return super().read(size)

        with pytest.raises(OSError, match="the disk broke"):
            store.write("never", Broken(data), len(data))
        assert [path for method, path, _ in net.requests if method == "DELETE" and "uploadId=" in path]
    assert opened(s3.environment).look("never") is None


def failing(environment: Mapping[str, str], url: str = "s3://data/secret/object") -> EngineError:
    where = object_url(url)
    store = open_store(where, environment, QUICK)
    with pytest.raises(EngineError) as caught:
        content(store, where.key)
    told = f"{caught.value.message} {caught.value.hint}"
    assert CANARY not in told and "secret words" not in told
    return caught.value


def test_refused_credentials_get_a_hint(s3: Running) -> None:
    opened(s3.environment).put("secret/object", b"x")
    endpoint = {**ALONE, "AWS_ENDPOINT_URL": s3.url}
    cases: list[tuple[dict[str, str], str, str]] = [
        (endpoint, "no credentials were found", "AWS_ACCESS_KEY_ID"),
        ({**endpoint, **KEYS, "AWS_SECRET_ACCESS_KEY": f"{CANARY}-wrong"}, "does not accept the credentials", "AWS_"),
        ({**endpoint, **KEYS, "AWS_ACCESS_KEY_ID": "nobody"}, "does not accept the credentials", "AWS_"),
    ]
    for environment, message, hint in cases:
        error = failing(environment)
        assert "s3://data/secret/object" in error.message and message in error.message
        assert error.hint is not None and hint in error.hint
    error = failing({**endpoint, **READER}, "s3://code/x")
    assert "the credentials do not allow this" in error.message and error.hint is not None and "grant" in error.hint


def test_missing_buckets_and_objects_are_named(s3: Running) -> None:
    assert "there is no bucket nowhere" in failing(s3.environment, "s3://nowhere/x").message
    error = failing(s3.environment, "s3://data/nothing")
    assert error.message == "s3://data/nothing: there is no such object"
    assert error.hint is not None and "/" in error.hint
    with pytest.raises(EngineError, match="there is no bucket nowhere"):
        list(opened(s3.environment, "s3://nowhere").listed("x/"))


def test_public_objects_need_no_credentials(s3: Running) -> None:
    opened(s3.environment, "s3://open").put("x", b"for all")
    store = opened({**ALONE, "AWS_ENDPOINT_URL": s3.url}, "s3://open")
    assert content(store, "x") == b"for all"
    assert "x" in [found.key for found in store.listed("")]


def test_the_bucket_as_a_host(s3: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = socket.getaddrinfo

    def resolve(host: Any, *args: Any, **more: Any) -> Any:
        return genuine("127.0.0.1" if str(host).endswith("s3.localhost") else host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    port = s3.url.rpartition(":")[2]
    endpoint = {"AWS_ENDPOINT_URL_S3": f"http://s3.localhost:{port}", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    store = opened({**s3.environment, **endpoint})
    assert store.request("GET", "a b", (), {}, None).url == f"http://data.s3.localhost:{port}/a%20b"
    store.put("hosted/a b", b"1")
    assert [found.key for found in store.listed("hosted/")] == ["hosted/a b"]
    assert content(opened(s3.environment), "hosted/a b") == b"1"


def test_addresses_of_aws_itself() -> None:
    def url(bucket: str, **environment: str) -> str:
        return opened({**ALONE, **environment}, f"s3://{bucket}").request("GET", "k", (), {}, None).url

    assert url("data") == "https://data.s3.us-east-1.amazonaws.com/k"
    assert url("data", AWS_REGION="eu-central-1") == "https://data.s3.eu-central-1.amazonaws.com/k"
    assert url("data", AWS_DEFAULT_REGION="cn-north-1") == "https://data.s3.cn-north-1.amazonaws.com.cn/k"
    # A certificate for *.s3.amazonaws.com does not hold for names with dots.
    assert url("my.data") == "https://s3.us-east-1.amazonaws.com/my.data/k"


def test_the_region_is_learned_from_the_answer(s3: Running) -> None:
    with between(s3.url) as net:
        opened(s3.environment).put("region", b"1")
        store = opened({**s3.environment, "AWS_ENDPOINT_URL": net.url})
        net.answers.append((400, "AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region><Code>"))
        assert content(store, "region") == b"1"
        assert ["us-east-1" in net.requests[0][2]["authorization"], "eu-west-3" in net.requests[1][2]["authorization"]]
        assert "/eu-west-3/s3/" in net.requests[1][2]["authorization"]


def test_passing_trouble_is_waited_out_and_lasting_trouble_told(s3: Running) -> None:
    with between(s3.url) as net:
        store = opened({**s3.environment, "AWS_ENDPOINT_URL": net.url})
        net.answers += [(503, "SlowDown"), (500, "InternalError")]
        store.put("patience", b"1")
        net.answers += [(503, "SlowDown")] * 3
        with pytest.raises(EngineError, match="503 SlowDown") as caught:
            store.put("patience", b"2")
        assert caught.value.hint is not None and "AWS_ENDPOINT_URL" in caught.value.hint
        assert content(store, "patience") == b"1"
        net.answers.append((403, "RequestTimeTooSkewed"))
        with pytest.raises(EngineError, match="clock"):
            store.put("patience", b"2")
        net.answers.append((400, "ExpiredToken"))
        with pytest.raises(EngineError, match="the credentials have expired"):
            store.put("patience", b"2")


def test_a_server_that_is_not_there_or_is_no_store() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EngineError, match="Connection refused") as caught:
            list(opened({**ALONE, **KEYS, "AWS_ENDPOINT_URL": url}).listed(""))
        assert caught.value.hint is not None and "AWS_ENDPOINT_URL" in caught.value.hint
    with serving() as site:
        site.files["/data"] = b"hello"
        with pytest.raises(EngineError, match="not that of a store"):
            list(opened({**ALONE, **KEYS, "AWS_ENDPOINT_URL": site.url}).listed(""))


def test_endpoints_are_checked() -> None:
    assert checked_endpoint("https://h:1/base/") == "https://h:1/base"
    for url in ("h:1", "ftp://h", "http://id:canary@h", "http://h?x", "http://[", "file:///x"):
        with pytest.raises(EngineError) as caught:
            checked_endpoint(url)
        assert "canary" not in caught.value.message
