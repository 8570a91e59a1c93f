"""Azure credentials, first found: a connection string, an account key, a shared access signature, a
workload identity or client secret, the machine's managed identity. Values are in no message.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
import urllib.parse
from typing import TYPE_CHECKING, NamedTuple

from longboat.core.errors import EngineError
from longboat.storage.credentials.aws import ask_with_retries
from longboat.storage.credentials.oauth_token import Token
from longboat.storage.http import HttpExchange, HttpRejected, HttpRequest
from longboat.storage.transfers import BROKEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from longboat.storage.transfers import Transfer

RESOURCE = "https://storage.azure.com/"
METADATA = "http://169.254.169.254"
_NEAR_S = 2.0
"""The metadata service is on the machine itself: who is not there after two seconds is not there."""
_EMULATOR = (
    "AccountName=devstoreaccount1;BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;AccountKey="
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""What UseDevelopmentStorage=true stands for. This key is published by Microsoft and opens nothing else."""


class AzureAccount(NamedTuple):
    """A storage account and how to prove oneself to it. At most one of `key` and `sas` is set."""

    name: str
    endpoint: str
    key: bytes | None = None
    sas: str | None = None  # without its question mark

    def __repr__(self) -> str:
        return f"Account({self.name!r}, ...)"


def find_account(environment: Mapping[str, str]) -> AzureAccount:
    """Raises EngineError when no account is named."""
    text = environment.get("AZURE_STORAGE_CONNECTION_STRING") or ""
    parts = _parts(text) if text else {}
    if (parts.get("usedevelopmentstorage") or "").lower() == "true":
        parts = _parts(_EMULATOR)
    name = parts.get("accountname") or _first(environment, "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
    endpoint = parts.get("blobendpoint") or _first(environment, "AZURE_STORAGE_SERVICE_ENDPOINT")
    if not name and endpoint:
        name = (urllib.parse.urlsplit(endpoint).hostname or "").split(".")[0]
    if not name or not name.isalnum():
        raise EngineError(
            "no Azure storage account is named",
            hint="set AZURE_STORAGE_ACCOUNT, or give AZURE_STORAGE_CONNECTION_STRING as a secret of the job",
        )
    protocol = parts.get("defaultendpointsprotocol") or "https"
    suffix = parts.get("endpointsuffix") or "core.windows.net"
    key = parts.get("accountkey") or _first(environment, "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
    sas = parts.get("sharedaccesssignature") or _first(environment, "AZURE_STORAGE_SAS_TOKEN")
    return AzureAccount(
        name=name,
        endpoint=endpoint or f"{protocol}://{name}.blob.{suffix}",
        key=_decoded(key) if key else None,
        sas=sas.lstrip("?") if sas and not key else None,
    )


def _parts(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(";") if part.strip()]
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _first(environment: Mapping[str, str], *names: str) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _decoded(key: str) -> bytes:
    try:
        return base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raise EngineError("the key of the Azure storage account is not base64") from None


def find_token(environment: Mapping[str, str], transfer: Transfer) -> Token | None:
    """None: there is no identity. Raises EngineError for one that cannot be used."""
    client, tenant = environment.get("AZURE_CLIENT_ID"), environment.get("AZURE_TENANT_ID")
    path, secret = environment.get("AZURE_FEDERATED_TOKEN_FILE"), environment.get("AZURE_CLIENT_SECRET")
    if not (client and tenant and (path or secret)):
        return _of_machine(environment)
    form = {"client_id": client, "grant_type": "client_credentials", "scope": RESOURCE + ".default"}
    if secret:
        form["client_secret"] = secret
    else:
        form["client_assertion"] = _content(str(path))
        form["client_assertion_type"] = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    authority = (environment.get("AZURE_AUTHORITY_HOST") or "https://login.microsoftonline.com").rstrip("/")
    url = f"{authority}/{urllib.parse.quote(tenant, safe='')}/oauth2/v2.0/token"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    request = HttpRequest("POST", url, headers, urllib.parse.urlencode(form).encode())
    failure = "a token of the Azure identity cannot be had"
    try:
        return token_of(ask_with_retries(HttpExchange(), request, transfer, failure))
    except ValueError:
        raise EngineError(f"{failure}: {authority} is no token service") from None


def find_login(environment: Mapping[str, str]) -> Token | None:
    """That of `az login`, by azure-identity where it is: not in pods, which do not carry the module that asks it.

    Only for what is not public: Azure refuses who says a name without rights even what everybody may read.
    """
    try:
        from longboat.storage.credentials.cloud_libraries import login_token
    except ImportError:
        return None
    return login_token(environment)


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        raise EngineError(f"AZURE_FEDERATED_TOKEN_FILE: {path}: {error.strerror}") from None


def _of_machine(environment: Mapping[str, str]) -> Token | None:
    """The managed identity of a virtual machine. A machine without one is no error."""
    query = {"api-version": "2018-02-01", "resource": RESOURCE}
    if environment.get("AZURE_CLIENT_ID"):
        query["client_id"] = environment["AZURE_CLIENT_ID"]
    base = (environment.get("AZURE_POD_IDENTITY_AUTHORITY_HOST") or METADATA).rstrip("/")
    url = f"{base}/metadata/identity/oauth2/token?{urllib.parse.urlencode(query)}"
    try:
        return token_of(HttpExchange(direct=True).ask(HttpRequest("GET", url, {"Metadata": "true"}), _NEAR_S).body)
    except (HttpRejected, OSError, ValueError, *BROKEN):
        return None


def token_of(body: bytes) -> Token:
    """An OAuth answer. Raises ValueError."""
    try:
        parsed = json.loads(body)
        return Token(str(parsed["access_token"]), time.time() + float(parsed["expires_in"]))
    except (KeyError, TypeError, UnicodeDecodeError, RecursionError):
        raise ValueError("no token") from None
