"""ministack with what it lacks and clusters of ours need; run by the Python of the environment that has ministack.

Additions, all of them ours and none of ministack's: EKS add-ons and pod identities in stacks are accepted and do
nothing.
"""

from __future__ import annotations

import sys
from typing import Any

from ministack.app import main
from ministack.services.cloudformation import provisioners


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


provisioners._RESOURCE_HANDLERS["AWS::EKS::Addon"] = accept("addon")
provisioners._RESOURCE_HANDLERS["AWS::EKS::PodIdentityAssociation"] = accept("podidentityassociation")

if __name__ == "__main__":
    sys.exit(main())
