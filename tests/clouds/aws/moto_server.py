"""moto's server with what it lacks and the autoscaler needs; run by the Python of the environment that has moto.

Additions, all of them ours and none of moto's:
- node groups of EKS have an Auto Scaling group with EKS's tags;
- LaunchInstances: in the zone asked for, once for a client token, refusing above the group's maximum;
- errors on demand (`POST /_longboat/faults`): of LaunchInstances in a zone, in its answer or instead of it;
- TerminateInstanceInAutoScalingGroup refuses below the minimum and for machines that are not there;
- spot notices (`POST /_longboat/notices`);
- actions that are allowed (`POST /_longboat/rights`): all others are denied, as AWS denies them;
- the requests since the last question (`GET /_longboat/requests`).
"""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.parse import parse_qs

from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.autoscaling.models import AutoScalingBackend, InstanceState, autoscaling_backends
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult
from moto.eks.models import EKSBackend
from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

faults: list[dict[str, Any]] = []
notices: list[str] = []
rights: list[str] = []
"""Actions that are allowed; none: all."""
requests: list[str] = []
launched: dict[tuple[str, str], dict[str, Any]] = {}

_create_nodegroup = EKSBackend.create_nodegroup
_terminate_instance = AutoScalingBackend.terminate_instance


def create_nodegroup(self: Any, *positional: Any, **given: Any) -> Any:
    nodegroup = _create_nodegroup(self, *positional, **given)
    backend = autoscaling_backends[self.account_id][self.region_name]
    ec2 = backend.ec2_backend
    data = {"InstanceType": nodegroup.instance_types[0], "ImageId": "ami-12c6146b"}
    name = nodegroup.resources["autoScalingGroups"][0]["name"]
    template = ec2.create_launch_template(name, "", data, {})
    cluster, sizes = nodegroup.cluster_name, nodegroup.scaling_config
    tags = {
        "eks:cluster-name": cluster,
        "eks:nodegroup-name": nodegroup.nodegroup_name,
        f"kubernetes.io/cluster/{cluster}": "owned",
        f"k8s.io/cluster-autoscaler/{cluster}": "owned",
        "k8s.io/cluster-autoscaler/enabled": "true",
    }
    backend.create_auto_scaling_group(
        name=name, availability_zones=[], desired_capacity=sizes["desiredSize"], max_size=sizes["maxSize"],
        min_size=sizes["minSize"], instance_id=None, launch_config_name=None,
        launch_template={"LaunchTemplateId": template.id, "Version": "$Latest"},
        vpc_zone_identifier=",".join(nodegroup.subnets), default_cooldown=None, health_check_period=None,
        health_check_type=None, load_balancers=[], target_group_arns=[], placement_group=None, termination_policies=[],
        tags=[
            {"Key": key, "Value": value, "PropagateAtLaunch": True, "ResourceId": name,
             "ResourceType": "auto-scaling-group"}
            for key, value in tags.items()
        ],
        capacity_rebalance=False, new_instances_protected_from_scale_in=False,
    )  # fmt: skip
    return nodegroup


class Refused(AutoscalingClientError):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def launch_instances(self: AutoScalingResponse) -> ActionResult:
    name, count = self._get_param("AutoScalingGroupName"), self._get_int_param("RequestedCapacity")
    token, zones = self._get_param("ClientToken"), self._get_param("AvailabilityZones", [])
    group = self.autoscaling_backend.autoscaling_groups.get(name)
    if group is None:
        raise ValidationError(f"AutoScalingGroup name not found - AutoScalingGroup: {name} not found")
    asked = {"count": count, "zones": zones}
    before = launched.get((name, token))
    if before is not None:
        if before["asked"] != asked:
            raise Refused("IdempotentParameterMismatchError", "another request had this client token")
        return ActionResult(before["answer"])
    if len(group.availability_zones) > 1 and not zones:
        raise ValidationError("AvailabilityZones or SubnetIds must be specified")
    zone = zones[0] if zones else group.availability_zones[0]
    if zone not in group.availability_zones:
        raise ValidationError(f"The zone {zone} is not one of the group")
    if len(group.instance_states) + count > group.max_size:
        raise ValidationError(f"The requested capacity exceeds the group's maximum of {group.max_size}")
    fault = next((each for each in faults if each["group"] == name and each.get("zone") in (None, zone)), None)
    errors = []
    if fault is not None:
        if fault.get("is_answer"):
            raise Refused(fault["code"], fault["message"])
        count = min(count, fault.get("after", 0))
        errors = [{"AvailabilityZone": zone, "ErrorCode": fault["code"], "ErrorMessage": fault["message"]}]
    machines = _run(self.autoscaling_backend, group, count, zone) if count else []
    answer: dict[str, Any] = {"AutoScalingGroupName": name, "ClientToken": token, "Instances": [], "Errors": errors}
    if machines:
        answer["Instances"] = [
            {"InstanceType": machines[0].instance_type, "AvailabilityZone": zone,
             "InstanceIds": [machine.id for machine in machines]}
        ]  # fmt: skip
    launched[name, token] = {"asked": asked, "answer": answer}
    return ActionResult(answer)


