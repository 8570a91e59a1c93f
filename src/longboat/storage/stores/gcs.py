"""Google Cloud Storage through its XML API, which is S3's language: with HMAC keys, an OAuth token, or unsigned.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import json
import urllib.parse
from typing import TYPE_CHECKING

from longboat.core.errors import EngineError
from longboat.storage.credentials.aws import ask_with_retries, home_file
from longboat.storage.credentials.azure import token_of
from longboat.storage.credentials.oauth_token import BearerToken, Token
from longboat.storage.credentials.sigv4 import AwsKeys
from longboat.storage.http import HttpExchange, HttpRejected, HttpRequest
from longboat.storage.stores.s3 import S3, checked_endpoint
from longboat.storage.transfers import BROKEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from longboat.storage.transfers import Transfer
    from longboat.storage.urls import ObjectUrl

ENDPOINT = "https://storage.googleapis.com"
TOKENS = "https://oauth2.googleapis.com/token"
_NEAR_S = 2.0
"""The metadata service is on the machine itself: who is not there after two seconds is not there."""
_ADC = "~/.config/gcloud/application_default_credentials.json"


class Gcs(S3):
    """A bucket of Google's."""

    keys_hint = (
        "give GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY (an HMAC key) as `secrets` of the job, or see docs/data.md"
    )
    endpoint_hint = "check the name, and whether this machine reaches storage.googleapis.com"

    def __init__(self, where: ObjectUrl, environment: Mapping[str, str], transfer: Transfer) -> None:
        super().__init__(where, {}, transfer)
        self._environment = environment
        self._region = "auto"
        given = environment.get("STORAGE_EMULATOR_HOST") or ""
        self._endpoint = checked_endpoint(given if "://" in given or not given else f"http://{given}") or ENDPOINT
        self._is_host = False
        self._bearer = BearerToken(lambda: find_token(environment, transfer))

    def has_credentials(self) -> bool:
        return self._credentials() is not None or self._bearer.token() is not None

    def _credentials(self, stale: AwsKeys | None = None) -> AwsKeys | None:
        key_id, secret = (self._environment.get(f"GS_{name}") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
        return AwsKeys(key_id, secret) if key_id and secret else None

    def learn_from(self, rejected: HttpRejected, request: HttpRequest) -> bool:
        return self._bearer.learn_from(rejected, request)

    def request(
        self, method: str, key: str, query: Iterable[tuple[str, str]], headers: Mapping[str, str], body: bytes | None
    ) -> HttpRequest:
        request = super().request(method, key, query, headers, body)
        added = {}
        if method == "GET" and key:
            # Without this, what was stored compressed is unpacked on the way, and its size is not that of the object.
            added["Accept-Encoding"] = "gzip"
        token = None if self._credentials() is not None else self._bearer.token()
        if token is not None:
            added["Authorization"] = token.header
        return request._replace(headers={**request.headers, **added})


def find_token(environment: Mapping[str, str], transfer: Transfer) -> Token | None:
    """OAuth token of a variable, of gcloud's application default login, of the machine's metadata; None: none."""
    given = environment.get("GOOGLE_OAUTH_ACCESS_TOKEN")
    if given:
        return Token(given, float("inf"))
    path = home_file(environment, "GOOGLE_APPLICATION_CREDENTIALS", _ADC)
    try:
        with open(path, encoding="utf-8") as file:
            parsed = json.load(file)
    except FileNotFoundError:
        if environment.get("GOOGLE_APPLICATION_CREDENTIALS"):
            raise EngineError(f"GOOGLE_APPLICATION_CREDENTIALS: {path} does not exist") from None
        return _of_machine(environment)
    except (OSError, ValueError):
        raise EngineError(f"{path}: not a file of Google credentials") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "authorized_user":
        token = _of_library(environment)
        if token is not None:
            return token
        kind = str(parsed.get("type"))[:40] if isinstance(parsed, dict) else "unknown"
        raise EngineError(
            f"{path}: credentials of the type {kind} are not used here",
            hint="give an HMAC key of the service account: GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY; with"
            " pip install 'longboat[gcp]' commands on this machine use the file",
        )
    form = {name: str(parsed.get(name) or "") for name in ("client_id", "client_secret", "refresh_token")}
    body = urllib.parse.urlencode({**form, "grant_type": "refresh_token"}).encode()
    request = HttpRequest("POST", TOKENS, {"Content-Type": "application/x-www-form-urlencoded"}, body)
    try:
        return token_of(ask_with_retries(HttpExchange(), request, transfer, f"{path}: no token can be had with it"))
    except ValueError:
        raise EngineError(f"{path}: no token can be had with it") from None


def _of_library(environment: Mapping[str, str]) -> Token | None:
    """By google-auth where it is: not in pods, which do not carry the module that asks it."""
    try:
        from longboat.storage.credentials.cloud_libraries import key_file_token
    except ImportError:
        return None
    return key_file_token(environment, "GOOGLE_APPLICATION_CREDENTIALS", _ADC)


def _of_machine(environment: Mapping[str, str]) -> Token | None:
    """A machine that is not Google's has none, which is no error."""
    host = environment.get("GCE_METADATA_HOST") or "metadata.google.internal"
    url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token"
    try:
        return token_of(
            HttpExchange(direct=True).ask(HttpRequest("GET", url, {"Metadata-Flavor": "Google"}), _NEAR_S).body
        )
    except (HttpRejected, OSError, ValueError, *BROKEN):
        return None
