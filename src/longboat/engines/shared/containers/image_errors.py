"""Errors of pulling images and starting containers, by what registries, container engines and runtimes say. Pure.

How a user is told is up to each engine: on a cluster it is the nodes that pull, on this machine it is this machine.
"""

from __future__ import annotations

import re
from typing import Literal

PullError = Literal["", "platform", "disk", "busy", "certificate", "server", "unauthorised", "missing", "unreachable"]

_UNREACHABLE = (
    "no such host",
    "connection refused",
    "i/o timeout",
    "timeout exceeded",
    "tls handshake timeout",
    "network is unreachable",
    "no route to host",
    "server misbehaving",
    "dial tcp",
    "connection reset",
    "deadline exceeded",
)
_MISSING = ("not found", "manifest unknown", "404", "name unknown", "repository does not exist")
_UNAUTHORISED = (
    "unauthorized", "authentication required", "401", "403", "forbidden", "access denied", "no basic auth",
    "access to the resource is denied",
)  # fmt: skip
_LONG = 300  # the runtime repeats itself after the first sentences


def pull_error(message: str) -> PullError:
    """Classify the message of a failed image pull; empty: unknown."""
    text = message.lower()
    if "no match for platform" in text or "exec format error" in text or "no image found in image index" in text:
        return "platform"
    if "no space left" in text:
        return "disk"
    if "toomanyrequests" in text or re.search(r"\b429\b", text):
        return "busy"
    if "x509" in text or "certificate" in text:
        return "certificate"
    if re.search(r"\b50[0-4]\b", text) or "internal server error" in text or "bad gateway" in text:
        return "server"
    if any(word in text for word in _UNAUTHORISED):
        return "unauthorised"
    if any(word in text for word in _MISSING):
        return "missing"
    return "unreachable" if any(word in text for word in _UNREACHABLE) else ""


def registry_of(image: str) -> str:
    first = image.partition("/")[0]
    return first if "/" in image and ("." in first or ":" in first or first == "localhost") else "docker.io"


def last_part(message: str) -> str:
    """The last, most telling part of a chain of wrapped errors."""
    parts = message.replace("\\", "").strip().rsplit(": ", 2)
    return ": ".join(parts[-2:])[-_LONG:]


def is_without_python(message: str) -> bool:
    text = message.lower()
    return "python3" in text and any(word in text for word in ("not found", "no such file", "permission denied"))
