"""What is done about a stack in each of its states, which parameters it gets, and what a failure is called."""

from __future__ import annotations

import pytest

from longboat.clusters.cloud.aws.decide import (
    ClusterView,
    NodeGroupView,
    decide_up,
    drift,
    failure_of,
    parameters_of,
)
from longboat.clusters.cloud.aws.stack import ResourceEvent, StackView
from longboat.clusters.cloud.spec import CloudNetwork, CloudPool, CloudSpec
from longboat.core.errors import EngineError, LongboatError, Refused
from longboat.fitting.model.nodes import Taint

ID = "arn:aws:cloudformation:us-east-1:1:stack/longboat-lab/1"
POOL = CloudPool(name="cpu", type="m5.large", count=2, min=1, max=4)
SPEC = CloudSpec(region="us-east-1", pools=(POOL,))
GROUP = NodeGroupView(
    name="cpu-1",
    pool="cpu",
    status="ACTIVE",
    type="m5.large",
    min=1,
    max=4,
    desired=3,
    labels={"longboat.dev/pool": "cpu"},
)
CLUSTER = ClusterView(status="ACTIVE", version="1.35", access=("0.0.0.0/0",), groups=(GROUP,))


def stack(status: str, **more: object) -> StackView:
    return StackView(**{"id": ID, "status": status, "cluster": "lab", **more})


@pytest.mark.parametrize(
    ("status", "operation"),
    [
        ("CREATE_COMPLETE", "update_stack"),
        ("UPDATE_COMPLETE", "update_stack"),
        ("UPDATE_ROLLBACK_COMPLETE", "update_stack"),
        ("CREATE_IN_PROGRESS", "follow"),
        ("UPDATE_IN_PROGRESS", "follow"),
        ("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "follow"),
    ],
)
def test_stacks_that_can_go_on(status: str, operation: str) -> None:
    assert decide_up(stack(status), "lab") == operation


@pytest.mark.parametrize(
    ("status", "message", "hint"),
    [
        ("ROLLBACK_COMPLETE", "was not made: ROLLBACK_COMPLETE: the reason", "longboat cluster down lab --yes"),
        ("ROLLBACK_FAILED", "was not made: ROLLBACK_FAILED", "longboat cluster down lab --yes"),
        ("CREATE_FAILED", "was not made: CREATE_FAILED", "longboat cluster down lab --yes"),
        ("ROLLBACK_IN_PROGRESS", "goes back to what it was", "up again"),
        ("UPDATE_ROLLBACK_IN_PROGRESS", "goes back to what it was", "up again"),
        ("UPDATE_ROLLBACK_FAILED", "is stuck", "continue-update-rollback --stack-name longboat-lab"),
        ("DELETE_IN_PROGRESS", "is being taken down", "longboat cluster down lab"),
        ("DELETE_FAILED", "is being taken down", "longboat cluster down lab"),
    ],
)
def test_stacks_that_cannot(status: str, message: str, hint: str) -> None:
    with pytest.raises(EngineError) as caught:
        decide_up(stack(status, reason="the reason"), "lab")
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_no_stack_and_a_stack_of_others() -> None:
    assert decide_up(None, "lab") == "create_stack"
    for cluster in ("", "other"):
        with pytest.raises(Refused, match="not of the cluster lab"):
            decide_up(stack("CREATE_COMPLETE", cluster=cluster), "lab")


def test_zones_and_sizes_stay() -> None:
    view = stack("CREATE_COMPLETE", parameters={"Zones": "us-east-1d,us-east-1e,us-east-1f"})
    assert parameters_of(SPEC, None, (), ("x", "y", "z"))["Zones"] == "x,y,z"
    values = parameters_of(SPEC, view, (GROUP,), ())
    assert (values["Zones"], values["CpuPoolCount"]) == ("us-east-1d,us-east-1e,us-east-1f", "3")
    smaller = CloudSpec(region="us-east-1", pools=(CloudPool(name="cpu", type="m5.large", count=1, min=0, max=2),))
    assert parameters_of(smaller, view, (GROUP,), ())["CpuPoolCount"] == "2"
    fixed = CloudSpec(region="us-east-1", pools=(CloudPool(name="cpu", type="m5.large", count=2, min=2, max=2),))
    assert parameters_of(fixed, view, (GROUP,), ())["CpuPoolCount"] == "2"


def failed(resource: str, text: str) -> ResourceEvent:
    return ResourceEvent(resource=resource, type="EKS::Nodegroup", state="failed", at=1.0, text=text)


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("VcpuLimitExceeded: you have requested more vCPU capacity", "Service Quotas"),
        ("InsufficientInstanceCapacity: no g5.xlarge in us-east-1a", "other zones, another type"),
        ("User is not authorized to perform iam:CreateRole", "longboat cluster permissions"),
        ("Cluster already exists with name: lab", "another name"),
        ("something else", "longboat cluster down lab --yes"),
    ],
)
def test_a_failure_names_the_resource_that_failed_first(reason: str, hint: str) -> None:
    events = [failed("Vpc", "Resource creation cancelled"), failed("CpuPool", reason), failed("X", "other")]
    error = failure_of("lab", stack("ROLLBACK_COMPLETE"), events)
    assert isinstance(error, LongboatError)
    assert error.message == f"lab: ROLLBACK_COMPLETE: CpuPool (EKS::Nodegroup): {reason}"
    assert hint in (error.hint or "")


def test_no_failure_and_a_failed_update() -> None:
    assert failure_of("lab", stack("UPDATE_COMPLETE"), []) is None
    error = failure_of("lab", stack("UPDATE_ROLLBACK_COMPLETE", reason="why"), [])
    assert error is not None and error.message.endswith(": why") and "as it was before" in (error.hint or "")


def test_drift_says_what_differs() -> None:
    assert drift(SPEC, CLUSTER, ("a\n", "a")) == []
    pools = (
        CloudPool(name="cpu", type="m5.xlarge", min=1, max=1, spot=True, taints=(Taint(key="a", effect="NoSchedule"),)),
        CloudPool(name="gpu", type="g5.xlarge", gpus=1),
    )
    spec = CloudSpec(region="us-east-1", version="1.36", pools=pools, network=CloudNetwork(access=("192.0.2.0/24",)))
    other = NodeGroupView(name="hand-made", pool="", status="ACTIVE")
    sick = NodeGroupView(
        name="cpu-1",
        pool="cpu",
        version="1.34",
        status="DEGRADED",
        type="m5.large",
        min=0,
        max=2,
        labels={"x": "y"},
        issues=("Sick: why",),
    )
    view = ClusterView(status="ACTIVE", version="1.35", access=("0.0.0.0/0",), groups=(sick, other))
    assert drift(spec, view, ("a", "b")) == [
        "the file has changed since the last `up`",
        "Kubernetes is 1.35, the file has 1.36",
        "the API server is reached from 0.0.0.0/0, the file has 192.0.2.0/24",
        "cpu: Kubernetes is 1.34, the file has 1.36",
        "cpu: machines are m5.large, the file has m5.xlarge",
        "cpu: machines are on demand, the file says otherwise",
        "cpu: size is 0 to 2, the file has 1 to 1",
        "cpu: labels are x=y, the file has longboat.dev/pool=cpu",
        "cpu: taints differ from the file's",
        "cpu: Sick: why",
        "gpu: there is no such node group",
        "the node group hand-made is not in the file",
    ]
