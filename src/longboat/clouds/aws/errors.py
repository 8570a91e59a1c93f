"""Answers of AWS as messages for users: expired keys, missing rights, wrong regions, limits. Pure."""

from __future__ import annotations

from longboat.core.errors import EngineError, LongboatError, Refused

EXPIRED = {
    "ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired", "UnauthorizedSSOTokenError",
    "SSOTokenLoadError", "TokenRetrievalError", "LoginRefreshRequired", "PendingAuthorizationExpiredError",
}  # fmt: skip
INVALID = {
    "InvalidClientTokenId", "UnrecognizedClientException", "AuthFailure", "SignatureDoesNotMatch",
    "InvalidSignatureException", "InvalidAccessKeyId", "IncompleteSignature", "MissingAuthenticationToken",
}  # fmt: skip
DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedOperation",
    "UnauthorizedException",
    "Forbidden",
    "403",
}
THROTTLED = {"Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException"}
LIMITED = {"LimitExceeded", "LimitExceededException", "ResourceLimitExceeded", "ServiceQuotaExceededException"}
_PERMISSIONS = "longboat cluster permissions prints the policy that is needed; who looks after the account can grant it"


def answer_error(code: str, message: str, operation: str, region: str) -> LongboatError:
    """The error for what AWS answered to a request."""
    text = " ".join(message.split())[:600]
    if code in EXPIRED:
        return EngineError(f"your AWS credentials have expired: {text}", hint="aws sso login, or new keys; then again")
    if code in INVALID:
        return EngineError(
            f"AWS does not accept your credentials in {region}: {text}",
            hint="aws sts get-caller-identity tells whose they are; a region may also be off for the account",
        )
    if code in DENIED:
        return EngineError(f"AWS does not let you {operation}: {text}", hint=_PERMISSIONS)
    if code == "OptInRequired":
        return Refused(f"the account may not use {region}: {text}", hint="enable the region, or write another one")
    if code in THROTTLED:
        return EngineError(f"AWS answers too slowly: too many requests ({operation})", hint="the same command again")
    if code in LIMITED:
        return Refused(f"a limit of the account is reached: {text}", hint="ask AWS for more under Service Quotas")
    return EngineError(f"AWS refused {operation}: {code}: {text}")


def local_error(name: str, message: str, region: str) -> LongboatError:
    """The error for what went wrong before AWS answered; `name` is that of botocore's exception."""
    text = " ".join(message.split())[:300]
    if name in EXPIRED:
        return EngineError(f"your AWS login has expired: {text}", hint="aws sso login, then again")
    if name in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return EngineError(
            f"no AWS credentials: {text}",
            hint="AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or aws configure sso",
        )
    if name == "ProfileNotFound":
        return EngineError(text, hint="AWS_PROFILE names a profile of ~/.aws/config")
    if name in ("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError"):
        return EngineError(
            f"AWS does not answer in {region}: {text}",
            hint="is the region written rightly, and is there a way to the internet?",
        )
    return EngineError(f"AWS could not be asked: {text}")
