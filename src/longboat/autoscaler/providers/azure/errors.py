"""Azure's error codes as kinds of refusals: what is sold out, limited, forbidden, asked too often. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from longboat.autoscaler.model.snapshot import FailureKind

STOCKOUT = {
    "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest",
    "OverconstrainedZonalAllocationRequest", "AllocationTimeout", "SkuNotAvailable", "SpotAllocationFailed",
    "OverconstrainedSpotAllocationRequest", "NotAvailableForSubscription", "CapacityReservationGroupFull",
    "SubnetIsFull", "InvalidVMSizeInZone",
}  # fmt: skip
QUOTA = {
    "QuotaExceeded",
    "SpotQuotaExceeded",
    "LowPriorityQuotaExceeded",
    "ResourceQuotaExceeded",
    "MaxInstancesReached",
}
AUTH = {
    "AuthorizationFailed", "AuthenticationFailed", "InvalidAuthenticationToken", "ExpiredAuthenticationToken",
    "InvalidAuthenticationTokenTenant", "LinkedAuthorizationFailed", "RequestDisallowedByPolicy",
    "SubscriptionNotFound", "ReadOnlyDisabledSubscription", "ScopeLocked",
}  # fmt: skip
BUSY = {
    "TooManyRequests", "OperationPreempted", "AnotherOperationInProgress", "RetryableError", "ServerBusy",
    "SubscriptionRequestsThrottled", "ResourceCollectionRequestsThrottled", "PreconditionFailed", "ConcurrentUpdate",
}  # fmt: skip
MISSING = {"ResourceNotFound", "ResourceGroupNotFound", "NotFound", "ParentResourceNotFound"}
_QUOTA_WORDS = ("quota", "core limit", "limit of cores")


def kind_of(status: int, code: str, message: str, reasons: Iterable[str] = ()) -> FailureKind:
    """`reasons`: the codes of the error's parts; Azure often has the cause there."""
    codes = {code, *reasons}
    words = message.lower()
    if codes & STOCKOUT:
        return "stockout"
    if codes & QUOTA or ("OperationNotAllowed" in codes and any(text in words for text in _QUOTA_WORDS)):
        return "quota"
    if codes & AUTH or status in (401, 403):
        return "auth"
    if codes & BUSY or status in (408, 409, 412, 429) or status == 0 or status >= 500:
        return "throttled"
    return "not-found" if codes & MISSING or status == 404 else "other"


def code_of_status(code: str) -> str:
    """`AllocationFailed` of `ProvisioningState/failed/AllocationFailed`, as statuses of machines have it."""
    return code.rpartition("/")[2]
