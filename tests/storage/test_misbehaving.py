"""Stores on a bad day: they tell the region late, send blanks, lie about success, change under the reader's eyes."""

from __future__ import annotations

import hashlib
import io
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from longboat.core.errors import EngineError
from longboat.core.jobs import DataImport
from longboat.storage import http
from longboat.storage.data import import_data
from longboat.storage.http import parse_xml
from longboat.storage.stores import object_store
from longboat.storage.stores.object_store import ObjectStore
from longboat.storage.stores.registry import open_store
from longboat.storage.transfers import Transfer
from longboat.storage.urls import object_url
from tests.storage.answering import Answering, Asked, Told, answering
from tests.storage.realstores import ALONE, KEYS

QUICK = Transfer(timeout_s=5.0, attempts=3, backoff_s=0.01)
XML = b'<?xml version="1.0" encoding="UTF-8"?>\n'
NS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def opened(url: str) -> ObjectStore:
    return open_store(object_url("s3://data"), {**ALONE, **KEYS, "AWS_ENDPOINT_URL": url}, QUICK)


def error(code: str, more: str = "") -> bytes:
    return XML + f"<Error><Code>{code}</Code><Message>secret words</Message>{more}</Error>".encode()


def test_threads_that_learn_the_region_at_once_all_succeed() -> None:
    together = threading.Barrier(8)

    def answer(asked: Asked) -> Told:
        if "/eu-west-3/s3/" in asked.headers["authorization"]:
            return Told(body=b"content")
        together.wait(10.0)  # nobody hears of the region before all eight have asked with the wrong one
        return Told(400, error("AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>"))

    with answering(answer) as server, ThreadPoolExecutor(max_workers=8) as pool:
        store = opened(server.url)

        def read(number: int) -> bytes:
            with store.open(f"k{number}", {}, 10.0) as response:
                return bytes(response.read())

        assert list(pool.map(read, range(8))) == [b"content"] * 8
        assert len(server.requests) == 16


class Uploads:
    """Answers to an upload in parts; the last request gets what is in `ends`, one after the other."""

    def __init__(self, *ends: Told) -> None:
        self.ends = list(ends)
        self.has_object = False

    def __call__(self, asked: Asked) -> Told:
        query = parse_qs(urlsplit(asked.path).query, keep_blank_values=True)
        if asked.method == "POST" and "uploads" in query:
            body = f"<InitiateMultipartUploadResult {NS}><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
            return Told(body=XML + body.encode())
        if asked.method == "POST":
            return self.ends.pop(0)
        if asked.method == "HEAD":
            return Told(200 if self.has_object else 404, headers=(("Content-Length", "0"),))
        return Told(headers=(("ETag", '"part"'),))


DONE = XML + f"<CompleteMultipartUploadResult {NS}><ETag>x</ETag></CompleteMultipartUploadResult>".encode()


def upload(monkeypatch: pytest.MonkeyPatch, uploads: Uploads) -> list[Asked]:
    monkeypatch.setattr(object_store, "PART", 1 << 10)
    with answering(uploads) as server:
        opened(server.url).write("large", io.BytesIO(bytes(4 << 10)), 4 << 10)
        return server.requests


