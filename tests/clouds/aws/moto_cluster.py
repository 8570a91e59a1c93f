"""A cluster on moto's server for one test: node groups, faults, what was asked of it."""

from __future__ import annotations

import json
import secrets
import urllib.request
from typing import Any

from longboat.autoscaler.model.provider_settings import CloudSettings
from longboat.autoscaler.providers.aws.provider import AwsProvider
from longboat.clouds.aws.session import AwsSession

REGION = "us-east-1"
ZONES = ("us-east-1a", "us-east-1b")
ROLE = "arn:aws:iam::123456789012:role/nodes"
WORDS = {
    "stockout": ("InsufficientInstanceCapacity", "We currently do not have sufficient capacity in the zone", False),
    "quota": ("VcpuLimitExceeded", "You have requested more vCPU capacity than your current limit", False),
    "auth": ("AccessDenied", "User is not authorized to perform: autoscaling:LaunchInstances", True),
    "throttled": ("Throttling", "Rate exceeded", True),
}
"""Kind -> AWS's code and words, and whether they come instead of an answer."""


class MotoCluster:
    def __init__(self, url: str) -> None:
        self.url, self.name = url, f"c{secrets.token_hex(4)}"
        self.session = AwsSession(REGION)
        self.session.call(
            "eks", "create_cluster", name=self.name, roleArn=ROLE, resourcesVpcConfig={"subnetIds": self.subnets(ZONES)}
        )
        self.control("faults", [])
        self.control("notices", [])

    def provider(self) -> AwsProvider:
        return AwsProvider("aws", CloudSettings(cloud="aws", cluster=self.name, region=REGION))

    def subnets(self, zones: tuple[str, ...]) -> list[str]:
        """One for each zone, of the network that is there; other tests make more, in zones that moto draws by lot."""
        subnets = self.session.call("ec2", "describe_subnets")["Subnets"]
        of_zones = {each["AvailabilityZone"]: each["SubnetId"] for each in subnets if each["DefaultForAz"]}
        return [of_zones[zone] for zone in zones]

    def node_group(self, pool: str | None, machine: str = "p5.48xlarge", *, most: int = 10, **more: Any) -> str:
        """Made as `longboat cluster up` makes them; gives the name of its Auto Scaling group."""
        body = {
            "clusterName": self.name,
            "nodegroupName": f"{pool or 'none'}-{secrets.token_hex(3)}",
            "subnets": self.subnets(more.pop("zones", ZONES)),
            "nodeRole": ROLE,
            "instanceTypes": [machine],
            "amiType": "AL2023_x86_64_NVIDIA",
            "scalingConfig": {"minSize": more.pop("least", 0), "maxSize": most, "desiredSize": 0},
            "labels": {**({"longboat.dev/pool": pool} if pool else {}), **more.pop("labels", {})},
            **more,
        }
        made = self.session.call("eks", "create_nodegroup", **body)["nodegroup"]
        return str(made["resources"]["autoScalingGroups"][0]["name"])

    def machine(self, zone: str, *, is_of_eks: bool) -> tuple[str, str]:
        """A node's machine: its security group, and its id."""
        (subnet,) = self.subnets((zone,))
        vpc = self.session.call("ec2", "describe_subnets", SubnetIds=[subnet])["Subnets"][0]["VpcId"]
        name = f"nodes-{secrets.token_hex(3)}"
        group = self.session.call("ec2", "create_security_group", GroupName=name, Description="d", VpcId=vpc)["GroupId"]
        tags = [{"Key": "eks:cluster-name" if is_of_eks else "team", "Value": self.name}]
        body = self.session.call(
            "ec2", "run_instances", ImageId="ami-12c6146b", MinCount=1, MaxCount=1, InstanceType="m5.large",
            SubnetId=subnet, SecurityGroupIds=[group],
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )  # fmt: skip
        return str(group), str(body["Instances"][0]["InstanceId"])

    def own_group(self, pool: str, machine: str) -> None:
        """A spot group that EKS knows nothing of, with the tags of the cluster-autoscaler."""
        name = f"{pool}-{secrets.token_hex(3)}"
        data = {"InstanceType": machine, "ImageId": "ami-12c6146b", "InstanceMarketOptions": {"MarketType": "spot"}}
        self.session.call("ec2", "create_launch_template", LaunchTemplateName=name, LaunchTemplateData=data)
        tags = {
            f"kubernetes.io/cluster/{self.name}": "owned",
            "k8s.io/cluster-autoscaler/node-template/label/longboat.dev/pool": pool,
        }
        self.session.call(
            "autoscaling",
            "create_auto_scaling_group",
            AutoScalingGroupName=name,
            LaunchTemplate={"LaunchTemplateName": name, "Version": "$Default"},
            MinSize=0,
            MaxSize=5,
            VPCZoneIdentifier=",".join(self.subnets(ZONES)),
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()],
        )

    def refuse(self, group: str, kind: str, zone: str | None, *, after: int = 0) -> None:
        code, words, is_answer = WORDS[kind]
        fault = {"group": group, "zone": zone, "code": code, "message": words, "is_answer": is_answer, "after": after}
        self.control("faults", [fault])

    def control(self, name: str, value: Any) -> None:
        request = urllib.request.Request(f"{self.url}/_longboat/{name}", json.dumps(value).encode(), method="POST")
        urllib.request.urlopen(request, timeout=30).close()

    def requests(self) -> list[str]:
        """What was asked since the last question."""
        with urllib.request.urlopen(f"{self.url}/_longboat/requests", timeout=30) as answer:
            asked: list[str] = json.load(answer)
        return asked
