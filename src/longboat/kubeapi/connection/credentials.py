"""Credentials for the API server: tokens, passwords, client certificates, and plugins that hand them out.

What a file or a program gave is kept until it changes or expires, and asked for again after a 401. Secrets stay in
memory: never in an error, in a log or on a command line.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from longboat.kubeapi.connection import credential_plugins
from longboat.kubeapi.errors import KubeconfigError
from longboat.kubeapi.kubeconfig import ClusterAccess, pem

REREAD_S = 60.0
"""How long a token read from a file is used: the kubelet renews those of service accounts long before they expire."""


class RequestCredentials(NamedTuple):
    """What a request carries. `pair` is a client certificate and its key as PEM."""

    authorization: str | None = None
    pair: bytes | None = None


class Credentials:
    """The identity of one user. Safe for several threads; asking is cheap."""

    def __init__(self, access: ClusterAccess, environment: Mapping[str, str]) -> None:
        self._access = access
        self._environment = environment
        self._lock = threading.Lock()
        self._identity: RequestCredentials | None = None
        self._until = 0.0
        legacy = access.user.get("auth-provider")
        if legacy:
            name = legacy.get("name", "") if isinstance(legacy, dict) else ""
            raise KubeconfigError(
                f"the user of context {access.context!r} logs in with the legacy auth-provider {name!r}, "
                "which Kubernetes removed in 1.26",
                hint="make the kubeconfig anew with your provider's tool: it will use an exec plugin",
            )

    def identity(self) -> RequestCredentials:
        with self._lock:
            if self._identity is None or time.time() >= self._until:
                self._identity, self._until = self._obtain()
            return self._identity

    def renew(self, refused: RequestCredentials) -> bool:
        """After a 401: forget what was refused. True if something else is there now, so that asking again may help."""
        with self._lock:
            if self._identity is not None and self._identity != refused:
                return True
            self._identity, self._until = self._obtain()
            return self._identity != refused

    def _obtain(self) -> tuple[RequestCredentials, float]:
        user = self._access.user
        pair = client_pair(user)
        if user.get("tokenFile"):
            return RequestCredentials(_bearer(_token_in(user["tokenFile"])), pair), time.time() + REREAD_S
        if user.get("token"):
            return RequestCredentials(_bearer(str(user["token"])), pair), float("inf")
        if user.get("username"):
            both = f"{user['username']}:{user.get('password') or ''}".encode()
            return RequestCredentials(f"Basic {base64.b64encode(both).decode()}", pair), float("inf")
        if user.get("exec"):
            token, given, until = credential_plugins.ask(self._access, self._environment)
            return RequestCredentials(_bearer(token) if token else None, given or pair), until
        return RequestCredentials(None, pair), float("inf")


def _bearer(token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        # Rejected here: http.client would reject it too, with the token in its message.
        raise KubeconfigError("the token has characters that no token has: a line break, or a letter beyond ASCII")
    return f"Bearer {token}"


def _token_in(file: str) -> str:
    try:
        token = Path(file).read_text().strip()
    except OSError as error:
        raise KubeconfigError(f"{file}: the token cannot be read: {error.strerror or error}") from error
    if not token:
        raise KubeconfigError(f"{file}: there is no token in it")
    return token


def client_pair(user: Mapping[str, Any]) -> bytes | None:
    """The client certificate and its key, from the kubeconfig itself or from files."""
    certificate = pem(user, "client-certificate")
    if certificate is None:
        return None
    key = pem(user, "client-key")
    if key is None:
        raise KubeconfigError("a client certificate without its key", hint="add client-key or client-key-data")
    return certificate.rstrip() + b"\n" + key
