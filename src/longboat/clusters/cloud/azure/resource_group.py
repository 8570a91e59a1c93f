"""The resource group of a cluster on Azure: looked at, deployed into, followed, deleted. Decides nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from longboat.clouds.azure.errors import answer_error
from longboat.clouds.azure.session import CLUSTERS, COMPUTE, DISKS, SKUS, STORAGE, AzureSession, group_path
from longboat.clouds.rest import Body, RestFault, fault_of
from longboat.clusters.cloud.aws.stack import Listen, ResourceEvent, ResourceState
from longboat.clusters.cloud.azure.aks_view import AksView, read_aks
from longboat.clusters.cloud.azure.autoscaler_rights import AzureAutoscalerRights
from longboat.clusters.cloud.azure.decide import BUSY_STATES, DIGEST_TAG, DeploymentView, GroupView, SizeView
from longboat.clusters.cloud.azure.template import CLUSTER_TAG
from longboat.core.errors import EngineError

RESOURCES = "2021-04-01"
SUBSCRIPTIONS = "2022-12-01"
SUBSCRIPTION_VARIABLE = "AZURE_SUBSCRIPTION_ID"
DEPLOYMENT = "longboat"
LOOKS_S = (1.0, 2.0, 4.0, 8.0)
"""Between two looks: AKS takes five minutes and more."""
CALM_LOOKS = 5
"""Looks in a row, half a minute, after which what Azure does not call `Deleting` is not going: it shows that late."""
CLAIM_TAG = "kubernetes.io-created-for-pvc-name"
_STATES: dict[str, ResourceState] = {"Succeeded": "done", "Failed": "failed", "Canceled": "failed"}


def find_subscription(session: AzureSession) -> str:
    """That of the environment, or the only one that there is. Raises LongboatError."""
    named = os.environ.get(SUBSCRIPTION_VARIABLE)
    if named:
        return named
    with _errors("list subscriptions"):
        known = [each for each in session.items("/subscriptions", SUBSCRIPTIONS) if each.get("state") == "Enabled"]
    if len(known) != 1:
        raise EngineError(
            f"{len(known)} subscriptions of Azure are yours, and none is named", hint=f"set {SUBSCRIPTION_VARIABLE}"
        )
    return str(known[0]["subscriptionId"])


class ClusterGroup:
    """Raises LongboatError with Azure's words."""

    def __init__(self, session: AzureSession, subscription: str, cluster: str) -> None:
        self._session, self.subscription, self.cluster = session, subscription, cluster
        self.name = f"longboat-{cluster}"
        self.path = group_path(subscription, self.name)
        self._deployment = f"{self.path}/providers/Microsoft.Resources/deployments/{DEPLOYMENT}"
        self._aks = f"{self.path}/providers/Microsoft.ContainerService/managedClusters/{cluster}"

    def look(self) -> GroupView | None:
        body = self._find(self.path, RESOURCES)
        if body is None:
            return None
        state = (body.get("properties") or {}).get("provisioningState") or ""
        return GroupView(state=state, tags=dict(body.get("tags") or {}))

    def deployment(self) -> DeploymentView | None:
        body = self._find(self._deployment, RESOURCES)
        if body is None:
            return None
        properties = body.get("properties") or {}
        error = fault_of(200, properties["error"]).message if properties.get("error") else ""
        return DeploymentView(state=properties.get("provisioningState") or "", error=error)

    def output(self, name: str) -> str:
        """Of the deployment that came about. Raises EngineError where it has none."""
        body = self._find(self._deployment, RESOURCES) or {}
        value = (((body.get("properties") or {}).get("outputs") or {}).get(name) or {}).get("value")
        if not value:
            raise EngineError(f"the deployment of {self.cluster} tells no {name}", hint="the same command again")
        return str(value)

    def rights(self) -> AzureAutoscalerRights:
        return AzureAutoscalerRights(self._session, self.subscription, self.cluster)

    def see_cluster(self) -> AksView | None:
        body = self._find(self._aks, CLUSTERS)
        return None if body is None else read_aks(body)

    def deploy(self, template: Body, parameters: Mapping[str, Any], region: str, tags: Mapping[str, str]) -> bool:
        """Begin; False: somebody else's deployment goes on, maybe of another file. `tags`: of the group."""
        with _errors("make a resource group"):
            # Without the digest: until it has come about, nothing is known to be as the file says.
            body: Body = {"location": region, "tags": self._with_others({**tags, CLUSTER_TAG: self.cluster})}
            self._session.send("PUT", self.path, RESOURCES, body=body)
        values = {name: {"value": value} for name, value in parameters.items()}
        properties = {"mode": "Incremental", "template": template, "parameters": values}
        try:
            self._session.send("PUT", self._deployment, RESOURCES, body={"properties": properties})
        except RestFault as fault:
            if fault.code in ("DeploymentActive", "DeploymentBeingDeleted"):
                return False
            raise answer_error(fault, "deploy the cluster") from None
        return True

    def mark(self, tags: Mapping[str, str], digest: str) -> None:
        """Write down what was deployed, after it has come about."""
        with _errors("write tags"):
            body = {"tags": self._with_others({**tags, CLUSTER_TAG: self.cluster, DIGEST_TAG: digest})}
            self._session.send("PATCH", self.path, RESOURCES, body=body)

    def _with_others(self, tags: Mapping[str, str]) -> dict[str, str]:
        """With what policies and people have added since: Azure replaces all tags at once. Case makes no difference
        in names of tags.
        """
        there = self.look()
        own = {name.lower() for name in (*tags, DIGEST_TAG)}
        others = there.tags if there is not None else {}
        return {**{name: value for name, value in others.items() if name.lower() not in own}, **tags}

    def follow(self, listen: Listen) -> None:
        """Tell what becomes of each resource until the deployment has ended. Raises EngineError with what failed."""
        seen: dict[str, str] = {}
        turn = 0
        while True:
            view = self.deployment()
            for operation in self._operations() if view is not None else ():
                self._tell(operation, seen, listen)
            if view is None or view.state not in BUSY_STATES:
                break
            time.sleep(LOOKS_S[min(turn, len(LOOKS_S) - 1)])
            turn += 1
        if view is None or view.state != "Succeeded":
            words = (view.error or view.state) if view else "the deployment is gone"
            raise EngineError(f"{self.cluster}: Azure could not do it: {words}", hint="then up again, or down")

    def _operations(self) -> list[Body]:
        with _errors("follow the deployment"):
            return [*self._session.items(f"{self._deployment}/operations", RESOURCES)]

    def _tell(self, operation: Body, seen: dict[str, str], listen: Listen) -> None:
        properties = operation.get("properties") or {}
        target, state = properties.get("targetResource") or {}, properties.get("provisioningState") or ""
        name = target.get("resourceName")
        if name and seen.get(operation["operationId"]) != state:
            seen[operation["operationId"]] = state
            error = (properties.get("statusMessage") or {}).get("error")
            kind = str(target.get("resourceType") or "").removeprefix("Microsoft.")
            text = fault_of(200, error).message if error else ""
            word = _STATES.get(state, "started")
            listen(ResourceEvent(resource=name, type=kind, state=word, at=time.time(), text=text))

    def delete_pool(self, name: str, listen: Listen) -> None:
        path = f"{self._aks}/agentPools/{name}"
        order = self._order(path, CLUSTERS, f"delete the pool {name}")
        event = ResourceEvent(resource=name, type="pool", state="started", at=time.time())
        self._until_gone(path, CLUSTERS, event, listen, order)

    def _order(self, path: str, version: str, words: str) -> str:
        """Delete; returns the address that tells what becomes of it, if Azure gives one."""
        try:
            headers = self._session.send("DELETE", path, version).headers
        except RestFault as fault:
            if fault.status == 404 or fault.code == "ResourceGroupBeingDeleted":
                return ""
            raise answer_error(fault, words) from None
        return headers.get("location") or headers.get("azure-asyncoperation") or ""

    def _until_gone(self, path: str, version: str, event: ResourceEvent, listen: Listen, order: str) -> None:
        """Raises EngineError where Azure has given it up."""
        listen(event)
        turn = calm = 0
        while (body := self._find(path, version)) is not None:
            state = (body.get("properties") or {}).get("provisioningState") or ""
            calm = 0 if state == "Deleting" else calm + 1
            if calm > CALM_LOOKS:
                words = self._words(order) or (f"its state is {state}" if state else "it is still there")
                hint = "a lock, or something that is in use: the portal's activity log names it; then the same again"
                raise EngineError(f"Azure did not delete the {event.type} {event.resource}: {words}", hint=hint)
            time.sleep(LOOKS_S[min(turn, len(LOOKS_S) - 1)])
            turn += 1
        listen(ResourceEvent(resource=event.resource, type=event.type, state="done", at=time.time()))

    def _words(self, order: str) -> str:
        """Why an order came to nothing."""
        try:
            error = self._session.follow(order).body.get("error") if order else None
        except RestFault as fault:
            return fault.message
        return fault_of(200, error).message if isinstance(error, dict) else ""

    def delete(self, listen: Listen) -> None:
        """With all that is in it, and wait until it is gone; where that had begun, too."""
        order = self._order(self.path, RESOURCES, f"delete the resource group {self.name}")
        event = ResourceEvent(resource=self.name, type="resource group", state="started", at=time.time())
        self._until_gone(self.path, RESOURCES, event, listen, order)

    def claim_data(self, node_group: str) -> list[str]:
        """What was made for claims: AKS keeps it in its own group, which goes with the cluster.

        Nothing but the drivers of disks and files makes snapshots and storage accounts there. A disk without a system
        that no claim made was put there by somebody: AKS may use disks of that group only, unless it is given rights.
        The group goes before the cluster does, and one that could not be made never had it.
        """
        base = f"{group_path(self.subscription, node_group)}/providers"
        disks = self._found(f"{base}/Microsoft.Compute/disks", DISKS)
        snapshots = self._found(f"{base}/Microsoft.Compute/snapshots", DISKS)
        accounts = self._found(f"{base}/Microsoft.Storage/storageAccounts", STORAGE)
        return [
            *sorted(str(disk["name"]) for disk in disks if _is_data(disk)),
            *sorted(f"snapshot {each['name']}" for each in snapshots),
            *sorted(f"file shares in {each['name']}" for each in accounts),
        ]

    def of_others(self) -> list[str]:
        """What somebody has put into the group, which goes with all that is in it."""
        query = {"$filter": f"resourceGroup eq '{self.name}'"}
        with _errors("list resources"):
            bodies = [*self._session.items(f"/subscriptions/{self.subscription}/resources", RESOURCES, query)]
        return sorted(
            f"{each.get('name')} ({str(each.get('type') or '').removeprefix('Microsoft.')})"
            for each in bodies
            if (each.get("tags") or {}).get(CLUSTER_TAG) != self.cluster
            and str(each.get("id")).lower() != self._aks.lower()  # whoever took its tag away does not own it
        )

    def _found(self, path: str, version: str) -> list[Body]:
        """All of a kind; none in a group that is not there."""
        try:
            return [*self._session.items(path, version)]
        except RestFault as fault:
            if fault.status == 404:
                return []
            raise answer_error(fault, f"see {path.rpartition('/')[2]}") from None

    def leftovers(self, node_group: str) -> list[str]:
        """What carries the cluster's tag, and AKS's own group."""
        query = {"$filter": f"tagName eq '{CLUSTER_TAG}' and tagValue eq '{self.cluster}'"}
        with _errors("list resources"):
            path = f"/subscriptions/{self.subscription}/resources"
            names = [str(each.get("id")) for each in self._session.items(path, RESOURCES, query)]
        if node_group and self._find(group_path(self.subscription, node_group), RESOURCES) is not None:
            names.append(f"the resource group {node_group}")
        return names

    def versions(self, region: str) -> list[str]:
        place = f"/subscriptions/{self.subscription}/providers/Microsoft.ContainerService/locations/{region}"
        with _errors("see AKS's versions"):
            body = self._session.send("GET", f"{place}/kubernetesVersions", CLUSTERS).body
        return [str(each["version"]) for each in body.get("values") or ()]

    def processors_left(self, region: str) -> dict[str, float]:
        """Family of machine types -> processors that the subscription may still have."""
        path = f"/subscriptions/{self.subscription}/providers/Microsoft.Compute/locations/{region}/usages"
        with _errors("see quotas"):
            usages = [*self._session.items(path, COMPUTE)]
        return {each["name"]["value"]: each.get("limit", 0) - each.get("currentValue", 0) for each in usages}

    def sizes(self, region: str) -> dict[str, SizeView]:
        path = f"/subscriptions/{self.subscription}/providers/Microsoft.Compute/skus"
        with _errors("see machine types"):
            bodies = [*self._session.items(path, SKUS, {"$filter": f"location eq '{region}'"})]
        return {each["name"]: _size(each) for each in bodies if each.get("resourceType") == "virtualMachines"}

    def user_kubeconfig(self) -> str:
        """AKS's kubeconfig for users, in base64: it holds secrets."""
        with _errors(f"have credentials of the cluster {self.cluster}"):
            body = self._session.send("POST", f"{self._aks}/listClusterUserCredential", CLUSTERS).body
        return str(((body.get("kubeconfigs") or [{}])[0]).get("value") or "")

    def _find(self, path: str, version: str) -> Body | None:
        try:
            return self._session.send("GET", path, version).body
        except RestFault as fault:
            if fault.status == 404:
                return None
            raise answer_error(fault, f"see {path.rpartition('/')[2]}") from None


def _is_data(disk: Body) -> bool:
    """Not of a machine itself, whose disk has a system."""
    return CLAIM_TAG in (disk.get("tags") or {}) or not (disk.get("properties") or {}).get("osType")


def _size(body: Body) -> SizeView:
    places = body.get("locationInfo") or [{}]
    limits = body.get("restrictions") or ()
    closed = {zone for each in limits for zone in (each.get("restrictionInfo") or {}).get("zones") or ()}
    return SizeView(
        family=body.get("family") or "",
        zones=tuple(sorted(set(places[0].get("zones") or ()) - closed)),
        is_refused=any(each.get("type") == "Location" for each in limits),
    )


@contextmanager
def _errors(operation: str) -> Iterator[None]:
    try:
        yield
    except RestFault as fault:
        raise answer_error(fault, operation) from None
