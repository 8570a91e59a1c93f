"""ministack with what it lacks and clusters of ours need; run by the Python of the environment that has ministack.

Additions, all of them ours and none of ministack's: EKS add-ons and pod identities in stacks are accepted and do
nothing; a load balancer is in the network of its subnets; a security group that rules of another one name is not
deleted.
"""

from __future__ import annotations

import sys
from typing import Any

from ministack.app import main
from ministack.services import alb, ec2
from ministack.services.cloudformation import provisioners

_balancer_xml, _delete_group = alb._lb_xml, ec2._delete_security_group


def accept(kind: str) -> dict[str, Any]:
    def create(logical_id: str, properties: dict[str, Any], stack: str) -> tuple[str, dict[str, str]]:
        name = f"{properties['ClusterName']}|{logical_id}"
        return name, {"Arn": f"arn:aws:eks:us-east-1:000000000000:{kind}/{name}"}

    def update(physical_id: str, *_: Any, **__: Any) -> tuple[str, dict[str, str]]:
        return physical_id, {}

    return {
        "create": create,
        "update": update,
        "update_with_logical_id": True,
        "delete": lambda physical_id, properties: None,
    }


def balancer_xml(balancer: dict[str, Any]) -> str:
    (subnet, *_) = balancer["Subnets"]
    text: str = _balancer_xml({**balancer, "VpcId": ec2._subnets[subnet]["VpcId"]})
    return text


def delete_group(parameters: dict[str, Any]) -> Any:
    id = ec2._p(parameters, "GroupId")
    others = [group for group in ec2._security_groups.values() if group["GroupId"] != id]
    rules = [rule for group in others for rule in (*group["IpPermissions"], *group["IpPermissionsEgress"])]
    if any(pair.get("GroupId") == id for rule in rules for pair in rule["UserIdGroupPairs"]):
        return ec2._error("DependencyViolation", f"resource {id} has a dependent object", 400)
    return _delete_group(parameters)


alb._lb_xml = balancer_xml
ec2._ACTION_MAP["DeleteSecurityGroup"] = delete_group
provisioners._RESOURCE_HANDLERS["AWS::EKS::Addon"] = accept("addon")
provisioners._RESOURCE_HANDLERS["AWS::EKS::PodIdentityAssociation"] = accept("podidentityassociation")

if __name__ == "__main__":
    sys.exit(main())
