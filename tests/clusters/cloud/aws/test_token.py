"""Tokens for EKS: STS takes the URL inside, as whoever asked, and only with the cluster's name in its header."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from urllib.parse import parse_qs, urlsplit

import pytest

from longboat.cli.main import enter
from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud.aws.token import PREFIX, exec_credential
from longboat.core.times import parse_time
from longboat.kubeapi.connection.credential_plugins import read_answer
from tests.clusters.cloud.conftest import Account


def url_in(token: str) -> str:
    text = token.removeprefix(PREFIX)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def ask(url: str, cluster: str) -> str:
    request = urllib.request.Request(url, headers={"x-k8s-aws-id": cluster})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def test_sts_answers_to_the_url_with_the_header_only(account: Account, capfd: pytest.CaptureFixture[str]) -> None:
    rights = {"Effect": "Allow", "Action": "eks:DescribeCluster", "Resource": "*"}
    account.user("trainer", {"Version": "2012-10-17", "Statement": [rights]})
    capfd.readouterr()
    assert enter(["cluster", "token", "lab", "--region", "us-east-1"]) == 0
    printed = capfd.readouterr().out
    token, pair, until = read_answer("longboat", "client.authentication.k8s.io/v1beta1", printed.encode())
    assert token.startswith(PREFIX) and pair is None and until > 0
    url = url_in(token)
    fields = parse_qs(urlsplit(url).query)
    assert fields["Action"] == ["GetCallerIdentity"] and fields["X-Amz-Expires"] == ["60"]
    assert fields["X-Amz-SignedHeaders"] == ["host;x-k8s-aws-id"]
    assert "user/trainer" in ask(url, "lab")
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(url, "another")
    assert refused.value.code == 403


def test_the_credential_ends_before_the_token() -> None:
    body = exec_credential("k8s-aws-v1.x", 1_000_000.0)
    assert parse_time(json.loads(json.dumps(body))["status"]["expirationTimestamp"]) == 1_000_840.0


@pytest.mark.parametrize(
    "args", [["../x", "--region", "us-east-1"], ["lab", "--region", "us-east-1.evil.org"], ["lab"]]
)
def test_names_that_are_none(args: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert enter(["cluster", "token", *args]) == 201


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(__import__("sys").modules, "botocore.config", None)
    assert enter(["cluster", "token", "lab", "--region", "us-east-1"]) == 205
    assert "hint: pip install 'longboat[aws]'" in capfd.readouterr().err
    assert AwsSession("us-east-1").region == "us-east-1"
