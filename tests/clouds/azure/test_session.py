"""Credentials of Azure that cannot be: one message, whatever azure-identity makes of them."""

from __future__ import annotations

import pytest

from longboat.clouds.azure.session import NO_CREDENTIALS, AzureSession
from longboat.clouds.rest import RestFault


def test_a_tenant_that_is_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("azure.identity")
    for name, value in (("CLIENT_ID", "a"), ("TENANT_ID", "b c"), ("CLIENT_SECRET", "s3cret")):
        monkeypatch.setenv(f"AZURE_{name}", value)
    with pytest.raises(RestFault, match="Invalid tenant ID") as caught:
        AzureSession().send("GET", "/subscriptions", "2022-12-01")
    assert caught.value.code == NO_CREDENTIALS and "s3cret" not in str(caught.value)
