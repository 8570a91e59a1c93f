"""The kubeconfig and the API server's first answer, as the doctor sees them. No secret is kept."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

from longboat.core.errors import LongboatError
from longboat.doctor.observe.certificates import token_end, validity_of, validity_of_pem
from longboat.doctor.values import ApiAnswer, ClientFacts, Validity
from longboat.kubeapi import kubeconfig
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection import dialing
from longboat.kubeapi.kubeconfig import ClusterAccess

ASKED = 3  # the first request also makes the connection
HANDSHAKE_S = 10.0  # as for other connections to an API server (`kubeapi.connection.dialing`)


def client_facts(access: ClusterAccess, environment: Mapping[str, str]) -> ClientFacts:
    user = access.user
    plugin = (user.get("exec") or {}).get("command") if isinstance(user.get("exec"), dict) else None
    pem = _quietly(user, "client-certificate")
    token = _token(user)
    proxy = dialing.target_of(access, environment).proxy
    return ClientFacts(
        context=access.context,
        namespace=access.namespace,
        server=access.server,
        files=tuple(_modes(environment)),
        login=_login(user),
        certificate=validity_of_pem(pem) if pem else None,
        token_ends=token_end(token) if token else None,
        is_token_unread=_login(user) == "token" and not token,
        plugin=str(plugin) if plugin else None,
        plugin_path=shutil.which(str(plugin), path=environment.get("PATH", os.defpath)) if plugin else None,
        skips_verification=bool(access.cluster.get("insecure-skip-tls-verify")),
        proxy=proxy.hostname or "" if proxy else "",
        now=time.time(),
    )


def _login(user: Mapping[str, object]) -> str:
    ways = {"exec": "exec", "client-certificate-data": "certificate", "client-certificate": "certificate"}
    ways |= {"token": "token", "tokenFile": "token", "username": "password"}
    return next((way for key, way in ways.items() if user.get(key)), "none")


def _quietly(user: Mapping[str, object], key: str) -> bytes | None:
    """A file that cannot be read stops the first request, which says so."""
    try:
        return kubeconfig.pem(user, key)
    except LongboatError:
        return None


def _token(user: Mapping[str, object]) -> str:
    if user.get("token"):
        return str(user["token"])
    try:
        return Path(str(user["tokenFile"])).read_text().strip() if user.get("tokenFile") else ""
    except (OSError, ValueError):
        return ""


def _modes(environment: Mapping[str, str]) -> list[tuple[str, int]]:
    modes = []
    for file in kubeconfig.files_of(environment):
        try:
            modes.append((str(file), file.stat().st_mode & 0o777))
        except OSError:
            continue
    return modes


def api_answer(client: Client) -> ApiAnswer:
    """Raises Unreachable."""
    times = []
    for _ in range(ASKED):
        began = time.monotonic()
        client.request("GET", "/version")
        times.append(time.monotonic() - began)
    return ApiAnswer(
        server=client.server,
        context=client.context,
        took_s=statistics.median(times),
        skew_s=client.transport.clock_skew_s,
        certificate=_server_certificate(client),
        now=time.time(),
    )


def _server_certificate(client: Client) -> Validity | None:
    """Of the server, or of the balancer before it; not seen through a proxy. Its name and signature were checked by
    the requests before."""
    target = client.transport.target
    if not target.is_tls or target.proxy is not None:
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((target.host, target.port), HANDSHAKE_S) as plain,
            context.wrap_socket(plain, server_hostname=target.server_name) as secured,
        ):
            der = secured.getpeercert(binary_form=True)
    except (OSError, ValueError):  # one that asks for our certificate ends the connection after the handshake
        return None
    return validity_of(der) if der else None
