"""Answers of AWS as messages: one clear sentence each, with what to do."""

from __future__ import annotations

import pytest

from longboat.clouds.aws.errors import answer_error, local_error


@pytest.mark.parametrize(
    ("code", "message", "hint", "exit_code"),
    [
        ("ExpiredToken", "your AWS credentials have expired: The token", "aws sso login", 205),
        ("InvalidClientTokenId", "AWS does not accept your credentials in us-east-1", "get-caller-identity", 205),
        ("AccessDenied", "AWS does not let you eks:describe_cluster: The token", "longboat cluster permissions", 205),
        ("UnauthorizedOperation", "AWS does not let you", "longboat cluster permissions", 205),
        ("OptInRequired", "the account may not use us-east-1", "enable the region", 203),
        ("ThrottlingException", "too many requests", "again", 205),
        ("LimitExceededException", "a limit of the account is reached", "Service Quotas", 203),
        ("Strange", "AWS refused eks:describe_cluster: Strange: The token is x", "", 205),
    ],
)
def test_answers(code: str, message: str, hint: str, exit_code: int) -> None:
    error = answer_error(code, "The token\n is x", "eks:describe_cluster", "us-east-1")
    assert message in error.message and hint in (error.hint or "") and "\n" not in error.message
    assert error.exit_code == exit_code


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("NoCredentialsError", "no AWS credentials", "AWS_PROFILE"),
        ("UnauthorizedSSOTokenError", "your AWS login has expired", "aws sso login"),
        ("ProfileNotFound", "text", "~/.aws/config"),
        ("EndpointConnectionError", "AWS does not answer in xx-none-1", "is the region written rightly"),
        ("ParamValidationError", "AWS could not be asked", ""),
    ],
)
def test_before_an_answer(name: str, message: str, hint: str) -> None:
    error = local_error(name, "text", "xx-none-1")
    assert message in error.message and hint in (error.hint or "")
