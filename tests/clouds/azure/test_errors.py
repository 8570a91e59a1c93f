"""Answers of Azure as messages: one clear sentence each, with what to do."""

from __future__ import annotations

import pytest

from longboat.clouds.azure.errors import answer_error
from longboat.clouds.rest import RestFault


@pytest.mark.parametrize(
    ("status", "code", "message", "hint", "exit_code"),
    [
        (401, "ExpiredAuthenticationToken", "does not accept your credentials: words", "az login", 205),
        (403, "AuthorizationFailed", "Azure does not let you deploy the cluster: words", "cluster permissions", 205),
        (429, "TooManyRequests", "fewer requests", "again", 205),
        (409, "QuotaExceeded", "a quota of the subscription is reached", "Quotas", 203),
        (400, "LocationNotAvailableForResourceType", "Azure has no such region for that: words", "list-locations", 203),
        (400, "NoRegisteredProviderFound", "Azure has no such region", "list-locations", 203),
        (409, "ScopeLocked", "a lock keeps you from that (deploy the cluster): words", "az lock list", 203),
        (409, "MissingSubscriptionRegistration", "has not asked for that service", "az provider register", 205),
        (404, "SubscriptionNotFound", "no such subscription for you", "az account list", 205),
        (0, "NoConnection", "Azure does not answer: words", "internet", 205),
        (400, "Strange", "Azure refused to deploy the cluster: Strange: words", "", 205),
    ],
)
def test_answers(status: int, code: str, message: str, hint: str, exit_code: int) -> None:
    error = answer_error(RestFault(status, code, "words"), "deploy the cluster")
    assert message in error.message and hint in (error.hint or "") and error.exit_code == exit_code
