"""Requests about the scale sets of a cluster: reading them and their machines, changing them, errors by kind.

What is asked for and why is the provider's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime

from longboat.autoscaler.model.provider_settings import CloudSettings
from longboat.autoscaler.providers.azure.errors import code_of_status, kind_of
from longboat.autoscaler.providers.azure.machines import VmSize, read_size
from longboat.autoscaler.providers.azure.scale_sets import (
    AKS_POOL,
    CLUSTER_TAG,
    ScaleSet,
    SetFacts,
    SetMachine,
    ended,
    facts_of_pool,
    facts_of_tags,
    read_machine,
    read_set,
)
from longboat.autoscaler.providers.provider import (
    ProviderError,
)
from longboat.clouds.azure.session import CLUSTERS, COMPUTE, SKUS, AzureSession, group_path
from longboat.clouds.rest import Body, RestAnswer, RestFault

SETS = "/providers/Microsoft.Compute/virtualMachineScaleSets"
UNKNOWN_S = 600.0  # so long what AKS says about its pools is believed
_PERMISSIONS = "docs/autoscaler.md, azure, lists the rights that it needs"


class SetRequests:
    def __init__(self, name: str, settings: CloudSettings) -> None:
        self.name, self.settings = name, settings
        self.session = AzureSession()
        self._subscription = settings.subscription or os.environ.get("AZURE_SUBSCRIPTION_ID", "")
        self._cluster: tuple[float, Body | None] | None = None

    def forget_cluster(self) -> None:
        """AKS is asked anew about its pools."""
        self._cluster = None

    def _aks(self) -> Body | None:
        """The cluster as AKS describes it; None: AKS has none of this name, the sets are one's own."""
        if self._cluster is None or time.monotonic() - self._cluster[0] >= UNKNOWN_S:
            group = group_path(self._need_subscription(), self.settings.resource_group)
            path = f"{group}/providers/Microsoft.ContainerService/managedClusters/{self.settings.cluster}"
            body: Body | None = None
            try:
                body = self.session.send("GET", path, CLUSTERS).body
            except RestFault as fault:
                if fault.status != 404:
                    raise self.error(fault) from None
            self._cluster = time.monotonic(), body
        return self._cluster[1]

    def sets(self) -> tuple[ScaleSet, ...]:
        aks = self._aks()
        group = aks["properties"]["nodeResourceGroup"] if aks else self.settings.resource_group
        with self.errors():
            path = group_path(self._need_subscription(), group) + SETS
            sets = [read_set(body) for body in self.session.items(path, COMPUTE)]
        mine = [each for each in sets if aks or each.tags.get(CLUSTER_TAG) == self.settings.cluster]
        return tuple(sorted((each for each in mine if each.state != "Deleting"), key=lambda each: each.name))

    def facts_of(self, scale_set: ScaleSet) -> SetFacts:
        pools = ((self._aks() or {}).get("properties") or {}).get("agentPoolProfiles") or ()
        by_name = {pool["name"]: pool for pool in pools}
        pool = by_name.get(scale_set.tags.get(AKS_POOL, ""))
        return facts_of_tags(scale_set) if pool is None else facts_of_pool(pool)

    def sets_of(self, pools: set[str]) -> Iterator[tuple[str, ScaleSet]]:
        for each in self.sets():
            facts = self.facts_of(each)
            if facts.pool in pools and not facts.is_managed and facts.pool is not None:
                yield facts.pool, each

    def read(self, path: str) -> tuple[ScaleSet, int]:
        """The set as it is in this moment, and Azure's clock."""
        with self.errors():
            answer = self.session.send("GET", path, COMPUTE)
        try:
            now = int(parsedate_to_datetime(answer.headers.get("date", "")).timestamp())
        except (TypeError, ValueError):
            now = int(time.time())
        return read_set(answer.body), now

    def change(self, before: ScaleSet, after: ScaleSet) -> RestAnswer | None:
        """None: somebody has changed it meanwhile."""
        body: Body = {"tags": after.tags}
        if after.capacity != before.capacity or before.is_failed:
            body["sku"] = {
                "name": after.type,
                "capacity": after.capacity,
                **({"tier": after.tier} if after.tier else {}),
            }
        headers = {"If-Match": before.etag} if before.etag else {}
        try:
            return self.session.send("PATCH", before.path, COMPUTE, body=body, headers=headers)
        except RestFault as fault:
            if fault.status == 412:
                return None
            raise self.error(fault, before.zone) from None

    def contended(self, each: ScaleSet) -> ProviderError:
        """After changes that all met somebody else's: none was taken."""
        message = f"provider {self.name}: throttled: the scale set {each.name} is changed by others all the time"
        return ProviderError(message, kind="throttled")

    def machines(self, scale_set: ScaleSet) -> tuple[SetMachine, ...]:
        with self.errors():
            bodies = self.session.items(f"{scale_set.path}/virtualMachines", COMPUTE, {"$expand": "instanceView"})
            return tuple(read_machine(body) for body in bodies)

    def delete(self, each: ScaleSet, numbers: Sequence[str]) -> None:
        self.session.send("POST", f"{each.path}/delete", COMPUTE, body={"instanceIds": [*numbers]})

    def settled(self, each: ScaleSet, machines: Sequence[SetMachine]) -> ScaleSet:
        """A set that failed, with what is there as its goal.

        Too low a goal has Azure delete machines of its own choice, too high a one has it make some: the list of
        machines is believed only where the summary of the set has as many.
        """
        view = self._view(each)
        counts = (view.get("virtualMachine") or {}).get("statusesSummary") or ()
        states = {str(count.get("code", "")).lower(): int(count.get("count") or 0) for count in counts}
        present = sum(
            n for code, n in states.items() if code.startswith("provisioningstate/") and "deleting" not in code
        )
        if present != sum(machine.state != "stopping" for machine in machines):
            message = (
                f"provider {self.name}: throttled: Azure's lists of the scale set {each.name} differ in this moment"
            )
            raise ProviderError(message, kind="throttled")
        return ended(each, machines, self._failure(each, view).kind)

    def _view(self, each: ScaleSet) -> Body:
        with self.errors():
            return self.session.send("GET", f"{each.path}/instanceView", COMPUTE).body

    def _failure(self, each: ScaleSet, view: Body) -> ProviderError:
        """What Azure says about a set that failed."""
        bad: Body = next((status for status in view.get("statuses") or () if status.get("level") == "Error"), {})
        code = code_of_status(str(bad.get("code") or "Failed"))
        return self.error(RestFault(200, code, " ".join(str(bad.get("message") or "").split())), each.zone)

    def sizes(self, location: str) -> dict[str, VmSize]:
        path = f"/subscriptions/{self._need_subscription()}/providers/Microsoft.Compute/skus"
        wanted = {"$filter": f"location eq '{location}'"}
        with self.errors():
            sizes = [read_size(body) for body in self.session.items(path, SKUS, wanted)]
        return {size.name: size for size in sizes if size is not None}

    def _need_subscription(self) -> str:
        if not self._subscription:
            hint = "write `subscription` into the pools file, or set AZURE_SUBSCRIPTION_ID"
            raise ProviderError(f"provider {self.name}: no subscription of Azure is named", kind="auth", hint=hint)
        return self._subscription

    @contextmanager
    def errors(self, zone: str | None = None) -> Iterator[None]:
        try:
            yield
        except RestFault as fault:
            raise self.error(fault, zone) from None

    def error(self, fault: RestFault, zone: str | None = None) -> ProviderError:
        kind = kind_of(fault.status, fault.code, fault.message, fault.reasons)
        where = f" in {zone}" if zone else ""
        return ProviderError(
            f"provider {self.name}: {kind}{where}: {fault.code}: {fault.message[:600]}",
            kind=kind,
            hint=_PERMISSIONS if kind == "auth" else None,
            is_unsettled=kind == "throttled" and fault.is_unsettled,
        )
