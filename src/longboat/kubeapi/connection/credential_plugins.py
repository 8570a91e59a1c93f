"""Exec credential plugins (client.authentication.k8s.io v1 and v1beta1): programs that hand out tokens or certificates.

The program gets its orders in KUBERNETES_EXEC_INFO and answers on its stdout. Not here: how long an answer is kept
(`credentials`).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from longboat.core.times import parse_time
from longboat.kubeapi.errors import KubeconfigError, Unreachable
from longboat.kubeapi.kubeconfig import ClusterAccess, pem

GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
PLUGIN_S = 300.0
"""A program may ask its user to log in."""
EARLY_S = 10.0
"""So long before it expires a credential is not used any more: clocks differ, requests take time."""

Answer = tuple[str, bytes | None, float]
"""Token, certificate and key as PEM, and until when (seconds since the epoch)."""


def ask(access: ClusterAccess, environment: Mapping[str, str]) -> Answer:
    """Run the plugin of this user."""
    plugin = _checked(access)
    version = str(plugin.get("apiVersion") or "")
    if version not in VERSIONS:
        raise KubeconfigError(
            f"the exec plugin of context {access.context!r} speaks {version or 'no apiVersion'}",
            hint=f"it must be one of {', '.join(VERSIONS)}: make the kubeconfig anew with your provider's tool",
        )
    interactive = _is_interactive(access, str(plugin.get("interactiveMode") or "IfAvailable"))
    command = [str(plugin.get("command") or ""), *(str(arg) for arg in plugin.get("args") or [])]
    variables = {
        **environment,
        **{str(variable["name"]): str(variable["value"]) for variable in plugin.get("env") or []},
    }
    variables["KUBERNETES_EXEC_INFO"] = json.dumps(_orders(access, version, interactive))
    said = _run(access, command, variables, interactive)
    return read_answer(command[0], version, said)


def _checked(access: ClusterAccess) -> dict[str, Any]:
    plugin = access.user["exec"]
    env, args = (plugin.get("env") or [], plugin.get("args") or []) if isinstance(plugin, dict) else (None, None)
    if not isinstance(env, list) or not isinstance(args, list):
        raise KubeconfigError(f"the exec plugin of context {access.context!r} is not written as one")
    if not all(isinstance(variable, dict) and "name" in variable and "value" in variable for variable in env):
        raise KubeconfigError(f"the exec plugin of context {access.context!r}: env: each has a `name` and a `value`")
    return dict(plugin)


def _is_interactive(access: ClusterAccess, mode: str) -> bool:
    if mode not in ("Never", "IfAvailable", "Always"):
        raise KubeconfigError(f"the exec plugin of context {access.context!r} has the interactiveMode {mode!r}")
    has_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    if mode == "Always" and not has_terminal:
        raise KubeconfigError(
            f"the exec plugin of context {access.context!r} wants a terminal (interactiveMode: Always)",
            hint="there is none: run this in a terminal, or use a context with a token or a service account",
        )
    return has_terminal and mode != "Never"


def _orders(access: ClusterAccess, version: str, interactive: bool) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": interactive}
    if access.user["exec"].get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(access)
    return {"apiVersion": version, "kind": "ExecCredential", "spec": spec}


def _cluster_info(access: ClusterAccess) -> dict[str, Any]:
    cluster = access.cluster
    info: dict[str, Any] = {"server": access.server}
    for key in ("tls-server-name", "insecure-skip-tls-verify", "proxy-url"):
        if cluster.get(key):
            info[key] = cluster[key]
    authority = pem(cluster, "certificate-authority")
    if authority:
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.get("extensions") or []:
        if isinstance(extension, dict) and extension.get("name") == f"{GROUP}/exec":
            info["config"] = extension.get("extension")
    return info


def _run(access: ClusterAccess, command: list[str], variables: dict[str, str], interactive: bool) -> bytes:
    program = shutil.which(command[0], path=variables.get("PATH")) if command[0] else None
    if program is None:
        hint = str(access.user["exec"].get("installHint") or "").strip()
        raise KubeconfigError(
            f"the program {command[0]!r}, which gives the credentials of context {access.context!r}, is not there",
            hint=hint or "install it, or add its folder to PATH",
        )
    # A user who looks must see "open this page and type ..."; nobody reads a file of errors in time.
    shows = interactive or os.isatty(2)
    try:
        done = subprocess.run(
            [program, *command[1:]],
            env=variables,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if shows else subprocess.PIPE,
            timeout=PLUGIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{command[0]} gave no credentials within {PLUGIN_S:.0f} s") from None
    except OSError as error:
        raise KubeconfigError(f"{program}: cannot be run: {error.strerror or error}") from error
    if done.returncode:
        message = (done.stderr or b"").decode(errors="replace").strip()[-1000:]
        raise Unreachable(
            f"{command[0]} gave no credentials for context {access.context!r}: exit code {done.returncode}"
            + (f": {message}" if message else ""),
            hint="log in again with your provider's tool",
        )
    return done.stdout


def read_answer(program: str, version: str, said: bytes) -> Answer:
    """What the plugin printed. Errors name fields, never values."""
    try:
        answer = json.loads(said)
        status = answer.get("status") or {}
        identity = answer.get("apiVersion"), answer.get("kind")
    except (ValueError, AttributeError):
        raise Unreachable(f"{program} did not print an ExecCredential") from None
    if identity != (version, "ExecCredential"):
        raise Unreachable(f"{program} printed {identity[0]} {identity[1]} instead of {version} ExecCredential")
    token = str(status.get("token") or "")
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if bool(certificate) != bool(key):
        raise Unreachable(f"{program} gave a certificate without its key, or a key without its certificate")
    if not token and not certificate:
        raise Unreachable(f"{program} gave neither a token nor a certificate")
    pair = f"{certificate}\n{key}".encode() if certificate else None
    return token, pair, _until(program, status.get("expirationTimestamp"))


def _until(program: str, expiration: Any) -> float:
    if not expiration:
        return float("inf")
    expires = parse_time(expiration)
    if expires is None:
        raise Unreachable(f"{program}: expirationTimestamp is not a time")
    # One that is over already is used once: the server says whether it is any good.
    return max(expires - EARLY_S, time.time() + 1.0)
