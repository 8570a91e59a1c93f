"""Resources of a simulated Azure that a deployment makes beside AKS: identities, roles, their assignments, deployments
into other places. Each is made after what it depends on, with the rights of whoever deploys.

Written from Azure's documentation; held against no library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.clouds.azure.arm_rights import ArmRights, Assignment, action_of
from tests.clouds.azure.arm_template import Expressions
from tests.clouds.simulated_rest import Body, SimulatedRefusal

IDENTITIES = "Microsoft.ManagedIdentity/userAssignedIdentities"
ISSUER = "https://westeurope.oic.prod-aks.azure.com/lab/"


class ArmResources(ArmRights):
    def __init__(self) -> None:
        super().__init__()
        self.resources: dict[str, Body] = {}

    def rights_of(self, client: str) -> list[Assignment]:
        """What the identity with this client id may do."""
        (identity,) = (each for each in self.resources.values() if each["properties"].get("clientId") == client)
        rights = []
        for path, each in self.resources.items():
            if each["properties"].get("principalId") == identity["properties"]["principalId"] and "/role" in path:
                role = self.resources[each["properties"]["roleDefinitionId"]]["properties"]
                scope = path.rpartition("/providers/Microsoft.Authorization/")[0]
                assert any(scope.startswith(each) for each in role["assignableScopes"]), scope
                rights.append((scope, tuple(role["permissions"][0]["actions"])))
        return rights

    def deploy(self, properties: Body, subscription: str, group: str, make: Callable[[Body], None]) -> Expressions:
        """`make`: of resources that are not kept here, filled; gives how outputs are filled."""
        values = {name: each["value"] for name, each in (properties.get("parameters") or {}).items()}
        expressions = Expressions(subscription, group, values, self._reference)
        waiting = [*properties["template"]["resources"]]
        place = f"/subscriptions/{subscription}" + (f"/resourceGroups/{group}" if group else "")
        made: set[str] = set()
        while waiting:
            ready = [each for each in waiting if set(expressions.fill(each.get("dependsOn") or [])) <= made]
            assert ready, f"what these depend on is not in the template: {[each['name'] for each in waiting]}"
            for each in ready:
                waiting.remove(each)
                made.add(self._make(expressions.fill(each), place, subscription, make))
        return expressions

    def _make(self, resource: Body, place: str, subscription: str, make: Callable[[Body], None]) -> str:
        kind, names = resource["type"], resource["name"].split("/")
        namespace, *kinds = kind.split("/")
        tail = "/".join(f"{each}/{name}" for each, name in zip(kinds, names, strict=True))
        is_elsewhere = kind == "Microsoft.Resources/deployments" and "subscriptionId" in resource
        if "resourceGroup" in resource:
            place = f"/subscriptions/{subscription}/resourceGroups/{resource['resourceGroup']}"
        elif is_elsewhere:
            place = f"/subscriptions/{resource['subscriptionId']}"
        path = f"{resource.get('scope') or place}/providers/{namespace}/{tail}"
        self.need(f"{kind}/write", path)
        if kind == "Microsoft.Resources/deployments":
            group = "" if is_elsewhere else resource["resourceGroup"]
            self.deploy(resource["properties"], subscription, group, make)
            self.resources[path] = {"id": path, "properties": {"provisioningState": "Succeeded"}}
            if not is_elsewhere:  # depended on by the path in the template's own subscription
                return path
        elif kind == "Microsoft.ContainerService/managedClusters":
            make(resource)
        else:
            properties = {**resource.get("properties", {})}
            if kind == IDENTITIES:
                properties |= {"principalId": f"principal-of-{names[0]}", "clientId": f"client-of-{names[0]}"}
            tags = {"tags": resource["tags"]} if "tags" in resource else {}
            self.resources[path] = {"id": path, "name": names[-1], "properties": properties, **tags}
        return path

    def _reference(self, path: str) -> Body:
        if "/managedClusters/" in path:
            return {"oidcIssuerProfile": {"issuerURL": ISSUER}, "fqdn": "lab.example"}
        self.need(action_of("GET", path), path)
        properties: Body = self.resources[path]["properties"]
        return properties

    def answer_resource(self, method: str, path: str, query: dict[str, str]) -> Body | None:
        """None: it is none of these."""
        kind = path.rpartition("/providers/Microsoft.Authorization/")[2]
        if kind in ("roleDefinitions", "roleAssignments") and method == "GET":
            mine = [each for key, each in self.resources.items() if f"/Microsoft.Authorization/{kind}/" in key]
            return {"value": mine}
        is_kept = any(part in path for part in ("/Microsoft.Authorization/", "-rights"))
        if not is_kept:
            return None
        if path not in self.resources:
            raise SimulatedRefusal(404, {"code": "ResourceNotFound", "message": "not found"})
        if method == "DELETE":
            if any(each["properties"].get("roleDefinitionId") == path for each in self.resources.values()):
                raise SimulatedRefusal(400, {"code": "RoleDefinitionHasAssignments", "message": "it is assigned"})
            return self.resources.pop(path)
        return self.resources[path]

    def forget_group(self, group: str) -> None:
        """What goes with a resource group."""
        self.resources = {
            path: each for path, each in self.resources.items() if f"/resourceGroups/{group}/" not in path
        }


def outputs_of(template: Body, expressions: Expressions) -> Body:
    outputs: dict[str, Any] = template.get("outputs") or {}
    return {name: {**each, "value": expressions.fill(each["value"])} for name, each in outputs.items()}
