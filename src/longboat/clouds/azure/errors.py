"""Answers of Azure as messages for users: expired logins, missing rights, names that are taken, limits. Pure."""

from __future__ import annotations

from longboat.clouds.rest import RestFault
from longboat.core.errors import EngineError, LongboatError, Refused

LOGIN = "az login, or AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET"
_PLACES = ("LocationNotAvailable", "NoRegisteredProviderFound", "InvalidLocation")
"""Beginnings of codes; Azure's words list all regions that there are, hundreds of words."""
_LIMITS = {"QuotaExceeded", "ErrCode_InsufficientVCPUQuota", "InsufficientVCPUQuota"}


def answer_error(fault: RestFault, operation: str) -> LongboatError:
    """The error for what Azure answered, or for that it did not; `operation`: what was asked for, in words."""
    codes = {fault.code, *fault.reasons}
    text = fault.message[:600]
    if fault.code == "NoLibrary":
        return EngineError(text, hint="pip install 'longboat[azure]'")
    if fault.code == "NoCredentials":
        return EngineError(f"no credentials of Azure: {text}", hint=LOGIN)
    if fault.status == 401:
        return EngineError(f"Azure does not accept your credentials: {text}", hint=LOGIN)
    if fault.status == 429:
        return EngineError(f"Azure asks for fewer requests ({operation}): {text}", hint="the same command again")
    if codes & _LIMITS:
        return Refused(f"a quota of the subscription is reached: {text}", hint="the portal, Quotas: ask Azure for more")
    if any(code.startswith(_PLACES) for code in codes):
        return Refused(f"Azure has no such region for that: {text[:300]}", hint="az account list-locations -o table")
    if "ScopeLocked" in codes:
        return Refused(f"a lock keeps you from that ({operation}): {text}", hint="az lock list, and az lock delete")
    if codes & {"MissingSubscriptionRegistration", "SubscriptionNotRegistered"}:
        hint = "az provider register --namespace Microsoft.ContainerService (and Microsoft.Compute, Microsoft.Network)"
        return EngineError(f"the subscription has not asked for that service: {text}", hint=hint)
    if codes & {"SubscriptionNotFound", "InvalidSubscriptionId"}:
        return EngineError(f"Azure has no such subscription for you: {text}", hint="az account list shows yours")
    if fault.status == 403:
        return EngineError(
            f"Azure does not let you {operation}: {text}",
            hint="longboat cluster permissions prints the role that has the right",
        )
    if fault.status == 0:
        return EngineError(f"Azure does not answer: {text}", hint="is there a way to the internet?")
    return EngineError(f"Azure refused to {operation}: {fault.code}: {text}")
