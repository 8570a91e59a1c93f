"""Requests to Azure's resource manager: credentials come from azure-identity, as in everybody's tools; plain REST.

The only module of `clouds` that imports it, when the first request is made.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from longboat.clouds.rest import BROKEN, Body, RestAnswer, RestClient, RestFault

ENDPOINT = "https://management.azure.com"
ENDPOINT_VARIABLE = "AZURE_RESOURCE_MANAGER_ENDPOINT"
"""Another one: of a national cloud, say."""
COMPUTE = "2026-04-01"
DISKS = "2026-03-02"
SKUS = "2021-07-01"
CLUSTERS = "2026-08-01"
NETWORK = "2018-10-01"
STORAGE = "2023-01-01"
"""Versions of the interfaces that are asked."""
_EARLY_S = 120.0  # a token is renewed this much before it runs out: clocks differ, requests take time
_MOST_PAGES = 1000  # of up to a thousand items each; a list that goes on for ever ends here
_WAY = re.compile(r"^\t(\w+Credential): (.*?)(?=^\t\w+Credential: |\Z)", re.MULTILINE | re.DOTALL)
_NOT_SET_UP = (
    *("authentication unavailable", "Credential unavailable", "not found on path"),
    *("is not installed", "to be installed", "could not be found"),
)
_NETWORK = ("HTTPConnection", "HTTPSConnection", "Failed to resolve", "timed out")
"""Words of azure-identity, which gives one exception for all."""
NO_LIBRARY = "NoLibrary"
NO_CREDENTIALS = "NoCredentials"


class AzureSession:
    """Azure as whoever the environment says. `is_patient`: see RestClient."""

    def __init__(self, *, is_patient: bool = False) -> None:
        self._client = RestClient(os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT, is_patient=is_patient)
        self._credential: Any = None
        self._token: tuple[str, float] = ("", 0.0)

    def send(
        self,
        method: str,
        path: str,
        version: str,
        *,
        body: Body | None = None,
        headers: Mapping[str, str] = {},
        query: Mapping[str, str] = {},
    ) -> RestAnswer:
        """One request. Raises RestFault."""
        text = urlencode({"api-version": version, **query})
        return self._client.send(method, f"{path}?{text}", self._bearer(), body=body, headers=headers)

    def follow(self, address: str) -> RestAnswer:
        """An address that Azure gave: of a next page, or of an operation that goes on."""
        return self._client.send("GET", address, self._bearer())

    def items(self, path: str, version: str, query: Mapping[str, str] = {}) -> Iterator[Body]:
        """All pages of a list. Raises RestFault."""
        answer = self.send("GET", path, version, query=query)
        for _ in range(_MOST_PAGES):
            yield from answer.body.get("value") or ()
            following = answer.body.get("nextLink")
            if not following:
                return
            answer = self.follow(following)

    def _bearer(self) -> str:
        token, expires = self._token
        if time.time() < expires - _EARLY_S:
            return token
        try:
            from azure.core.exceptions import ClientAuthenticationError
            from azure.identity import CredentialUnavailableError, DefaultAzureCredential
        except ImportError:
            message = "Azure is asked with azure-identity, which is not installed: pip install 'longboat[azure]'"
            raise RestFault(401, NO_LIBRARY, message) from None
        logging.getLogger("azure").setLevel(logging.ERROR)  # else it tells every way that it tried
        try:
            if self._credential is None:
                self._credential = DefaultAzureCredential()
            given = self._credential.get_token(f"{_audience(self._client.base)}/.default")
        except (ClientAuthenticationError, CredentialUnavailableError, ValueError) as error:  # also an id that is none
            raise credential_fault(str(error).strip() or type(error).__name__) from None
        self._token = given.token, float(given.expires_on)
        return self._token[0]


def _audience(base: str) -> str:
    """Whom a token is for: a national cloud has its own. A proxy of one's own speaks for Azure itself."""
    return base if base.startswith("https://management.") else ENDPOINT


def credential_fault(text: str) -> RestFault:
    """azure-identity tries every way there is, and tells of each; the one that is set up and failed is the reason."""
    ways = _WAY.findall(text.partition("To mitigate this issue")[0])
    failed = [(name, words) for name, words in ways if not any(word in words for word in _NOT_SET_UP)]
    if ways and not failed:
        return RestFault(401, NO_CREDENTIALS, "no login is set up: no variables, no managed identity, no az login")
    words = failed[-1][1] if failed else text
    line = " ".join(words.split())[:300]
    if any(word in words for word in _NETWORK):
        return RestFault(0, BROKEN, f"no token: {line}")
    if failed:
        return RestFault(401, "CredentialRefused", f"{failed[-1][0]}: {line}")
    return RestFault(401, NO_CREDENTIALS, line)


def group_path(subscription: str, group: str) -> str:
    return f"/subscriptions/{quote(subscription, safe='')}/resourceGroups/{quote(group, safe='')}"
