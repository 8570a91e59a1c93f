"""The stack of a cluster: looked at, made, changed, deleted, and followed event by event. Decides nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from longboat.clouds.aws.session import AwsSession, NoSuchResource
from longboat.clusters.cloud.aws.templates.intrinsics import CLUSTER_TAG, stack_name
from longboat.core.errors import EngineError
from longboat.core.jobs import Value

ResourceState = Literal["started", "done", "failed", "kept"]
Outcome = Literal["begun", "nothing", "taken"]
"""Of a request for the stack. `nothing`: it is so already; `taken`: another `up` was quicker, maybe of another file."""

_STACK = "AWS::CloudFormation::Stack"
_LOOKS_S = (0.5, 1.0, 2.0, 4.0)
"""Between two looks: EKS takes ten minutes, small stacks a second. AWS allows several requests a second."""
_STARTS = {"CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS"}


class StackView(Value, frozen=True):
    """A stack as it was seen."""

    id: str
    status: str
    reason: str = ""
    cluster: str = ""
    """Of the tag; empty: the stack is not Longboat's."""
    parameters: dict[str, str] = {}
    outputs: dict[str, str] = {}
    template: str = ""

    @property
    def is_busy(self) -> bool:
        return self.status.endswith("_IN_PROGRESS")


class ResourceEvent(Value, frozen=True):
    """What became of a resource of the stack."""

    resource: str
    type: str
    state: ResourceState
    at: float
    text: str = ""


Listen = Callable[[ResourceEvent], None]


class ClusterStack:
    """The stack of a cluster, by the cluster's name."""

    def __init__(self, session: AwsSession, cluster: str) -> None:
        self._session, self._cluster = session, cluster
        self.name = stack_name(cluster)

    def look(self, stack: str | None = None) -> StackView | None:
        """None: there is no such stack. A deleted one is found only by its id."""
        try:
            answer = self._session.call("cloudformation", "describe_stacks", StackName=stack or self.name)
            body = answer["Stacks"][0]
        except NoSuchResource:
            return None
        return StackView(
            id=body["StackId"],
            status=body["StackStatus"],
            reason=body.get("StackStatusReason") or "",
            cluster=_pairs(body.get("Tags"), "Key", "Value").get(CLUSTER_TAG, ""),
            parameters=_pairs(body.get("Parameters"), "ParameterKey", "ParameterValue"),
            outputs=_pairs(body.get("Outputs"), "OutputKey", "OutputValue"),
        )

    def template(self) -> str:
        """The text that was deployed last; empty: there is none."""
        try:
            body = self._session.call("cloudformation", "get_template", StackName=self.name)["TemplateBody"]
        except NoSuchResource:
            return ""
        return body if isinstance(body, str) else ""

    def deploy(self, operation: str, template: str, parameters: Mapping[str, str], tags: Mapping[str, str]) -> Outcome:
        """Create or update the stack."""
        arguments: dict[str, Any] = {
            "StackName": self.name,
            "TemplateBody": template,
            "Parameters": [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
            "Capabilities": ["CAPABILITY_IAM"],
            "Tags": [{"Key": key, "Value": value} for key, value in {**tags, CLUSTER_TAG: self._cluster}.items()],
        }
        try:
            self._session.call("cloudformation", operation, **arguments)
        except EngineError as error:
            if "No updates are to be performed" in error.message:
                return "nothing"
            if "AlreadyExists" in error.message:
                return "taken"
            raise
        return "begun"

    def delete(self, stack: str) -> None:
        self._session.call("cloudformation", "delete_stack", StackName=stack)

    def follow(self, stack: str, listen: Listen) -> StackView:
        """Tell every event of the work in progress, once, until the stack is at rest. Returns it as it is then."""
        seen: set[str] = set()
        turn = 0
        while True:
            view = self.look(stack)
            events = self.events(stack)
            for key, event in events:
                if key not in seen:
                    seen.add(key)
                    listen(event)
            if view is None or not view.is_busy:
                return view or StackView(id=stack, status="DELETE_COMPLETE", cluster=self._cluster)
            time.sleep(_LOOKS_S[min(turn, len(_LOOKS_S) - 1)])
            turn += 1

    def events(self, stack: str) -> list[tuple[str, ResourceEvent]]:
        """Events of the last work on the stack with their ids, oldest first."""
        events = []
        try:
            for body in self._session.pages("cloudformation", "describe_stack_events", "StackEvents", StackName=stack):
                if body["ResourceType"] == _STACK:
                    if body["ResourceStatus"] in _STARTS:
                        break
                    continue
                events.append((str(body["EventId"]), _event(body)))
        except NoSuchResource:
            return []
        return events[::-1]


def _event(body: Mapping[str, Any]) -> ResourceEvent:
    status = str(body["ResourceStatus"])
    state: ResourceState = "started"
    if status.endswith("_FAILED"):
        state = "failed"
    elif status == "DELETE_SKIPPED":
        state = "kept"
    elif status.endswith("_COMPLETE"):
        state = "done"
    return ResourceEvent(
        resource=str(body["LogicalResourceId"]),
        type=str(body["ResourceType"]).removeprefix("AWS::"),
        state=state,
        at=body["Timestamp"].timestamp(),
        text=str(body.get("ResourceStatusReason") or ""),
    )


def _pairs(items: Any, key: str, value: str) -> dict[str, str]:
    return {str(item[key]): str(item.get(value, "")) for item in items or ()}
