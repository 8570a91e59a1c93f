"""A simulated Azure: AKS's description of a cluster and its scale sets with machines, disks and network interfaces.

Every request is held against what Azure's own client libraries know: method, path, version, body. State is kept, and
Azure's ways are played: etags, operations that go on, capacity that stays raised after a failure, a choice of its own
whom to delete when the capacity falls. No Azure was asked how it really behaves.
"""

from __future__ import annotations

import re
import secrets
import time
from datetime import datetime, timezone
from typing import Any

import jsonschema

from longboat.autoscaler.model.provider_settings import CloudSettings
from longboat.autoscaler.providers.azure.provider import AzureProvider
from tests.clouds.azure.arm_rights import ArmRights
from tests.clouds.simulated_rest import Body, SimulatedRefusal, SimulatedRest
from tests.clusters.cloud import servers

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
LOCATION = "westeurope"
ZONES = (f"{LOCATION}-1", f"{LOCATION}-2")
GROUP, NODES = "rg-lab", "MC_rg-lab_lab_westeurope"
COMPUTE = "/providers/Microsoft.Compute"
BODIES = {
    ("PATCH", "virtualMachineScaleSets/{vmScaleSetName}"): "VirtualMachineScaleSetUpdate",
    ("POST", "virtualMachineScaleSets/{vmScaleSetName}/delete"): "VirtualMachineScaleSetVMInstanceRequiredIDs",
}
NETWORK_PATH = (
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/[^/]+/virtualMachineScaleSets/[^/]+/networkInterfaces"
)
"""Of Microsoft.Network, whose library is 100 MB: not held against it."""
WORDS = {
    "stockout": (200, "ZonalAllocationFailed", "Allocation failed. We do not have sufficient capacity in this zone."),
    "quota": (409, "OperationNotAllowed", "Operation results in exceeding approved Total Regional Cores quota."),
    "unoffered": (409, "SkuNotAvailable", "The requested size is currently not available in this zone."),
    "auth": (403, "AuthorizationFailed", "The client has no authorization to perform action 'write'."),
    "throttled": (429, "TooManyRequests", "The request is being throttled as the limit has been reached."),
}  # fmt: skip
"""Kind -> status (200: the operation fails later), code and words."""
SIZES = {
    "Standard_ND96isr_H100_v5": (96, 1900, 8),
    "Standard_D4s_v5": (4, 16, 0),
    "Standard_NC4as_T4_v3": (4, 28, 1),
    "Standard_NC24ads_A100_v4": (24, 220, 1),
}


class SimulatedSet:
    def __init__(self, body: Body) -> None:
        self.body = body
        self.machines: dict[str, Body] = {}
        self.last = -1
        self.failure: tuple[str, str] | None = None
        self.hidden = 0  # so many of the newest are not listed yet
        self.refusal: tuple[str, int, bool] | None = None  # kind, made before, with machines that failed

    @property
    def capacity(self) -> int:
        return int(self.body["sku"]["capacity"])


