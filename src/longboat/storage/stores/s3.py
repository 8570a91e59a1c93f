"""S3, and what speaks its language. Path style on an endpoint of one's own, the bucket as a host on AWS itself.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import hashlib
import re
import time
import urllib.parse
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from longboat.core.errors import EngineError
from longboat.storage.credentials import aws
from longboat.storage.credentials.oauth_token import RENEW_S
from longboat.storage.credentials.sigv4 import EMPTY, AwsKeys, Signed, host_and_path, signed_headers
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
from longboat.storage.stores.object_store import ObjectInfo, ObjectMissing, ObjectStore, size_of
from longboat.storage.transfers import LONGEST_PAUSE_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from xml.etree import ElementTree as ET

    from longboat.storage.transfers import Transfer
    from longboat.storage.urls import ObjectUrl

_AS_HOST = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


class S3(ObjectStore):
    """A bucket."""

    keys_hint = (
        "give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY as `secrets` of the job (and AWS_SESSION_TOKEN if there is"
        " one), or see docs/data.md"
    )
    endpoint_hint = "AWS_ENDPOINT_URL names the server and AWS_REGION the region, unless it is AWS"

    def __init__(self, where: ObjectUrl, environment: Mapping[str, str], transfer: Transfer) -> None:
        super().__init__(where, transfer, HttpExchange(ca_bundle=environment.get("AWS_CA_BUNDLE")))
        self._environment = environment
        settings = aws.profile(environment)
        self._region = aws.region_of(environment, settings) or "us-east-1"
        given = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        self._endpoint = checked_endpoint(given or settings.get("endpoint_url") or "")
        style = (environment.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST") or "").lower()
        self._is_host = _AS_HOST.fullmatch(where.bucket) is not None and (style == "true" or not self._endpoint)
        self._keys: AwsKeys | None = None
        self._was_sought = False

    def has_credentials(self) -> bool:
        return self._credentials() is not None

    def _credentials(self, stale: AwsKeys | None = None) -> AwsKeys | None:
        """Current credentials, renewed if they are `stale` or about to expire."""
        with self.seeking:
            expires = self._keys.expires if self._keys is not None else None
            is_old = stale is not None and self._keys == stale
            if not self._was_sought or is_old or (expires is not None and expires - time.time() < RENEW_S):
                self._keys = aws.find_keys(self._environment, self.transfer)
                self._was_sought = True
            return self._keys

    def learn_from(self, rejected: HttpRejected, request: HttpRequest) -> bool:
        region = (rejected.headers.get("x-amz-bucket-region") or "") or _region_in(rejected)
        if region and region != self._region and re.fullmatch(r"[a-z0-9-]{2,40}", region):
            self._region = region
        # Of several threads that are told at once, the first learns it, and all of them ask again.
        if region and region == self._region and region != request.region:
            return True
        keys = self._keys
        if not rejected.code.startswith("ExpiredToken") or keys is None:
            return False
        if request.headers.get("x-amz-security-token") != keys.token:
            return True  # another thread has them already
        return self._credentials(stale=keys) != keys

    def request(
        self, method: str, key: str, query: Iterable[tuple[str, str]], headers: Mapping[str, str], body: bytes | None
    ) -> HttpRequest:
        query = list(query)
        region = self._region  # another thread may learn a better one meanwhile
        url = self._url(key, region)
        keys = self._credentials()
        if keys is not None:
            host, path = host_and_path(url)
            payload = hashlib.sha256(body).hexdigest() if body else EMPTY
            # Only what must be signed is: proxies, and Google itself, change other headers on the way.
            signed = Signed(method, host, path, query, {}, payload)
            headers = {**headers, **signed_headers(signed, keys, region=region, service="s3", now=time.time())}
        if body is not None:
            headers = {"Content-Type": "application/octet-stream", **headers}
        return HttpRequest(method, f"{url}?{query_text(query)}" if query else url, headers, body, region)

    def _url(self, key: str, region: str) -> str:
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        base = self._endpoint or f"https://s3.{region}.{suffix}"
        path = quoted(key, safe="/")
        if not self._is_host:
            return f"{base}/{quoted(self.where.bucket)}/{path}" if key else f"{base}/{quoted(self.where.bucket)}"
        scheme, _, host = base.partition("://")
        return f"{scheme}://{self.where.bucket}.{host}/{path}"

    def listed(self, prefix: str) -> Iterator[ObjectInfo]:
        more = ""
        while True:
            query = [("list-type", "2"), ("prefix", prefix), ("encoding-type", "url")]
            query += [("continuation-token", more)] if more else []
            answer = self.ask("GET", query=query, about=prefix)
            page = self._parsed(answer.body, "ListBucketResult")
            is_quoted = text_of(page, "EncodingType") == "url"
            for each in children(page, "Contents"):
                key = text_of(each, "Key")
                size, tag = size_of(text_of(each, "Size")), text_of(each, "ETag")
                changed = aws.expiry(text_of(each, "LastModified")) or 0.0
                yield ObjectInfo(urllib.parse.unquote_plus(key) if is_quoted else key, size, tag, changed)
            before, more = more, text_of(page, "NextContinuationToken")
            if text_of(page, "IsTruncated") != "true" or not more or more == before:
                return

    def put(self, key: str, data: bytes) -> None:
        self.ask("PUT", key, body=data)

    def begin(self, key: str) -> str:
        answer = self.ask("POST", key, query=[("uploads", "")], body=b"")
        return text_of(self._parsed(answer.body, "InitiateMultipartUploadResult"), "UploadId")

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        query = [("partNumber", str(number)), ("uploadId", upload)]
        return self.ask("PUT", key, query=query, body=data).headers.get("ETag") or ""

    def finish(self, key: str, upload: str, parts: list[str]) -> None:
        listed = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(tag)}</ETag></Part>"
            for number, tag in enumerate(parts, 1)
        )
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        pause_s = self.transfer.backoff_s
        for left in reversed(range(self.transfer.attempts)):
            try:
                answer = self.ask("POST", key, query=[("uploadId", upload)], body=body)
                failure = self._completion_failure(answer.body, key)
            except ObjectMissing as error:
                failure = error
            if isinstance(failure, ObjectMissing) and self.look(key) is not None:
                return  # our own first request did it, and its answer was lost
            if failure is None:
                return
            if isinstance(failure, EngineError) or not left:
                self.give_up(failure, key)
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _completion_failure(self, body: bytes, key: str) -> Exception | None:
        """What an answer with status 200 says: the store sends that first, and only then puts the parts together."""
        if not body.strip():
            return ConnectionError("the answer of the store breaks off")
        page = self._parsed(body, "CompleteMultipartUploadResult", "Error")
        if _kind(page) != "Error":
            return None
        code = text_of(page, "Code")
        code = code if code.isalnum() and len(code) <= 64 else ""
        return self.failure(HttpRejected(404 if code == "NoSuchUpload" else 400, code, {}), key)

    def abandon(self, key: str, upload: str) -> None:
        try:
            self.ask("DELETE", key, query=[("uploadId", upload)])
        except EngineError:
            pass  # a rule of the bucket removes what was never finished

    def _parsed(self, body: bytes, *kinds: str) -> ET.Element:
        """An answer of one of these kinds: what is anything else must not be taken for an empty list."""
        try:
            page = parse_xml(body)
        except ValueError:
            page = None
        if page is None or _kind(page) not in kinds:
            raise EngineError(f"{self.name_of('')}: the answer is not that of a store", hint=self.endpoint_hint)
        return page


def checked_endpoint(url: str) -> str:
    """The endpoint's URL, validated, without a trailing slash. Raises EngineError."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_fine = not url or (parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc)
    except ValueError:
        is_fine = False
    if not is_fine or parts.query or parts.fragment:
        raise EngineError("the endpoint of the object store is not an http or https address without credentials")
    return url.rstrip("/")


def _kind(page: ET.Element) -> str:
    return page.tag.rpartition("}")[2]


def _region_in(rejected: HttpRejected) -> str:
    if rejected.code not in ("AuthorizationHeaderMalformed", "PermanentRedirect"):
        return ""
    try:
        return text_of(parse_xml(rejected.body), "Region")
    except ValueError:
        return ""