@pytest.mark.parametrize("blanks", [b" ", b"\n", b" \r\n\t" * 5000])
def test_blanks_that_keep_a_connection_alive_are_no_failure(blanks: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = upload(monkeypatch, Uploads(Told(body=blanks + DONE)))
    assert [asked.method for asked in requests].count("DELETE") == 0


def test_an_error_in_an_answer_that_says_200_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [Told(body=b"  " + error("InternalError")), Told(body=error("SlowDown")), Told(body=b" " + DONE)]
    requests = upload(monkeypatch, Uploads(*ends))
    assert len([1 for asked in requests if asked.path.endswith("uploadId=u1") and asked.method == "POST"]) == 3


def test_an_error_in_an_answer_that_says_200_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for ends in ([error("EntityTooSmall")], [error("InternalError")] * 3, [b"<html/>"], [b""] * 3):
        with pytest.raises(EngineError, match="s3://data/") as caught:
            upload(monkeypatch, Uploads(*(Told(body=end) for end in ends)))
        assert "secret words" not in caught.value.message


def test_an_answer_that_was_lost_after_the_parts_were_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = Uploads(Told(body=b"  "), Told(body=error("NoSuchUpload")))
    uploads.has_object = True
    upload(monkeypatch, uploads)
    with pytest.raises(EngineError, match="no such object"):
        upload(monkeypatch, Uploads(Told(404, error("NoSuchUpload"))))


@pytest.mark.parametrize("body", [error("InternalError"), b"<html><body/></html>", b"<ListBucketResult>"])
def test_what_is_no_list_is_no_empty_list(body: bytes) -> None:
    with answering(lambda _: Told(body=body)) as server, pytest.raises(EngineError, match="not that of a store"):
        list(opened(server.url).listed("x/"))


def test_a_size_that_is_no_number_is_an_error_in_words() -> None:
    page = f"<ListBucketResult {NS}><Contents><Key>x</Key><Size>many</Size></Contents></ListBucketResult>"
    with answering(lambda _: Told(body=XML + page.encode())) as server, pytest.raises(EngineError, match="no number"):
        list(opened(server.url).listed(""))
    told = Told(headers=(("Content-Length", "\u00b2"),))
    with answering(lambda _: told) as server, pytest.raises(EngineError, match="no number"):
        opened(server.url).look("x")


def test_a_list_that_never_ends_is_given_up() -> None:
    page = f"<ListBucketResult {NS}><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>"
    with answering(lambda _: Told(body=XML + f"{page}</ListBucketResult>".encode())) as server:
        assert list(opened(server.url).listed("")) == [] and len(server.requests) == 2


BOMB = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "ha"}">' for n in range(10))


