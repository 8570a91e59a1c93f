"""Requests to AWS that cannot be made at all."""

from __future__ import annotations

import pytest

from longboat.clouds.aws.session import AwsSession
from longboat.core.errors import EngineError


def test_an_endpoint_that_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "foo")
    with pytest.raises(EngineError, match="AWS cannot be asked: Invalid endpoint: foo") as caught:
        AwsSession("us-east-1").call("sts", "get_caller_identity")
    assert caught.value.hint and "AWS_ENDPOINT_URL" in caught.value.hint
