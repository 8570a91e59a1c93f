"""AWS's error codes as kinds of refusals: what is sold out, limited, forbidden, asked too often. Pure."""

from __future__ import annotations

from longboat.autoscaler.model.snapshot import FailureKind
from longboat.clouds.aws.errors import DENIED, EXPIRED, INVALID, LIMITED, THROTTLED

STOCKOUT = {
    "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
    "InsufficientCapacityOnOutpost", "InsufficientCapacity", "ReservationCapacityExceeded", "UnfulfillableCapacity",
    "SpotMaxPriceTooLow", "InsufficientFreeAddressesInSubnet",
    "Unsupported",  # the type is not offered in this zone
}  # fmt: skip
QUOTA = {
    "VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "SpotInstanceCountLimitExceeded",
    "MaxSpotFleetRequestCountExceeded", "VolumeLimitExceeded", "MaxIOPSLimitExceeded",
}  # fmt: skip
BUSY = {
    "RequestThrottled", "RequestThrottledException", "EC2ThrottledException", "ResourceContention",
    "ScalingActivityInProgress",
}  # fmt: skip
"""Asked too often, or while it still works on something: in a moment it takes the same request."""
UNSETTLED = {
    "IdempotentCallInProgress", "IdempotentCallInProgressFault", "IdempotentCallInProgressException",
    "ServiceUnavailable", "ServiceUnavailableException", "ReadTimeoutError", "ConnectionClosedError",
}  # fmt: skip
"""AWS may be carrying out the request, or have done so: the same token finds out, a new one would buy again."""
UNVERIFIED = {"PendingVerification", "OptInRequired", "NoCredentialsError", "PartialCredentialsError"}
UNVERIFIED |= {"CredentialRetrievalError", "ProfileNotFound"}


def kind_of(code: str, message: str) -> FailureKind:
    plain = code.removesuffix("Fault")
    if plain in STOCKOUT:
        return "stockout"
    if plain in QUOTA or plain in LIMITED:
        return "quota"
    if plain in THROTTLED or plain in BUSY or code in UNSETTLED:
        return "throttled"
    if plain in DENIED or plain in EXPIRED or plain in INVALID or plain in UNVERIFIED:
        return "auth"
    if plain == "ValidationError" and ("minSize" in message or "min size" in message.lower()):
        return "min-size"
    is_missing = plain == "ValidationError" and ("not found" in message.lower() or "does not exist" in message)
    return "not-found" if "NotFound" in plain or is_missing else "other"
