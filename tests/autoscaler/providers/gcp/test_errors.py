"""Google's codes as kinds of refusals."""

from __future__ import annotations

import pytest

from longboat.autoscaler.providers.gcp.errors import kind_of


@pytest.mark.parametrize(
    ("status", "code", "reasons", "kind"),
    [
        (200, "ZONE_RESOURCE_POOL_EXHAUSTED", (), "stockout"),
        (200, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", (), "stockout"),
        (200, "QUOTA_EXCEEDED", (), "quota"),
        (403, "403", ("quotaExceeded",), "quota"),
        (403, "403", ("rateLimitExceeded",), "throttled"),
        (403, "403", ("forbidden",), "auth"),
        (403, "PERMISSION_DENIED", (), "auth"),
        (401, "UNAUTHENTICATED", (), "auth"),
        (429, "RESOURCE_EXHAUSTED", (), "throttled"),
        (400, "400", ("resourceNotReady",), "throttled"),
        (503, "UNAVAILABLE", (), "throttled"),
        (0, "URLError", (), "throttled"),
        (404, "404", ("notFound",), "not-found"),
        (400, "400", ("invalid",), "other"),
    ],
)
def test_kinds(status: int, code: str, reasons: tuple[str, ...], kind: str) -> None:
    assert kind_of(status, code, reasons) == kind