@pytest.mark.parametrize(
    "text",
    [
        f"<!DOCTYPE x [{BOMB}]><x>&l9;</x>",
        " " * 5000 + f"<!DOCTYPE x [{BOMB}]><x>&l9;</x>",  # further away than anybody looks for it
        f"<!-- {'c' * 9000} --><!DOCTYPE x [{BOMB}]><x>&l9;</x>",
        "<!DOCTYPE x><x/>",
        '<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>',
        '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1/"> %p;]><x/>',
        "<a>" * 100 + "</a>" * 100,
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be"])
def test_entities_and_document_types_are_refused_by_the_parser(text: str, encoding: str) -> None:
    with pytest.raises(ValueError):
        parse_xml(text.encode(encoding))


def test_elements_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_MOST_ELEMENTS", 100)
    parse_xml(b"<a>" + b"<b/>" * 99 + b"</a>")
    with pytest.raises(ValueError, match="more elements"):
        parse_xml(b"<a>" + b"<b/>" * 100 + b"</a>")


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http.read_whole, "__defaults__", (1 << 20, 600.0))
    with answering(lambda _: Told(body=b"x" * (2 << 20))) as server:
        with pytest.raises(EngineError, match="longer than 1 MiB"):
            list(opened(server.url).listed(""))
    short = Told(body=b"<ListBucket", headers=(("Content-Length", "5000"),))
    with answering(lambda _: short) as server, pytest.raises(EngineError, match="broke off after 11 of 5000"):
        list(opened(server.url).listed(""))


def test_an_answer_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trickle:
        length = None

        def read1(self, _: int) -> bytes:
            time.sleep(0.01)
            return b"x"

    with pytest.raises(ConnectionError, match="takes longer"):
        http.read_whole(Trickle(), most_s=0.1)


class Bucket:
    """Objects below a prefix, with ETags, conditions and ranges as S3 has them."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.on_read: Callable[[str], None] = lambda key: None
        self.on_list: Callable[[], None] = lambda: None
        self.has_odd_tags = False  # those of lists are others than those of objects
        self.heeds = True  # conditions

    def tag(self, key: str) -> str:
        return f'"{hashlib.md5(self.files[key]).hexdigest()}"'

    def __call__(self, asked: Asked) -> Told:
        parts = urlsplit(asked.path)
        if parts.query:
            self.on_list()
            return Told(body=self.listing(parse_qs(parts.query)["prefix"][0]))
        key = unquote(parts.path).removeprefix("/data/")
        self.on_read(key)
        if key not in self.files:
            return Told(404, error("NoSuchKey"))
        tag, data = self.tag(key), self.files[key]
        if self.heeds and asked.headers.get("if-match", tag) != tag:
            return Told(412, error("PreconditionFailed"))
        wanted = asked.headers.get("range", "")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        headers = [("ETag", tag)]
        if wanted:
            headers.append(("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}"))
        return Told(206 if wanted else 200, data[start:], tuple(headers))

    def listing(self, prefix: str) -> bytes:
        found = [
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
            f"<ETag>{'odd-' + str(len(data)) if self.has_odd_tags else escape(self.tag(key))}</ETag></Contents>"
            for key, data in sorted(self.files.items())
            if key.startswith(prefix)
        ]
        return XML + f"<ListBucketResult {NS}>{''.join(found)}</ListBucketResult>".encode()


def brought(server: Answering, target: Path, url: str = "s3://data/set/") -> dict[str, bytes]:
    environment = {**ALONE, **KEYS, "AWS_ENDPOINT_URL": server.url}
    import_data(DataImport(url=url, to="data"), target, environment=environment, transfer=QUICK)
    files = [path for path in target.rglob("*") if path.is_file() and ".longboat" not in path.parts]
    return {str(path.relative_to(target)): path.read_bytes() for path in files}


OLD = {f"set/{name}": name.encode() * 9 + b"old" for name in "abcdefgh"}
NEW = {f"set/{name}": name.encode() * 9 + b"new" for name in "abcdefgh"}


@pytest.mark.parametrize("heeds", [True, False])
@pytest.mark.parametrize("key", ["set/a", "set/d", "set/h"])
def test_a_folder_that_changes_while_it_is_fetched_is_no_mixture(tmp_path: Path, key: str, heeds: bool) -> None:
    bucket = Bucket(dict(OLD))
    bucket.heeds = heeds

    def change(read: str) -> None:
        if read == key:
            bucket.files.update(NEW)

    bucket.on_read = change
    with answering(bucket) as server:
        assert brought(server, tmp_path) == {name.removeprefix("set/"): data for name, data in NEW.items()}


def test_a_folder_that_changes_all_the_time_is_given_up_in_words(tmp_path: Path) -> None:
    bucket = Bucket(dict(OLD))
    count = iter(range(10_000))

    def change(_: str = "") -> None:
        bucket.files["set/a"] = str(next(count)).encode()

    bucket.on_list = bucket.on_read = change
    with answering(bucket) as server, pytest.raises(EngineError, match="changes while it is fetched") as caught:
        brought(server, tmp_path)
    assert caught.value.hint is not None and "nothing writes" in caught.value.hint
    assert not [path for path in tmp_path.iterdir() if path.name != ".longboat"]


def test_a_store_whose_lists_have_tags_of_their_own_is_read(tmp_path: Path) -> None:
    bucket = Bucket(dict(OLD))
    bucket.has_odd_tags = True
    with answering(bucket) as server:
        assert len(brought(server, tmp_path)) == 8


def test_a_server_that_sends_any_part_asked_for_gives_no_mixture(tmp_path: Path) -> None:
    bucket = Bucket({"one": b"1" * 500_000})
    bucket.heeds = False
    cuts = iter([True])

    def answer(asked: Asked) -> Told:
        told = bucket(asked)
        if next(cuts, False):
            bucket.files["one"] = b"2" * 500_000
            return told._replace(body=told.body[:200_000], headers=(*told.headers, ("Content-Length", "500000")))
        return told

    with answering(answer) as server:
        assert brought(server, tmp_path, "s3://data/one") == {"one": b"2" * 500_000}
        assert [asked.headers.get("range") for asked in server.requests] == [None, "bytes=200000-", None]
