"""The printed policy is enough for `up`, `status` and `down`, and each of its rights that the server knows is needed.

The server (ministack with policies enforced) judges what Longboat asks for itself. The rights that CloudFormation needs
for the resources of the stack it does not ask about: those are AWS's own to prove.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from longboat.clusters.cloud.aws.permissions import policy
from tests.clusters.cloud import servers
from tests.clusters.cloud.aws.test_up_down import say, write
from tests.clusters.cloud.conftest import Account


def without(action: str, rights: dict[str, Any]) -> dict[str, Any]:
    fewer = copy.deepcopy(rights)
    for statement in fewer["Statement"]:
        statement["Action"] = [each for each in statement["Action"] if each != action]
    fewer["Statement"] = [each for each in fewer["Statement"] if each["Action"]]
    return fewer


def test_the_policy_is_enough(account: Account, capfd: pytest.CaptureFixture[str]) -> None:
    account.user("enough", policy("able", "us-east-1"))
    write("able")
    for command in (["up"], ["status"], ["down", "--yes", "--purge-data"]):
        code, text = say(capfd, *command)
        assert code == 0, text


def test_it_is_for_one_cluster(account: Account, capfd: pytest.CaptureFixture[str]) -> None:
    account.user("other", policy("able", "us-east-1"))
    write("unable")
    code, text = say(capfd, "up")
    assert code == 205 and "AWS does not let you" in text and "hint: longboat cluster permissions" in text


@pytest.mark.parametrize(
    "action", ["cloudformation:CreateStack", "eks:DescribeCluster", "ec2:DescribeAvailabilityZones"]
)
def test_a_right_that_is_missing_is_named(action: str, account: Account, capfd: pytest.CaptureFixture[str]) -> None:
    account.user(f"less-{action.split(':')[1]}", without(action, policy("less", "us-east-1")))
    write("less")
    code, text = say(capfd, "up")
    assert code == 205 and "error: AWS does not let you" in text and action.split(":")[1] in text


def test_keys_that_nobody_has(account: Account, capfd: pytest.CaptureFixture[str]) -> None:
    account.become({"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "x" * 40})
    write("nobody")
    code, text = say(capfd, "status")
    assert code == 205 and "error: AWS does not accept your credentials" in text


def test_no_keys(account: Account, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in servers.ADMIN:
        monkeypatch.delenv(name)
    write("nobody")
    code, text = say(capfd, "up")
    assert code == 205 and "error: no AWS credentials" in text and "hint: AWS_PROFILE" in text


def test_the_policy_has_no_star_but_where_aws_has_no_names() -> None:
    for statement in policy("lab", "us-east-1")["Statement"]:
        assert not any("*" in action for action in statement["Action"])
        if statement["Resource"] == "*":
            reads = all(action.split(":")[1].startswith(("Describe", "Get", "List")) for action in statement["Action"])
            assert reads or statement["Condition"] == {"StringEquals": {"aws:RequestedRegion": "us-east-1"}}
