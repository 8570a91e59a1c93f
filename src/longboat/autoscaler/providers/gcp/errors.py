"""Google's error codes as kinds of refusals: what is sold out, limited, forbidden, asked too often. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from longboat.autoscaler.model.snapshot import FailureKind

STOCKOUT = {
    "ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "RESOURCE_POOL_EXHAUSTED",
    "IP_SPACE_EXHAUSTED", "IP_SPACE_EXHAUSTED_WITH_DETAILS", "CONDITION_NOT_MET", "VM_MIN_COUNT_NOT_REACHED",
    "RESERVATION_CAPACITY_EXCEEDED", "UNSUPPORTED_MACHINE_TYPE",
}  # fmt: skip
QUOTA = {"QUOTA_EXCEEDED", "quotaExceeded", "LIMIT_EXCEEDED", "limitExceeded"}
AUTH = {
    "PERMISSION_DENIED", "PERMISSIONS_ERROR", "UNAUTHENTICATED", "forbidden", "required", "authError",
    "accessNotConfigured", "SERVICE_DISABLED", "BILLING_DISABLED",
}  # fmt: skip
BUSY = {
    "rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "resourceNotReady", "RESOURCE_NOT_READY",
    "RESOURCE_OPERATION_RATE_EXCEEDED", "ABORTED", "UNAVAILABLE", "conditionNotMet", "INTERNAL_ERROR",
}  # fmt: skip


def kind_of(status: int, code: str, reasons: Iterable[str] = ()) -> FailureKind:
    """`reasons`: the codes of the error's parts; Google mostly has the cause there."""
    codes = {code, *reasons}
    if codes & STOCKOUT:
        return "stockout"
    if codes & QUOTA:
        return "quota"
    if codes & BUSY or status in (408, 409, 412, 429) or status == 0 or status >= 500:
        return "throttled"  # Google says 403 to who asks too often, too
    if codes & AUTH or status in (401, 403):
        return "auth"
    return "not-found" if status == 404 or codes & {"notFound", "NOT_FOUND"} else "other"
