"""A simulated Azure for clusters: resource groups, a deployment that goes on for a while, AKS, disks, quotas.

Requests about AKS and machines are held against Azure's own client libraries, and so is the cluster in a template, with
its parameters put in. Those about groups and deployments are not: their library was not looked at.
"""

from __future__ import annotations

import base64
import re
from typing import Any

import jsonschema
import yaml

from tests.clouds.azure.simulated_arm import ArmResources, outputs_of
from tests.clouds.azure.simulated_azure import LOCATION, SUBSCRIPTION
from tests.clouds.simulated_rest import Body, SimulatedRefusal, SimulatedRest
from tests.clusters.cloud import servers

ROOT = f"/subscriptions/{SUBSCRIPTION}"
GROUP = f"{ROOT}/resourceGroups/longboat-lab"
DEPLOYMENT = f"{GROUP}/providers/Microsoft.Resources/deployments/longboat"
AKS = f"{GROUP}/providers/Microsoft.ContainerService/managedClusters/lab"
NODE_GROUP = f"MC_longboat-lab_lab_{LOCATION}"
NODES = f"{ROOT}/resourceGroups/{NODE_GROUP}"
RESOURCES = {
    ("GET", "/subscriptions"): "2022-12-01",
    **{(method, GROUP): "2021-04-01" for method in ("GET", "PUT", "PATCH", "DELETE")},
    **{(method, DEPLOYMENT): "2021-04-01" for method in ("GET", "PUT")},
    ("GET", f"{DEPLOYMENT}/operations"): "2021-04-01",
    ("GET", NODES): "2021-04-01",
    ("GET", f"{NODES}/providers/Microsoft.Storage/storageAccounts"): "2023-01-01",
    ("GET", f"{ROOT}/resources"): "2021-04-01",
    ("GET", f"{ROOT}/operationresults/deletion"): "2021-04-01",
}
SIZES = (
    ("Standard_D2s_v5", "standardDSv5Family", False),
    ("Standard_D4s_v5", "standardDSv5Family", False),
    ("Standard_D8s_v5", "standardDSv5Family", True),
    ("Standard_NC4as_T4_v3", "standardNCASv3_T4Family", False),
)
"""Name, family, whether the subscription may not have it."""
PARTS = {
    "vnetSubnetID": "Microsoft.Network/virtualNetworks/subnets/join/action",
    "proximityPlacementGroupID": "Microsoft.Compute/proximityPlacementGroups/write",
    "capacityReservationGroupID": "Microsoft.Compute/capacityReservationGroups/deploy/action",
}
"""What Azure asks for parts of a pool that exist."""
LOOKS = 2  # after so many looks what goes on has ended


