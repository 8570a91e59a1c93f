"""Error responses of the API server: from an HTTP status and a Status object to one of `errors`. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from longboat.kubeapi.errors import (
    BROKEN,
    BUSY,
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    ObjectNotFound,
    Unreachable,
)

_CLASSES: dict[int, type[ApiError]] = {400: Invalid, 403: Forbidden, 404: ObjectNotFound, 410: Expired, 422: Invalid}
_SHOWN = 2000
"""Characters of a message that are kept: webhooks may say anything."""
_KUBELET_CALL = re.compile(
    r'(?:Get|Post) "https?://(\[[0-9a-f:]+\]|[^/:"]+)(?::\d+)?/(?:containerLogs|exec|attach)/[^"]*": '
)
"""How an API server repeats the address it asked a kubelet at."""
_FAILED_CHECK = re.compile(rb"^\[-\]\S+.*", re.MULTILINE)
"""A line of `/readyz?verbose`; those that pass have a plus."""
BAD_APPLY = "failed to create typed patch object"
"""So an unknown field in a server-side apply is told, with the status of a broken server."""


def error_of(
    status: int, body: bytes, action: str, context: str = "", *, retry_after_s: float | None = None
) -> ApiError:
    """The error for a status of 300 or more. `what` was asked; it is told only where the server says nothing itself."""
    parsed = _parse(body)
    reason = str(parsed.get("reason") or "")
    message = str(parsed.get("message") or "") or _plain(body) or f"{action}: {status}"
    message = _KUBELET_CALL.sub(r"the kubelet of machine \1 does not answer: ", message)
    hint = None
    kind = _CLASSES.get(status, ApiError)
    if status == 409:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
    elif status < 400:
        message, hint = f"{action}: the server redirects ({status})", "is this the address of an API server?"
    elif status == 401:
        kind = Unreachable
        message = f"the API server does not know who we are (context {context!r}): {message}"
        hint = "log in again: the token or certificate in the kubeconfig is not valid, or not any more"
    elif status == 403 and " cannot " in message:  # so RBAC says it; a quota and admission use other words
        hint = (
            "ask for this right, or use another namespace or context; docs/kubernetes.md lists those that Longboat uses"
        )
    elif status == 500 and BAD_APPLY in message:
        kind = Invalid
    elif status in (*BUSY, *BROKEN):
        kind = Unreachable
        message = f"the API server cannot answer now ({status}): {message}"
    details = parsed.get("details")
    if retry_after_s is not None:
        details = {"retryAfterSeconds": retry_after_s, **(details if isinstance(details, dict) else {})}
    return kind(
        message[:_SHOWN],
        status=status,
        reason=reason,
        details=details if isinstance(details, dict) else None,
        hint=hint,
    )


def error_in(status: dict[str, Any], action: str) -> ApiError:
    """The error of a Status object that came inside a stream."""
    return error_of(int(status.get("code") or 500), json.dumps({**status, "kind": "Status"}).encode(), action)


def is_status(body: bytes) -> bool:
    """Whether an API server wrote this answer: load balancers and proxies on the way write pages of their own."""
    return bool(_parse(body))


def _plain(body: bytes) -> str:
    """The beginning of an answer that is no Status; of a health check, all parts that failed and none of the others."""
    failed = _FAILED_CHECK.findall(body)
    return (b"\n".join(failed) or body[:200]).decode(errors="replace").strip()


def _parse(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) and parsed.get("kind") == "Status" else {}
