"""Azure blobs: a container of the storage account that the environment names.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import urllib.parse
from email.utils import formatdate
from typing import TYPE_CHECKING

from longboat.core.errors import EngineError
from longboat.storage.credentials import azure
from longboat.storage.credentials.oauth_token import BearerToken
from longboat.storage.http import (
    HttpExchange,
    HttpRejected,
    HttpRequest,
    children,
    parse_xml,
    query_text,
    quoted,
    text_of,
)
from longboat.storage.stores.object_store import ObjectInfo, ObjectStore, http_time, size_of
from longboat.storage.stores.s3 import checked_endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from xml.etree import ElementTree as ET

    from longboat.storage.transfers import Transfer
    from longboat.storage.urls import ObjectUrl

VERSION = "2021-12-02"
_NOT_PUBLIC = (401, 403, 404, 409)
"""Azure's answers to who says no name and asks for what only some may read."""
_SIGNED = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


class Azure(ObjectStore):
    """A container."""

    keys_hint = (
        "give AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING as a secret of the job,"
        " or see docs/data.md: commands on this machine use az login too, with pip install 'longboat[azure]'"
    )
    endpoint_hint = "AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING names the account"

    def __init__(self, where: ObjectUrl, environment: Mapping[str, str], transfer: Transfer) -> None:
        super().__init__(where, transfer, HttpExchange())
        self._account = azure.find_account(environment)
        self._endpoint = checked_endpoint(self._account.endpoint)
        self._bearer = BearerToken(lambda: azure.find_token(environment, transfer))
        self._log_in = lambda: azure.find_login(environment)

    def has_credentials(self) -> bool:
        return bool(self._account.key or self._account.sas or self._bearer.token())

    def learn_from(self, rejected: HttpRejected, request: HttpRequest) -> bool:
        return self._bearer.learn_from(rejected, request) or (
            rejected.status in _NOT_PUBLIC
            and not (self._account.key or self._account.sas or "Authorization" in request.headers)
            and self._bearer.fall_back(self._log_in)
        )

    def request(
        self, method: str, key: str, query: Iterable[tuple[str, str]], headers: Mapping[str, str], body: bytes | None
    ) -> HttpRequest:
        container = f"{self._endpoint}/{quoted(self.where.bucket, safe='$')}"
        url = f"{container}/{quoted(key, safe='/')}" if key else container
        query = list(query)
        sent = {**headers, "x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION}
        if body is not None:
            sent.setdefault("Content-Type", "application/octet-stream")
            sent["Content-Length"] = str(len(body))
        text = query_text(query)
        if self._account.key:
            path = urllib.parse.urlsplit(url).path
            sent["Authorization"] = shared_key(self._account, method, path, query, sent)
        elif self._account.sas:
            text = f"{text}&{self._account.sas}" if text else self._account.sas
        elif (token := self._bearer.token()) is not None:
            sent["Authorization"] = token.header
        return HttpRequest(method, f"{url}?{text}" if text else url, sent, body)

    def listed(self, prefix: str) -> Iterator[ObjectInfo]:
        more = ""
        while True:
            query = [("restype", "container"), ("comp", "list"), ("prefix", prefix)]
            query += [("marker", more)] if more else []
            page = self._page(self.ask("GET", query=query, about=prefix).body)
            for blobs in children(page, "Blobs"):
                for blob in children(blobs, "Blob"):
                    yield from _found(blob)
            before, more = more, text_of(page, "NextMarker")
            if not more or more == before:
                return

    def put(self, key: str, data: bytes) -> None:
        self.ask("PUT", key, headers={"x-ms-blob-type": "BlockBlob"}, body=data)

    def begin(self, key: str) -> str:
        return os.urandom(8).hex()

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        block = base64.b64encode(f"{upload}-{number:06d}".encode()).decode()
        self.ask("PUT", key, query=[("comp", "block"), ("blockid", block)], body=data)
        return block

    def finish(self, key: str, upload: str, parts: list[str]) -> None:
        blocks = "".join(f"<Latest>{block}</Latest>" for block in parts)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'.encode()
        self.ask("PUT", key, query=[("comp", "blocklist")], headers={"Content-Type": "application/xml"}, body=body)

    def abandon(self, key: str, upload: str) -> None:
        """Blocks that no list names are removed by Azure after a week."""

    def _page(self, body: bytes) -> ET.Element:
        try:
            page = parse_xml(body)
        except ValueError:
            page = None
        if page is None or page.tag != "EnumerationResults":
            raise EngineError(f"{self.name_of('')}: the answer is not that of a store", hint=self.endpoint_hint)
        return page


def shared_key(
    account: azure.AzureAccount,
    method: str,
    path: str,
    query: Iterable[tuple[str, str]],
    headers: Mapping[str, str],
) -> str:
    """The Authorization header. `path` is as it is sent."""
    given = {name.lower(): value.strip() for name, value in headers.items()}
    if given.get("content-length") == "0":
        given["content-length"] = ""
    lines = [method, *(given.get(name, "") for name in _SIGNED)]
    lines += [f"{name}:{given[name]}" for name in sorted(given) if name.startswith("x-ms-")]
    resource = f"/{account.name}{path}"
    resource += "".join(f"\n{name.lower()}:{value}" for name, value in sorted(query))
    text = "\n".join((*lines, resource))
    signature = hmac.new(account.key or b"", text.encode(), hashlib.sha256).digest()
    return f"SharedKey {account.name}:{base64.b64encode(signature).decode()}"


def _found(blob: ET.Element) -> Iterator[ObjectInfo]:
    if len(children(blob, "Name")) != 1 or len(children(blob, "Properties")) != 1:
        raise EngineError("the store lists an object without a name or properties")
    (named,), (facts,) = children(blob, "Name"), children(blob, "Properties")
    if text_of(facts, "ResourceType") == "directory":  # of accounts with a hierarchical namespace
        return
    name = named.text or ""
    key = urllib.parse.unquote(name) if named.get("Encoded") == "true" else name
    changed = http_time(text_of(facts, "Last-Modified"))
    yield ObjectInfo(key, size_of(text_of(facts, "Content-Length")), text_of(facts, "Etag"), changed)
