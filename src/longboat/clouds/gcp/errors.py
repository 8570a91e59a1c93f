"""Answers of Google Cloud as messages for users: expired logins, missing rights, names that are taken, limits. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from longboat.clouds.rest import RestFault
from longboat.core.errors import EngineError, LongboatError, Refused

LOGIN = "gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS with a key file"
_LIMITS = {"quotaExceeded", "QUOTA_EXCEEDED", "RESOURCE_EXHAUSTED"}
_BUSY = {"rateLimitExceeded", "userRateLimitExceeded", "UNAVAILABLE", "ABORTED"}


def answer_error(fault: RestFault, operation: str) -> LongboatError:
    """The error for what Google answered, or for that it did not; `operation`: what was asked for, in words."""
    codes = {fault.code, *fault.reasons}
    text = fault.message[:600]
    if fault.code == "NoLibrary":
        return EngineError(text, hint="pip install 'longboat[gcp]'")
    if fault.code == "NoCredentials":
        return EngineError(f"no credentials of Google Cloud: {text}", hint=LOGIN)
    if fault.status == 401:
        return EngineError(f"Google Cloud does not accept your credentials: {text}", hint=LOGIN)
    if fault.status == 429 or codes & _BUSY:
        return EngineError(f"Google Cloud asks for fewer requests ({operation}): {text}", hint="the same command again")
    if codes & _LIMITS:
        return Refused(f"a quota of the project is reached: {text}", hint="IAM & Admin, Quotas: ask Google for more")
    if "SERVICE_DISABLED" in codes or "accessNotConfigured" in codes:
        return EngineError(f"an API is off in the project: {text}", hint="gcloud services enable container compute")
    if fault.status == 403:
        return EngineError(
            f"Google Cloud does not let you {operation}: {text}",
            hint="longboat cluster permissions prints the role that has the right",
        )
    if fault.status == 0:
        return EngineError(f"Google Cloud does not answer: {text}", hint="is there a way to the internet?")
    return EngineError(f"Google Cloud refused to {operation}: {fault.code}: {text}")


@contextmanager
def explained(operation: str) -> Iterator[None]:
    """Refusals inside as errors for users."""
    try:
        yield
    except RestFault as fault:
        raise answer_error(fault, operation) from None