def _run(backend: Any, group: Any, count: int, zone: str) -> list[Any]:
    subnets = group.vpc_zone_identifier.split(",")
    subnet = next(each for each in subnets if backend.ec2_backend.get_subnet(each).availability_zone == zone)
    tags = {tag["Key"]: tag["Value"] for tag in group.tags if tag["PropagateAtLaunch"]}
    reservation = backend.ec2_backend.run_instances(
        group.image_id, count, group.user_data, group.security_groups, instance_type=group.instance_type,
        tags={"instance": {**tags, "aws:autoscaling:groupName": group.name}}, placement=zone, subnet_id=subnet,
        launch_config=None, launch_template={"LaunchTemplateId": group.ec2_launch_template.id},
        is_instance_type_default=False, associate_public_ip=None,
    )  # fmt: skip
    for machine in reservation.instances:
        machine.autoscaling_group = group
        group.instance_states.append(InstanceState(machine, protected_from_scale_in=False))
    group.desired_capacity += count
    return list(reservation.instances)


def terminate_instance(self: Any, instance_id: str, should_decrement: bool) -> Any:
    groups = self.autoscaling_groups.values()
    group = next((each for each in groups if any(one.instance.id == instance_id for one in each.instance_states)), None)
    if group is None:
        raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")
    if should_decrement and group.desired_capacity <= group.min_size:
        raise ValidationError(f"Currently, desiredSize equals minSize ({group.min_size})")
    return _terminate_instance(self, instance_id, should_decrement)


EKSBackend.create_nodegroup = create_nodegroup
AutoScalingResponse.launch_instances = launch_instances
AutoScalingBackend.terminate_instance = terminate_instance


def notices_answer() -> bytes:
    items = "".join(
        f"<item><spotInstanceRequestId>sir-{number}</spotInstanceRequestId><instanceId>{machine}</instanceId></item>"
        for number, machine in enumerate(notices)
    )
    space = "http://ec2.amazonaws.com/doc/2016-11-15/"
    set_ = f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet>"
    return (
        f'<DescribeSpotInstanceRequestsResponse xmlns="{space}">{set_}</DescribeSpotInstanceRequestsResponse>'.encode()
    )


class Additions:
    """Between the port and moto."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        path = environ["PATH_INFO"]
        if path == "/_longboat/requests":
            body = json.dumps(requests).encode()
            requests.clear()
            return answer(start, body)
        size = int(environ.get("CONTENT_LENGTH") or 0)
        data = environ["wsgi.input"].read(size)
        if path in CONTROLS:
            CONTROLS[path][:] = json.loads(data) or []
            return answer(start, b"{}")
        import io

        environ["wsgi.input"] = io.BytesIO(data)
        action = parse_qs(data.decode("latin-1")).get("Action", [f"{environ['REQUEST_METHOD']} {path}"])[0]
        if not path.startswith("/moto-api"):
            requests.append(action)
        if rights and (service := service_of(environ)):
            asked = f"{service}:{'DescribeNodegroup' if service == 'eks' else action}"
            if asked not in rights:
                return denied(start, service, asked)
        if action == "DescribeSpotInstanceRequests":
            return answer(start, notices_answer(), "text/xml")
        return self.inner(environ, start)


CONTROLS: dict[str, list[Any]] = {
    "/_longboat/faults": faults, "/_longboat/notices": notices, "/_longboat/rights": rights
}  # fmt: skip


def service_of(environ: dict[str, Any]) -> str:
    """Which service a request was signed for: `Credential=KEY/DATE/REGION/SERVICE/aws4_request`."""
    parts = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].split("/")
    return parts[3] if len(parts) > 4 else ""


def denied(start: Any, service: str, asked: str) -> list[bytes]:
    words = f"User is not authorized to perform: {asked}"
    if service == "eks":
        body = json.dumps({"message": words}).encode()
        start("403 Forbidden", [("Content-Type", "application/json"), ("x-amzn-ErrorType", "AccessDeniedException")])
        return [body]
    start("403 Forbidden", [("Content-Type", "text/xml")])
    code = "UnauthorizedOperation" if service == "ec2" else "AccessDenied"
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{words}</Message></Error>"
    if service == "ec2":
        return [f"<Response><Errors>{error}</Errors><RequestID>r</RequestID></Response>".encode()]
    return [f"<ErrorResponse>{error}<RequestId>r</RequestId></ErrorResponse>".encode()]


def answer(start: Any, body: bytes, kind: str = "application/json") -> list[bytes]:
    start("200 OK", [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


if __name__ == "__main__":
    inner = DomainDispatcherApplication(create_backend_app)
    handler = type("Quiet", (MotoRequestHandler,), {"log": lambda *_: None})
    run_simple("127.0.0.1", int(sys.argv[1]), Additions(inner), threaded=True, request_handler=handler)