class SimulatedAzure(ArmRights, SimulatedRest):
    def __init__(self) -> None:
        super().__init__()
        self.described = [
            servers.azure_description("compute", *BODIES.values()),
            servers.azure_description("containerservice"),
        ]
        self.sets: dict[str, SimulatedSet] = {}
        self.pools: list[Body] = []
        self.disks: set[str] = set()
        self.interfaces: dict[str, str] = {}
        self.operations: dict[str, Body] = {}
        self.chosen: list[str] = []  # machines that Azure deleted by a choice of its own
        self.is_aks = True
        self.is_slow = False  # operations go on, machines are being made and deleted, until `settle`
        self.keeps_disks = False

    # what tests do

    def provider(self, cluster: str = "lab") -> AzureProvider:
        settings = CloudSettings(cloud="azure", cluster=cluster, resource_group=GROUP, subscription=SUBSCRIPTION)
        return AzureProvider("azure", settings)

    def add_pool(
        self,
        pool: str | None,
        size: str = "Standard_ND96isr_H100_v5",
        *,
        zone: str = "",
        most: int | None = 10,
        **more: Any,
    ) -> SimulatedSet:
        """A pool of AKS with its scale set; `zone`: empty, or `1`, or `1 2`."""
        name = f"p{secrets.token_hex(3)}"
        zones = zone.split()
        tags = {"aks-managed-poolName": name, **({} if most is None else {"max": str(most)}), **more.pop("tags", {})}
        labels = {**({"longboat.dev/pool": pool} if pool else {}), **more.pop("labels", {})}
        profile = {"name": name, "vmSize": size, "count": 0, "nodeLabels": labels, "maxPods": 110, **more}
        self.pools.append(profile)
        return self.add_set(f"aks-{name}-vmss", size, zones, tags, NODES, profile.get("scaleSetPriority"))

    def add_set(
        self, name: str, size: str, zones: list[str], tags: dict[str, str], group: str = GROUP, priority: Any = None
    ) -> SimulatedSet:
        path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}{COMPUTE}/virtualMachineScaleSets/{name}"
        body = {
            "id": path,
            "name": name,
            "location": LOCATION,
            "sku": {"name": size, "tier": "Standard", "capacity": 0},
            "tags": tags,
            "etag": '"1"',
            "properties": {
                "provisioningState": "Succeeded",
                "virtualMachineProfile": {"priority": priority or "Regular"},
                "orchestrationMode": "Uniform",
            },
        }
        if zones:
            body["zones"] = zones
        made = self.sets[path.lower()] = SimulatedSet(body)
        return made

    def settle(self) -> None:
        """Everything that goes on comes to its end."""
        for each in self.sets.values():
            for number, machine in [*each.machines.items()]:
                state = machine["properties"]["provisioningState"]
                if state == "Deleting":
                    self._remove(each, number)
                elif state == "Creating":
                    machine["properties"]["provisioningState"] = "Succeeded"
            each.hidden = 0
            if each.body["properties"]["provisioningState"] == "Updating":
                each.body["properties"]["provisioningState"] = "Succeeded"
        for operation in self.operations.values():
            if operation["status"] == "InProgress":
                operation["status"] = "Succeeded"

    def leftovers(self) -> list[str]:
        """Disks and network interfaces without a machine."""
        there = {machine["id"].lower() for each in self.sets.values() for machine in each.machines.values()}
        disks = {machine["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"].lower()
                 for each in self.sets.values() for machine in each.machines.values()}  # fmt: skip
        return sorted(self.disks - disks) + sorted(each for each in self.interfaces.values() if each not in there)

    # requests

    def give_token(self, path: str, query: dict[str, str], data: bytes) -> Body | None:
        if path != "/identity":
            return None
        if not query["resource"].startswith("https://management.azure.com"):
            self.violations.append(f"a token for {query['resource']}")
        return {
            "access_token": self.token, "expires_on": str(int(time.time()) + 3600),
            "resource": query["resource"], "token_type": "Bearer",
        }  # fmt: skip

    def answer(
        self, method: str, path: str, query: dict[str, str], body: Body | None, headers: Any
    ) -> tuple[int, Body, dict[str, str]]:
        self.need_of(method, path)
        if "/operations/" in path:
            operation = self.operations.get(path.rpartition("/")[2])
            return (200, operation, {}) if operation else _missing(path)
        self._check(method, path, query, body)
        if path.endswith("/skus"):
            return 200, {"value": [_size(name, *numbers) for name, numbers in SIZES.items()]}, {}
        if "/managedClusters/" in path:
            properties = {"nodeResourceGroup": NODES, "agentPoolProfiles": self.pools, "provisioningState": "Succeeded"}
            return (200, {"name": "lab", "properties": properties}, {}) if self.is_aks else _missing(path)
        if "/disks/" in path:
            if path.lower() not in self.disks:
                return _missing(path)
            if method == "DELETE":
                self.disks.discard(path.lower())
            return 200, {"id": path}, {}
        if path.endswith("/virtualMachineScaleSets"):
            mine = [each.body for key, each in self.sets.items() if key.startswith(path.lower() + "/")]
            return 200, {"value": mine}, {}
        return self._answer_set(method, path, query, body, headers)

    def _answer_set(
        self, method: str, path: str, query: dict[str, str], body: Body | None, headers: Any
    ) -> tuple[int, Body, dict[str, str]]:
        match = re.fullmatch(r"(.*/virtualMachineScaleSets/[^/]+)(?:/(\w+))?", path, re.IGNORECASE)
        each = self.sets.get(match[1].lower()) if match else None
        if each is None or match is None:
            return _missing(path)
        if match[2] == "virtualMachines":
            return self._page(path, query, each)
        if match[2] == "networkInterfaces":
            owned = {name: vm for name, vm in self.interfaces.items() if vm.startswith(match[1].lower() + "/")}
            value = [{"name": name, "properties": {"virtualMachine": {"id": vm}}} for name, vm in owned.items()]
            return 200, {"value": value}, {}
        if match[2] == "instanceView":
            return 200, _view(each), {}
        if match[2] == "delete":
            assert body is not None
            return self._delete(each, body["instanceIds"])
        if method == "PATCH":
            assert body is not None
            return self._patch(each, body, headers)
        return 200, each.body, {}

    def _page(self, path: str, query: dict[str, str], each: SimulatedSet) -> tuple[int, Body, dict[str, str]]:
        """Pages of 200 machines."""
        listed = [*each.machines.values()]
        listed = listed[: len(listed) - each.hidden]
        start = int(query.get("$skiptoken", 0))
        following = f"{self.url}{path}?api-version={query['api-version']}&%24skiptoken={start + 200}"
        more = {"nextLink": following} if start + 200 < len(listed) else {}
        return 200, {"value": listed[start : start + 200], **more}, {}

    def _check(self, method: str, path: str, query: dict[str, str], body: Body | None) -> None:
        if re.fullmatch(NETWORK_PATH, path) and query.get("api-version") == "2018-10-01" and method == "GET":
            return None
        for described in self.described:
            for known, template, version in described["operations"]:
                pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
                if (
                    known == method
                    and version == query.get("api-version")
                    and re.fullmatch(pattern, path, re.IGNORECASE)
                ):
                    return self._check_body(method, template, described, body)
        self.violations.append(f"{method} {path} {query}")
        raise SimulatedRefusal(400, {"code": "InvalidRequest", "message": f"no such operation: {method} {path}"})

    def _check_body(self, method: str, template: str, described: Body, body: Body | None) -> None:
        name = next((each for key, each in BODIES.items() if key[0] == method and template.endswith(key[1])), None)
        if (name is None) != (body is None):
            self.violations.append(f"{method} {template}: a body, or none")
        elif name is not None:
            schema = {**described["bodies"][name], "$defs": described["$defs"]}
            problems = [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(body)]
            self.violations += [f"{method} {template}: {problem}" for problem in problems]

    # scale sets

    def _patch(self, each: SimulatedSet, body: Body, headers: Any) -> tuple[int, Body, dict[str, str]]:
        if headers.get("If-Match") not in (None, each.body["etag"]):
            raise SimulatedRefusal(412, {"code": "PreconditionFailed", "message": "The etag does not match."})
        wanted = int((body.get("sku") or {}).get("capacity", each.capacity))
        kind, after, leaves = each.refusal or ("", 0, False)
        grows = wanted > len(each.machines)
        if grows and kind and WORDS[kind][0] != 200:
            status, code, words = WORDS[kind]
            raise SimulatedRefusal(status, {"code": code, "message": words}, {"Retry-After": "30"})
        each.body["tags"] = body.get("tags", each.body["tags"])
        each.body["etag"] = f'"{int(each.body["etag"].strip(chr(34))) + 1}"'
        if "sku" not in body:
            return 200, each.body, {}
        each.body["sku"] = {**each.body["sku"], **body["sku"]}
        going = sum(machine["properties"]["provisioningState"] == "Deleting" for machine in each.machines.values())
        missing = wanted - (len(each.machines) - going)
        for number in sorted(each.machines, key=int)[missing:] if missing < 0 else ():
            self.chosen.append(each.machines[number]["id"])
            self._remove(each, number)
        operation: Body = {"status": "InProgress" if self.is_slow else "Succeeded"}
        state = "Updating" if self.is_slow else "Succeeded"
        each.failure = None
        for count in range(max(missing, 0)):
            if kind and count >= after:
                _, code, words = WORDS[kind]
                each.failure = code, words
                operation, state = {"status": "Failed", "error": {"code": code, "message": words}}, "Failed"
                if not leaves:
                    break
            self._make(each, has_failed=bool(kind) and count >= after)
        each.body["properties"]["provisioningState"] = state
        name = secrets.token_hex(8)
        self.operations[name] = operation
        address = f"{self.url}/subscriptions/{SUBSCRIPTION}{COMPUTE}/locations/{LOCATION}/operations/{name}"
        return 202, each.body, {"Azure-AsyncOperation": f"{address}?api-version=2026-04-01", "Retry-After": "10"}

    def _make(self, each: SimulatedSet, *, has_failed: bool) -> None:
        each.last += 1
        path = f"{each.body['id']}/virtualMachines/{each.last}"
        group = each.body["id"].split("/providers/")[0]
        disk = f"{group}{COMPUTE}/disks/{each.body['name']}_{each.last}_OsDisk_{secrets.token_hex(4)}"
        self.disks.add(disk.lower())
        self.interfaces[secrets.token_hex(4)] = path.lower()
        statuses = [{"code": "PowerState/running", "level": "Info"}]
        if has_failed and each.failure:
            code, words = each.failure
            statuses = [{"code": f"ProvisioningState/failed/{code}", "level": "Error", "message": words}]
        machine: Body = {
            "id": path,
            "instanceId": str(each.last),
            "location": LOCATION,
            "properties": {
                "provisioningState": "Failed" if has_failed else "Creating" if self.is_slow else "Succeeded",
                "timeCreated": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f") + "1+00:00",
                "osProfile": {"computerName": f"{each.body['name']}{each.last:06d}"},
                "storageProfile": {"osDisk": {"managedDisk": {"id": disk}}},
                "instanceView": {"statuses": statuses},
            },
        }
        zones = each.body.get("zones")
        if zones:
            machine["zones"] = [zones[each.last % len(zones)]]
        each.machines[str(each.last)] = machine

    def _delete(self, each: SimulatedSet, numbers: list[str]) -> tuple[int, Body, dict[str, str]]:
        unknown = [number for number in numbers if number not in each.machines]
        if unknown:
            words = f"The provided instanceId {unknown[0]} is not an active Virtual Machine Scale Set VM instanceId."
            raise SimulatedRefusal(400, {"code": "InvalidParameter", "message": words})
        each.body["sku"]["capacity"] = each.capacity - len(numbers)
        for number in numbers:
            if self.is_slow:
                each.machines[number]["properties"]["provisioningState"] = "Deleting"
            else:
                self._remove(each, number)
        return 202, {}, {}

    def _remove(self, each: SimulatedSet, number: str) -> None:
        machine = each.machines.pop(number)
        self.interfaces = {name: vm for name, vm in self.interfaces.items() if vm != machine["id"].lower()}
        if not self.keeps_disks:
            self.disks.discard(machine["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"].lower())


def _missing(path: str) -> Any:
    raise SimulatedRefusal(404, {"code": "ResourceNotFound", "message": f"The Resource '{path}' was not found."})


def _view(each: SimulatedSet) -> Body:
    counts: dict[str, int] = {}
    for machine in each.machines.values():
        code = f"ProvisioningState/{machine['properties']['provisioningState'].lower()}"
        counts[code] = counts.get(code, 0) + 1
    statuses = [{"code": "ProvisioningState/succeeded", "level": "Info"}]
    if each.failure:
        code, words = each.failure
        statuses = [{"code": f"ProvisioningState/failed/{code}", "level": "Error", "message": words}]
    summary = [{"code": code, "count": count} for code, count in counts.items()]
    return {"virtualMachine": {"statusesSummary": summary}, "statuses": statuses}


def _size(name: str, cpus: int, memory: int, gpus: int) -> Body:
    pairs = {"vCPUs": cpus, "MemoryGB": memory, "GPUs": gpus, "CpuArchitectureType": "x64"}
    capabilities = [{"name": key, "value": str(value)} for key, value in pairs.items()]
    return {"resourceType": "virtualMachines", "name": name, "capabilities": capabilities}
