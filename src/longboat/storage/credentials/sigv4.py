"""AWS Signature Version 4 in request headers. Pure: the time is given.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import hashlib
import hmac
import time
import urllib.parse
from typing import TYPE_CHECKING, NamedTuple

from longboat.storage.http import query_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EMPTY = hashlib.sha256(b"").hexdigest()


class AwsKeys(NamedTuple):
    """Credentials of an account; `token` and `expires` of those that are lent for a while."""

    key_id: str
    secret: str
    token: str | None = None
    expires: float | None = None

    def __repr__(self) -> str:
        return "Keys(...)"


class Signed(NamedTuple):
    """What is signed of a request. `path` is escaped as it is sent; `query` is not escaped yet."""

    method: str
    host: str
    path: str
    query: Iterable[tuple[str, str]]
    headers: Mapping[str, str]
    payload: str  # sha256 of the body


def signed_headers(request: Signed, keys: AwsKeys, *, region: str, service: str, now: float) -> dict[str, str]:
    """The request's headers with those that prove who sends it. Host is the sender's to add."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    headers = {**request.headers, "x-amz-date": stamp}
    if service == "s3":
        headers["x-amz-content-sha256"] = request.payload
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    names, canonical = canonical_request(request._replace(headers={**headers, "host": request.host}))
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = f"AWS4-HMAC-SHA256 Credential={keys.key_id}/{scope}"
    return {**headers, "Authorization": f"{credential}, SignedHeaders={names}, Signature={signature}"}


def canonical_request(request: Signed) -> tuple[str, str]:
    """Names of the headers that are signed, and the text whose hash is signed."""
    fields = sorted((name.lower(), " ".join(value.split())) for name, value in request.headers.items())
    names = ";".join(name for name, _ in fields)
    lines = "".join(f"{name}:{value}\n" for name, value in fields)
    query = query_text(request.query)
    return names, "\n".join((request.method, request.path, query, lines, names, request.payload))


def host_and_path(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.netloc, parts.path or "/"
