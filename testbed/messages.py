"""HTTP messages as the testbed's proxy sees them: their heads, who sent them, and the answers it makes itself.

Bodies pass through the proxy unread. Not a client and not a server of HTTP.
"""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

REASONS = {410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


@dataclass(frozen=True)
class Request:
    method: str
    target: str

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def is_watch(self) -> bool:
        asked = urllib.parse.parse_qs(self.target.partition("?")[2]).get("watch", [""])[0]
        return asked in ("1", "true") or "/watch/" in self.path


@dataclass(frozen=True)
class Seen:
    """One request and what became of it: `passed`, or the status that the proxy answered itself."""

    request: Request
    outcome: str


class Share:
    """Chooses so much of what comes, evenly and always the same: of 0.25 every fourth."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.owed = 0.0

    def is_chosen(self) -> bool:
        self.owed += self.share
        if self.owed < 1.0 - 1e-9:
            return False
        self.owed -= 1.0
        return True


@dataclass(frozen=True)
class Answer:
    status: int
    share: Share
    retry_after_s: int | None
    concerns: Callable[[Request], bool]

    def text(self, request: Request) -> bytes:
        reason = REASONS.get(self.status, "Unknown")
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": f"the test's proxy answers {self.status} to {request.method} {request.path}",
            "reason": reason,
            "code": self.status,
        }
        body = json.dumps(status).encode()
        lines = [f"HTTP/1.1 {self.status} {reason}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        if self.retry_after_s is not None:
            lines.append(f"Retry-After: {self.retry_after_s}")
        return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True)
class Head:
    """The first line and the fields of a message, names in small letters."""

    first: str
    fields: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        return ", ".join(value for field, value in self.fields if field == name)

    def replaced(self, more: dict[str, list[str]], dropped: str = "x-remote-") -> Head:
        kept = [(name, value) for name, value in self.fields if not name.startswith(dropped)]
        added = [(name, value) for name, values in more.items() for value in values]
        return Head(self.first, (*kept, *added))

    def text(self) -> bytes:
        lines = [self.first, *(f"{name}: {value}" for name, value in self.fields), "", ""]
        return "\r\n".join(lines).encode("latin-1")


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Nothing when the other side has ended in between two messages."""
    try:
        text = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = text.decode("latin-1").split("\r\n")[:-2]
    pairs = (line.partition(":")[::2] for line in lines)
    return Head(first, tuple((name.strip().lower(), value.strip()) for name, value in pairs))


def identity(certificate: Any) -> dict[str, list[str]]:
    """The fields by which a front proxy tells the API who the client is; none for a client without a certificate."""
    parts = [pair for group in (certificate or {}).get("subject", ()) for pair in group]
    users = [value for name, value in parts if name == "commonName"]
    groups = [value for name, value in parts if name == "organizationName"]
    return {"x-remote-user": users[:1], "x-remote-group": groups} if users else {}
