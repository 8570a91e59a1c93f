"""Google's side of rights, simulated: which permissions a request needs, custom roles, and the policy of a project.

Permissions by operation are those of Google's documentation; who asks has those that were granted, nothing else.
"""

from __future__ import annotations

import re
from typing import Any

from tests.clouds.simulated_rest import Body, SimulatedRefusal

NUMBER = "123456789012"
_CLUSTERS = "container.projects.locations.clusters"
NEEDS = {
    f"{_CLUSTERS}.create": ("container.clusters.create", "iam.serviceAccounts.actAs"),
    f"{_CLUSTERS}.delete": ("container.clusters.delete",),
    f"{_CLUSTERS}.get": ("container.clusters.get",),
    f"{_CLUSTERS}.list": ("container.clusters.list",),
    f"{_CLUSTERS}.update": ("container.clusters.update",),
    f"{_CLUSTERS}.nodePools.create": ("container.clusters.update",),
    f"{_CLUSTERS}.nodePools.delete": ("container.clusters.update",),
    f"{_CLUSTERS}.nodePools.update": ("container.clusters.update",),
    f"{_CLUSTERS}.nodePools.setSize": ("container.clusters.update",),
    f"{_CLUSTERS}.nodePools.setAutoscaling": ("container.clusters.update",),
    "container.projects.locations.getServerConfig": ("container.clusters.list",),
    "container.projects.locations.operations.get": ("container.operations.get",),
    "container.projects.locations.operations.list": ("container.operations.list",),
    "compute.disks.aggregatedList": ("compute.disks.list",),
    "compute.disks.delete": ("compute.disks.delete",),
    "compute.addresses.aggregatedList": ("compute.addresses.list",),
    "compute.regionDisks.delete": ("compute.disks.delete",),
    "compute.firewalls.list": ("compute.firewalls.list",),
    "compute.forwardingRules.aggregatedList": ("compute.forwardingRules.list",),
    "compute.snapshots.delete": ("compute.snapshots.delete",),
    "compute.snapshots.list": ("compute.snapshots.list",),
    "file.projects.locations.instances.delete": ("file.instances.delete",),
    "file.projects.locations.instances.list": ("file.instances.list",),
    "compute.machineTypes.get": ("compute.machineTypes.get",),
    "compute.regions.get": ("compute.regions.get",),
    "compute.instanceGroups.get": ("compute.instanceGroups.get",),
    "compute.instanceGroups.setNamedPorts": ("compute.instanceGroups.update",),
    "compute.instanceGroupManagers.get": ("compute.instanceGroupManagers.get",),
    "compute.instanceGroupManagers.listManagedInstances": ("compute.instanceGroupManagers.get",),
    "compute.instanceGroupManagers.createInstances": ("compute.instanceGroupManagers.update",),
    "compute.instanceGroupManagers.deleteInstances": ("compute.instanceGroupManagers.update",),
    "compute.instanceGroupManagerResizeRequests.insert": ("compute.instanceGroupManagers.update",),
    "compute.instanceGroupManagerResizeRequests.cancel": ("compute.instanceGroupManagers.update",),
    "compute.instanceGroupManagerResizeRequests.delete": ("compute.instanceGroupManagers.update",),
    "compute.instanceGroupManagerResizeRequests.list": ("compute.instanceGroupManagers.get",),
    "iam.projects.roles.create": ("iam.roles.create",),
    "iam.projects.roles.get": ("iam.roles.get",),
    "iam.projects.roles.patch": ("iam.roles.update",),
    "iam.projects.roles.delete": ("iam.roles.delete",),
    "iam.projects.roles.undelete": ("iam.roles.undelete",),
    "cloudresourcemanager.projects.get": ("resourcemanager.projects.get",),
    "cloudresourcemanager.projects.getIamPolicy": ("resourcemanager.projects.getIamPolicy",),
    "cloudresourcemanager.projects.setIamPolicy": ("resourcemanager.projects.setIamPolicy",),
}


class SimulatedIam:
    def __init__(self) -> None:
        super().__init__()
        self.granted: set[str] | None = None  # permissions; None: all
        self.denied: list[str] = []
        self.used: set[str] = set()
        self.roles: dict[str, Body] = {}
        self.policy: Body = {
            "version": 1,
            "etag": "1",
            "bindings": [{"role": "roles/owner", "members": ["user:a@b.c"]}],
        }
        self.policy_changes_by_others = 0

    def need(self, operation: str) -> None:
        for permission in NEEDS[operation]:
            self.used.add(permission)
            if self.granted is not None and permission not in self.granted:
                self.denied.append(permission)
                words = f"Required '{permission}' permission for the project."
                raise SimulatedRefusal(403, {"code": 403, "message": words, "status": "PERMISSION_DENIED"})

    def rights_of(self, project: str, account: str) -> set[str]:
        """What a service account of the project's clusters may do; `account`: its uid."""
        pool = f"projects/{NUMBER}/locations/global/workloadIdentityPools/{project}.svc.id.goog"
        member = f"principal://iam.googleapis.com/{pool}/kubernetes.serviceaccount.uid/{account}"
        mine = [each["role"] for each in self.policy["bindings"] if member in each["members"]]
        return {permission for name in mine for permission in self.roles[name]["includedPermissions"]}

    def answer_iam(self, method: str, path: str, body: Body) -> Body | None:
        """None: it is no request about rights."""
        match = re.fullmatch(r"/v3/(projects/[^/:]+)(?::(\w+))?", path)
        if match:
            return self._project(match[2] or "", body)
        match = re.fullmatch(r"/v1/(projects/[^/]+/roles)(?:/([^/:]+))?(:undelete)?", path)
        if match is None:
            return None
        if method == "POST" and not match[2]:
            name = f"{match[1]}/{body['roleId']}"
            if name in self.roles:  # also a deleted one
                raise SimulatedRefusal(409, {"code": 409, "message": "already exists", "status": "ALREADY_EXISTS"})
            self.roles[name] = {"name": name, **body["role"]}
            return self.roles[name]
        role = self.roles.get(f"{match[1]}/{match[2]}")
        if role is None:
            raise SimulatedRefusal(404, {"code": 404, "message": "no such role", "status": "NOT_FOUND"})
        if match[3]:
            role.pop("deleted", None)
        elif method == "DELETE":
            role["deleted"] = True
        elif method == "PATCH":
            role |= body
        return role

    def _project(self, verb: str, body: Body) -> Body:
        if verb == "":
            return {"name": f"projects/{NUMBER}", "projectId": "lab-1"}
        if verb == "getIamPolicy":
            assert body["options"]["requestedPolicyVersion"] == 3
            shown: dict[str, Any] = {**self.policy}
            if self.policy_changes_by_others:
                self.policy_changes_by_others -= 1
                self.policy = {**self.policy, "etag": f"{self.policy['etag']}x"}
            return shown
        if body["policy"].get("etag") != self.policy["etag"]:
            raise SimulatedRefusal(409, {"code": 409, "message": "concurrent policy changes", "status": "ABORTED"})
        self.policy = {**body["policy"], "etag": f"{self.policy['etag']}+"}
        return self.policy
