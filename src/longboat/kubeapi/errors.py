"""Errors of the Kubernetes API, one class for each that callers tell apart. Transport errors become `Unreachable`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from longboat.core.errors import EngineError

T = TypeVar("T")

BUSY = (429, 503)
"""Statuses of a server that has not begun with the request."""
BROKEN = (500, 502, 503, 504)
"""Statuses of a server, or of a load balancer before it, that may have begun."""


class ApiError(EngineError):
    """The server refused. `status` is the HTTP code, `reason` Kubernetes' own word (`NotFound`, `Forbidden`, ...)."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason
        self.details = dict(details or {})


class ObjectNotFound(ApiError):
    """404."""


class AlreadyExists(ApiError):
    """409 AlreadyExists."""


class Conflict(ApiError):
    """409 Conflict: the object was changed since it was read."""


class Forbidden(ApiError):
    """403: RBAC, a quota or an admission plugin; the message says which."""


class Invalid(ApiError):
    """422 or 400: a field is wrong."""


class Expired(ApiError):
    """410: the resource version is too old; list again."""


class Unreachable(ApiError):
    """No answer: connection refused, cut, timed out, TLS or credentials that cannot be had."""


class LeaseExpired(ApiError):
    """The Lease that allowed a write has run out: it was not sent, or nobody waits for its answer any more."""


class KubeconfigError(EngineError):
    """The kubeconfig cannot be used: not there, not YAML, an unknown context, a way to log in that we do not speak."""


def answer_or_none(ask: Callable[[], T]) -> T | None:
    """The answer; None where the server refuses it or does not serve it. Raises Unreachable: that is no answer."""
    try:
        return ask()
    except Unreachable:
        raise
    except ApiError:
        return None
