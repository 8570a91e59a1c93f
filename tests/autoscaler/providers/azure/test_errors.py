"""Azure's codes as kinds of refusals."""

from __future__ import annotations

import pytest

from longboat.autoscaler.providers.azure.errors import code_of_status, kind_of


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (200, "AllocationFailed", "", "stockout"),
        (200, "ZonalAllocationFailed", "", "stockout"),
        (409, "SkuNotAvailable", "", "stockout"),
        (409, "OperationNotAllowed", "exceeding approved standardNDFamily Cores quota", "quota"),
        (409, "OperationNotAllowed", "the scale set is being deleted", "throttled"),
        (409, "QuotaExceeded", "", "quota"),
        (401, "ExpiredAuthenticationToken", "", "auth"),
        (403, "AuthorizationFailed", "", "auth"),
        (403, "RequestDisallowedByPolicy", "", "auth"),
        (429, "TooManyRequests", "", "throttled"),
        (200, "OperationPreempted", "", "throttled"),
        (0, "URLError", "", "throttled"),
        (503, "HTTP 503", "", "throttled"),
        (404, "ResourceNotFound", "", "not-found"),
        (400, "InvalidParameter", "", "other"),
    ],
)
def test_kinds(status: int, code: str, message: str, kind: str) -> None:
    assert kind_of(status, code, message) == kind


def test_the_cause_is_often_in_a_part_of_the_error() -> None:
    assert kind_of(409, "DeploymentFailed", "", ["Conflict", "AllocationFailed"]) == "stockout"
    assert code_of_status("ProvisioningState/failed/AllocationFailed") == "AllocationFailed"
