"""The autoscaler's roles on a subscription, which outlive the resource group of their cluster: found and deleted."""

from __future__ import annotations

from longboat.clouds.azure.errors import answer_error
from longboat.clouds.azure.session import AzureSession
from longboat.clouds.rest import Body, RestFault
from longboat.clusters.cloud.azure.autoscaler_template import DEPLOYMENT_VERSION, ROLE_VERSION, rights_name
from longboat.clusters.cloud.azure.permissions import autoscaler_roles


class AzureAutoscalerRights:
    """Raises LongboatError with Azure's words."""

    def __init__(self, session: AzureSession, subscription: str, cluster: str) -> None:
        self._session, self._subscription, self.cluster = session, f"/subscriptions/{subscription}", cluster
        self._names = {f"{role.name}-{subscription}" for role in autoscaler_roles(cluster)}
        self._deployment = f"{self._subscription}/providers/Microsoft.Resources/deployments/{rights_name(cluster)}"

    def remove(self) -> None:
        """Assignments, then roles, then the deployment that made them: it says, to the last, that there are some."""
        if self._send("GET", self._deployment, DEPLOYMENT_VERSION) is None:
            return
        roles = [
            str(role["id"])
            for role in self._items("roleDefinitions", {"$filter": "type eq 'CustomRole'"})
            if (role.get("properties") or {}).get("roleName") in self._names
        ]
        wanted = {role.lower() for role in roles}
        for each in self._items("roleAssignments", {}):
            if str((each.get("properties") or {}).get("roleDefinitionId", "")).lower() in wanted:
                self._send("DELETE", str(each["id"]), ROLE_VERSION)
        for role in roles:
            self._send("DELETE", role, ROLE_VERSION)
        self._send("DELETE", self._deployment, DEPLOYMENT_VERSION)

    def _items(self, kind: str, query: dict[str, str]) -> list[Body]:
        path = f"{self._subscription}/providers/Microsoft.Authorization/{kind}"
        try:
            return [*self._session.items(path, ROLE_VERSION, query)]
        except RestFault as fault:
            raise answer_error(fault, f"list {kind}") from None

    def _send(self, method: str, path: str, version: str) -> Body | None:
        """None: there is no such thing."""
        try:
            return self._session.send(method, path, version).body
        except RestFault as fault:
            if fault.status == 404:
                return None
            verb = "see" if method == "GET" else "delete"
            raise answer_error(fault, f"{verb} {path.rpartition('/providers/')[2]}") from None