class SimulatedAks(ArmResources, SimulatedRest):
    def __init__(self) -> None:
        super().__init__()
        self.described = [
            servers.azure_description("containerservice", "ManagedCluster"),
            servers.azure_description("compute"),
        ]
        self.group: Body | None = None
        self.deployment: Body | None = None
        self.cluster: Body | None = None
        self.claims: list[str] = []
        self.disks: list[str] = []  # that a person made in the group of the nodes
        self.snapshots: list[str] = []
        self.accounts: list[str] = []  # of file shares
        self.has_nodes = True  # AKS's own group is there
        self.left: list[str] = []
        self.others: list[Body] = []  # in the cluster's group, made by somebody else
        self.takes_any_name = False
        self.name = "lab"
        self.fails = ""
        self.is_locked = False
        self.keeps = ""  # why Azure gives a deletion up, after a while
        self.deployed = 0
        self.looks = 0
        self.user: Body = {"token": "secret-of-aks"}
        self.usages = {"standardDSv5Family": (0, 100), "cores": (90, 100)}

    def give_token(self, path: str, query: dict[str, str], data: bytes) -> Body | None:
        if path != "/identity":
            return None
        return {
            "access_token": self.token,
            "expires_on": "9999999999",
            "resource": query["resource"],
            "token_type": "Bearer",
        }

    def answer(
        self, method: str, path: str, query: dict[str, str], body: Body | None, headers: Any
    ) -> tuple[int, Body, dict[str, str]]:
        if self.takes_any_name:  # of a cluster: it is lab
            self.name = (re.findall(r"/resourceGroups/longboat-([a-z0-9-]+)", path) or [self.name])[0]
            path = path.replace(f"longboat-{self.name}", "longboat-lab")
            path = path.replace(f"managedClusters/{self.name}", "managedClusters/lab")
        self.need_of(method, path)
        kept = self.answer_resource(method, path, query)
        if kept is not None:
            return 200, kept, {}
        if (method, path) in RESOURCES:
            if RESOURCES[method, path] != query.get("api-version"):
                self.violations.append(f"{method} {path} {query}")
            order = f"{self.url}{ROOT}/operationresults/deletion?api-version=2021-04-01"
            headers = {"Location": order} if method == "DELETE" else {}
            return 200, self._answer_resources(method, path, query, body or {}), headers
        known = [
            template
            for described in self.described
            for each, template, version in described["operations"]
            if each == method and version == query.get("api-version")
            and re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), path, re.IGNORECASE)
        ]  # fmt: skip
        if not known:
            self.violations.append(f"{method} {path} {query}")
        return 200, self._answer_described(method, path), {}

    def _answer_resources(self, method: str, path: str, query: dict[str, str], body: Body) -> Body:
        if path == "/subscriptions":
            return {"value": [{"subscriptionId": SUBSCRIPTION, "state": "Enabled"}]}
        if path == f"{ROOT}/resources":
            if query["$filter"] == f"resourceGroup eq 'longboat-{self.name}'":
                own = [{**each, "id": path} for path, each in self.resources.items() if path.startswith(GROUP)]
                own += [{**self.cluster, "id": AKS, "name": "lab"}] if self.cluster else []
                tracked = [each for each in own if "tags" in each]
                return {"value": [*tracked, *self.others]}
            if query["$filter"] != f"tagName eq 'longboat-cluster' and tagValue eq '{self.name}'":
                self.violations.append(str(query))
            return {"value": [{"id": each} for each in self.left]}
        if path.startswith(DEPLOYMENT):
            return self._answer_deployment(method, path, body)
        if path.endswith("/operationresults/deletion"):
            raise SimulatedRefusal(409, {"code": "Conflict", "message": self.keeps})
        if path.endswith("/storageAccounts"):
            _found(self.group if self.has_nodes else None)
            return {"value": [{"name": each} for each in self.accounts]}
        if path == NODES:
            return _found(self.cluster)
        if method == "PUT" and self.group is None:
            self.group = {"name": "longboat-lab", "properties": {"provisioningState": "Succeeded"}}
        group = _found(self.group)
        if method in ("PUT", "PATCH"):
            group["tags"] = body["tags"]
        elif method == "DELETE":
            if self.is_locked:
                raise SimulatedRefusal(409, {"code": "ScopeLocked", "message": "The scope is locked: 'keep'"})
            group["properties"]["provisioningState"], self.looks = "Deleting", 0
        elif group["properties"]["provisioningState"] == "Deleting":
            self.looks += 1
            if self.looks >= LOOKS and self.keeps:
                group["properties"]["provisioningState"] = "Succeeded"
            elif self.looks >= LOOKS:
                self.group = self.deployment = self.cluster = None
                self.forget_group("longboat-lab")
                self.forget_group(NODE_GROUP)
        return group

    def _answer_deployment(self, method: str, path: str, body: Body) -> Body:
        if method == "PUT":
            if self.deployment and self.deployment["properties"]["provisioningState"] == "Running":
                raise SimulatedRefusal(409, {"code": "DeploymentActive", "message": "The deployment is still active"})
            self.deployed += 1
            self.looks = 0
            if body["properties"]["mode"] != "Incremental":
                self.violations.append(body["properties"]["mode"])
            expressions = self.deploy(body["properties"], SUBSCRIPTION, "longboat-lab", self._make_cluster)
            outputs = outputs_of(body["properties"]["template"], expressions)
            self.deployment = {"name": "longboat", "properties": {"provisioningState": "Running", "outputs": outputs}}
            return self.deployment
        deployment = _found(self.deployment)
        if not path.endswith("/operations"):
            self.looks += 1
            if self.looks >= LOOKS and deployment["properties"]["provisioningState"] == "Running":
                self._end(deployment["properties"])
            return deployment
        state = deployment["properties"]["provisioningState"]
        target = {"resourceName": "lab", "resourceType": "Microsoft.ContainerService/managedClusters"}
        return {"value": [{"operationId": "1", "properties": {"provisioningState": state, "targetResource": target}}]}

    def _end(self, properties: Body) -> None:
        assert self.cluster is not None
        state = "Failed" if self.fails else "Succeeded"
        properties["provisioningState"] = self.cluster["properties"]["provisioningState"] = state
        if self.fails:
            part = {"code": "QuotaExceeded", "message": self.fails}
            properties["error"] = {"code": "DeploymentFailed", "message": "At least one failed", "details": [part]}
            self.fails = ""
        for pool in self.cluster["properties"]["agentPoolProfiles"]:
            pool["provisioningState"] = state

    def _make_cluster(self, resource: Body) -> None:
        for pool in resource["properties"]["agentPoolProfiles"]:
            for name, action in PARTS.items():
                if name in pool:
                    self.need(action, pool[name])
        del resource["type"], resource["apiVersion"], resource["name"]
        described = self.described[0]
        schema = {**described["bodies"]["ManagedCluster"], "$defs": described["$defs"]}
        self.violations += [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(resource)]
        before = self.cluster["properties"]["agentPoolProfiles"] if self.cluster else []
        names = {pool["name"] for pool in resource["properties"]["agentPoolProfiles"]}
        resource["properties"] |= {
            "provisioningState": "Creating", "fqdn": "lab.example", "nodeResourceGroup": NODE_GROUP,
            "currentKubernetesVersion": f"{resource['properties']['kubernetesVersion']}.2",
        }  # fmt: skip
        resource["properties"]["agentPoolProfiles"] += [pool for pool in before if pool["name"] not in names]
        self.cluster = resource

    def _answer_described(self, method: str, path: str) -> Body:
        if path.endswith("/listClusterUserCredential"):
            _found(self.cluster)
            entry = {"server": "https://lab.example:443", "certificate-authority-data": "YQ=="}
            body = {"clusters": [{"cluster": entry}], "users": [{"user": self.user}]}
            return {
                "kubeconfigs": [{"name": "user", "value": base64.b64encode(yaml.safe_dump(body).encode()).decode()}]
            }
        match = re.fullmatch(rf"{AKS}/agentPools/(\w+)", path)
        if match:
            pools = _found(self.cluster)["properties"]["agentPoolProfiles"]
            pool = next((each for each in pools if each["name"] == match[1]), None)
            if method == "DELETE" and not self.keeps:
                pools.remove(pool)
            return {"name": match[1], "properties": _found(pool)}
        if path == AKS:
            return _found(self.cluster)
        if path.endswith("/kubernetesVersions"):
            return {"values": [{"version": "1.35"}, {"version": "1.34"}]}
        if path.endswith("/usages"):
            pairs = self.usages.items()
            return {
                "value": [{"name": {"value": key}, "currentValue": used, "limit": most} for key, (used, most) in pairs]
            }
        if path.endswith("/skus"):
            return {"value": [_size(*each) for each in SIZES]}
        _found(self.group if self.has_nodes else None)
        if path.endswith("/snapshots"):
            return {"value": [{"name": each} for each in self.snapshots]}
        disks = [{"name": name, "tags": {"kubernetes.io-created-for-pvc-name": name}} for name in self.claims]
        disks += [{"name": name} for name in self.disks]
        return {"value": [*disks, {"name": "node-disk", "properties": {"osType": "Linux"}}]}


def _found(body: Body | None) -> Body:
    if body is None:
        raise SimulatedRefusal(404, {"code": "ResourceNotFound", "message": "not found"})
    return body


def _size(name: str, family: str, is_closed: bool) -> Body:
    place = [{"location": LOCATION, "zones": ["1", "2"]}]
    body = {"resourceType": "virtualMachines", "name": name, "family": family, "locationInfo": place}
    return {**body, "restrictions": [{"type": "Location"}] if is_closed else []}
