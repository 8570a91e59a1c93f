"""AWS's codes as kinds of refusals."""

from __future__ import annotations

import pytest

from longboat.autoscaler.providers.aws.errors import kind_of


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("InsufficientInstanceCapacity", "", "stockout"),
        ("Unsupported", "Your requested instance type is not supported in your requested zone", "stockout"),
        ("VcpuLimitExceeded", "", "quota"),
        ("MaxSpotInstanceCountExceeded", "", "quota"),
        ("ExpiredToken", "", "auth"),
        ("UnauthorizedOperation", "", "auth"),
        ("NoCredentialsError", "", "auth"),
        ("RequestLimitExceeded", "", "throttled"),
        ("ResourceContention", "", "throttled"),
        ("ScalingActivityInProgressFault", "", "throttled"),
        ("ValidationError", "Instance Id not found - No managed instance found for instance ID: i-1", "not-found"),
        ("ValidationError", "Currently, desiredSize equals minSize (1). Terminating ...", "min-size"),
        ("ValidationError", "something else", "other"),
        ("IdempotentCallInProgress", "", "throttled"),
        ("ReadTimeoutError", "", "throttled"),
        ("InternalFailure", "", "other"),
    ],
)
def test_kinds(code: str, message: str, kind: str) -> None:
    assert kind_of(code, message) == kind
