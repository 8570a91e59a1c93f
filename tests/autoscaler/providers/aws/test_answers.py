"""The AWS provider on answers of AWS that a server that plays it does not give: no requests are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from longboat.autoscaler.model.provider_settings import CloudSettings
from longboat.autoscaler.providers.aws import provider as aws
from longboat.autoscaler.providers.provider import MachineRequest, ProviderError
from longboat.clouds.aws.session import AwsFault
from tests.autoscaler.stages import pool

MIN_SIZE = "Currently, desiredSize equals minSize (1). Terminating instance it will violate the min"
IDS = [f"aws:///a/i-0123456789abcdef{number}" for number in range(3)]


class Session:
    """Answers by operation; a fault is raised."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def ask(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        self.asked.append((operation, arguments))
        answer = self.answers[operation]
        answer = answer(arguments) if callable(answer) else answer
        if isinstance(answer, AwsFault):
            raise answer
        return dict(answer)

    def pages(self, service: str, operation: str, key: str, *, raw: bool, **arguments: Any) -> Iterator[Any]:
        yield from self.ask(service, operation, **arguments)[key]


def provider_with(**answers: Any) -> tuple[aws.AwsProvider, Session]:
    provider = aws.AwsProvider("aws", CloudSettings(cloud="aws", cluster="c", region="r"))
    session: Any = Session(answers)
    provider._session = session
    return provider, session


def group(name: str, **more: Any) -> dict[str, Any]:
    sizes = {"MinSize": 0, "MaxSize": 3, "DesiredCapacity": 1, "AvailabilityZones": ["a"], "Instances": []}

    return {"AutoScalingGroupName": name, **sizes, **more}


def test_a_group_at_its_min_keeps_its_machine_and_the_others_go() -> None:
    def end(arguments: dict[str, Any]) -> Any:
        return AwsFault("ValidationError", MIN_SIZE) if arguments["InstanceId"] == IDS[0][-19:] else {}

    provider, session = provider_with(terminate_instance_in_auto_scaling_group=end)
    with pytest.raises(ProviderError) as caught:
        provider.shrink(pool("gpu"), IDS)
    assert caught.value.kind == "min-size" and "minSize (1)" in caught.value.message
    assert [arguments["InstanceId"] for _, arguments in session.asked] == [each[-19:] for each in IDS]


def test_machines_of_a_group_at_its_min_are_shown_as_kept() -> None:
    def machine(number: int, name: str) -> dict[str, Any]:
        tags = [{"Key": "aws:autoscaling:groupName", "Value": name}]
        placed = {"Placement": {"AvailabilityZone": "a"}, "State": {"Name": "running"}}
        return {"InstanceId": IDS[number][-19:], **placed, "Tags": tags}

    tags = [{"Key": "longboat.dev/pool", "Value": "gpu"}]
    groups = [group("x", MinSize=1, Tags=tags), group("y", MinSize=1, DesiredCapacity=2, Tags=tags)]
    there = [machine(0, "x"), machine(1, "y"), machine(2, "y")]
    provider, _ = provider_with(
        describe_auto_scaling_groups={"AutoScalingGroups": groups},
        describe_instances={"Reservations": [{"Instances": there}]},
    )
    kept = [each.kept for each in provider.list([pool("gpu")]).machines]
    assert kept == ["its group is at its min of 1", "", ""]


@pytest.mark.parametrize(("code", "kind"), [("Throttling", "throttled"), ("InsufficientInstanceCapacity", "stockout")])
def test_a_large_order_that_is_refused_midway_has_its_machines_marked(code: str, kind: str) -> None:
    """AWS launches a hundred by a request: what was made is the order's, and one that is put off is sent again."""

    def launch(arguments: dict[str, Any]) -> Any:
        made = [{"AvailabilityZone": "a", "InstanceIds": [f"i-{number:017x}" for number in range(100)]}]
        return {"Instances": made} if arguments["ClientToken"] == "t-0" else AwsFault(code, "")

    tags = [{"Key": "longboat.dev/pool", "Value": "gpu"}]
    groups = {"AutoScalingGroups": [group("x", MaxSize=200, Tags=tags)]}
    provider, session = provider_with(describe_auto_scaling_groups=groups, launch_instances=launch, create_tags={})
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool("gpu"), MachineRequest(token="t", count=150, zone="a"))
    assert (caught.value.kind, caught.value.is_unsettled) == (kind, kind == "throttled")
    (marked,) = [arguments["Resources"] for operation, arguments in session.asked if operation == "create_tags"]
    assert len(marked) == 100


@pytest.mark.parametrize("code", ["IdempotentCallInProgress", "ServiceUnavailable", "ReadTimeoutError"])
def test_an_order_that_aws_may_be_carrying_out_is_unsettled(code: str) -> None:
    tags = [{"Key": "longboat.dev/pool", "Value": "gpu"}]
    groups = {"AutoScalingGroups": [group("x", Tags=tags)]}
    provider, _ = provider_with(describe_auto_scaling_groups=groups, launch_instances=AwsFault(code, ""))
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool("gpu"), MachineRequest(token="t", count=1, zone="a"))
    assert caught.value.kind == "throttled" and caught.value.is_unsettled


@pytest.mark.parametrize(
    ("code", "kind"),
    [("InvalidInstanceID.NotFound", "throttled"), ("InternalError", "throttled"), ("UnauthorizedOperation", "auth")],
)
def test_an_order_whose_machines_could_not_be_marked_is_unsettled(code: str, kind: str) -> None:
    tags = [{"Key": "longboat.dev/pool", "Value": "gpu"}]
    made = {"Instances": [{"AvailabilityZone": "a", "InstanceIds": [IDS[0][-19:]]}]}
    answers: list[Any] = [AwsFault(code, "no"), {}]
    provider, session = provider_with(
        describe_auto_scaling_groups={"AutoScalingGroups": [group("x", Tags=tags)]},
        launch_instances=made,
        create_tags=lambda _: answers.pop(0),
    )
    request = MachineRequest(token="t", count=1, zone="a")
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool("gpu"), request)
    assert (caught.value.kind, caught.value.is_unsettled) == (kind, True)
    assert f"{code}: no (marking the 1 machines" in caught.value.message
    assert [machine.id for machine in provider.grow(pool("gpu"), request)] == IDS[:1]
    launches = [arguments["ClientToken"] for operation, arguments in session.asked if operation == "launch_instances"]
    assert launches == ["t-0", "t-0"]


def test_a_label_that_a_group_gets_later_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    labels: dict[str, str] = {}
    tags = [{"Key": "eks:nodegroup-name", "Value": "x"}]
    instance = {"InstanceId": IDS[0][-19:], "AvailabilityZone": "a", "LifecycleState": "InService"}
    provider, session = provider_with(
        describe_auto_scaling_groups={"AutoScalingGroups": [group("x", Tags=tags, Instances=[instance])]},
        describe_nodegroup=lambda _: {"nodegroup": {"nodegroupName": "x", "labels": dict(labels)}},
        describe_instances={"Reservations": []},
    )
    wanted = [pool("gpu")]
    assert not provider.list(wanted).machines and not provider.list(wanted).machines
    asked = [operation for operation, _ in session.asked]
    assert asked.count("describe_nodegroup") == 1, "not in every loop"
    labels["longboat.dev/pool"] = "gpu"
    monkeypatch.setattr(aws, "UNLABELLED_S", 0.0)
    for _ in range(2):
        assert [machine.id for machine in provider.list(wanted).machines] == IDS[:1]
    asked = [operation for operation, _ in session.asked]
    assert asked.count("describe_nodegroup") == 2, "once known, it stays"
