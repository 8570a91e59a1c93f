"""Credentials of Azure that cannot be: one message, whatever azure-identity makes of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from longboat.clouds.azure import session
from longboat.clouds.azure.errors import answer_error
from longboat.clouds.azure.session import NO_CREDENTIALS, AzureSession, credential_fault
from longboat.clouds.rest import RestFault


def test_a_tenant_that_is_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("azure.identity")
    for name, value in (("CLIENT_ID", "a"), ("TENANT_ID", "b c"), ("CLIENT_SECRET", "s3cret")):
        monkeypatch.setenv(f"AZURE_{name}", value)
    with pytest.raises(RestFault, match="Invalid tenant ID") as caught:
        AzureSession().send("GET", "/subscriptions", "2022-12-01")
    assert caught.value.code == NO_CREDENTIALS and "s3cret" not in str(caught.value)


NOTHING = """DefaultAzureCredential failed to retrieve a token from the included credentials.
Attempted credentials:
\tEnvironmentCredential: EnvironmentCredential authentication unavailable. Variables are not fully configured.
Visit https://aka.ms/azsdk/python/identity/environmentcredential/troubleshoot to troubleshoot this issue.
\tManagedIdentityCredential: ManagedIdentityCredential authentication unavailable.
\tAzureCliCredential: %s
\tAzurePowerShellCredential: PowerShell is not installed
\tBrokerCredential: InteractiveBrowserBrokerCredential unavailable. The 'azure-identity-broker' package is required.
To mitigate this issue, please refer to the troubleshooting guidelines here at https://aka.ms/azsdk/x."""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "Azure CLI not found on path",
            "no credentials of Azure: no login is set up: no variables",
        ),
        ("ERROR: AADSTS700082: The refresh token\nhas expired", "AADSTS700082: The refresh token has expired"),
        (
            "AADSTS90002: Tenant 'x' not found.",
            "does not accept your credentials: AzureCliCredential: AADSTS90002",
        ),
        ("HTTPSConnection(host='login'): Failed to resolve", "Azure does not answer: no token: HTTPSConnection"),
    ],
)
def test_why_there_is_no_token(words: str, message: str) -> None:
    """The ways that nobody set up are no reason."""
    error = answer_error(credential_fault(NOTHING % words), "see the cluster")
    assert message in error.message and "\n" not in error.message and "Broker" not in error.message and error.hint


def test_a_national_cloud_has_tokens_of_its_own() -> None:
    assert session._audience("https://management.chinacloudapi.cn") == "https://management.chinacloudapi.cn"
    assert session._audience("https://proxy.example.org") == session.ENDPOINT


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "AADSTS700082: The refresh token has expired",
            "does not accept your credentials: AzureCliCredential: .*AADSTS",
        ),
        ("az: command not found", "no credentials of Azure: no login is set up"),
    ],
)
def test_a_login_that_has_expired(words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """azure-identity itself: what it says is taken apart, and may be said otherwise by its next version."""
    pytest.importorskip("azure.identity")
    (tmp_path / "az").write_text(f"#!/bin/sh\necho 'ERROR: {words}' >&2\nexit 1\n")
    (tmp_path / "az").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if "AADSTS" in words else "/usr/bin:/bin")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "dev")  # without a question to the network
    with pytest.raises(RestFault) as caught:
        AzureSession().send("GET", "/subscriptions", "2022-12-01")
    assert re.search(message, answer_error(caught.value, "see subscriptions").message), caught.value
