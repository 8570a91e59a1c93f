"""A simulated Google Cloud: GKE's description of a cluster, and managed instance groups with machines and disks.

Every request is held against Google's published description: method, path, parameters, body. State is kept, and
Google's ways are played: groups that go on trying what is sold out, fingerprints, names that are given once. No Google
was asked how it really behaves.
"""

from __future__ import annotations

import functools
import json
import re
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jsonschema
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from longboat.autoscaler.model.provider_settings import CloudSettings
from longboat.autoscaler.providers.gcp.provider import GoogleProvider
from tests.clouds.gcp.google_schema import described
from tests.clouds.gcp.simulated_iam import SimulatedIam
from tests.clouds.simulated_rest import Body, SimulatedRefusal, SimulatedRest

PROJECT, REGION = "lab-1", "us-central1"
ZONES = (f"{REGION}-a", f"{REGION}-b")
WORDS = {
    "stockout": (200, "ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources available."),
    "quota": (200, "QUOTA_EXCEEDED", "Quota 'NVIDIA_H100_GPUS' exceeded. Limit: 8.0 in region us-central1."),
    "auth": (403, "forbidden", "Required 'compute.instanceGroupManagers.update' permission."),
    "throttled": (403, "rateLimitExceeded", "Rate Limit Exceeded"),
}
"""Kind -> status (200: the group tells it later), code and words."""
TYPES = {"a3-highgpu-8g": (208, 1872, 8), "e2-standard-4": (4, 16, 0), "e2-standard-2": (2, 8, 0)}


class SimulatedGroup:
    def __init__(self, name: str, zone: str) -> None:
        self.name, self.zone = name, zone
        self.machines: dict[str, Body] = {}
        self.size = 0
        self.ports: list[Body] = [{"name": "http", "port": 30080}]
        self.refusal: tuple[str, int] | None = None  # kind, made before
        self.resizes: dict[str, Body] = {}


@functools.cache
def _key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    shape = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(*shape).decode()


def use_google(simulated: SimulatedGoogle, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own credentials is seen."""
    simulated.write_credentials(folder / "key.json")
    for name in ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"):
        patch.delenv(name, raising=False)
    patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(folder / "key.json"))
    patch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", simulated.url)
    for name in ("CONTAINER", "FILE", "IAM", "CLOUDRESOURCEMANAGER"):
        patch.setenv(f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}", simulated.url)


class SimulatedGoogle(SimulatedIam, SimulatedRest):
    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[tuple[str, str], SimulatedGroup] = {}
        self.pools: list[Body] = []
        self.disks: set[tuple[str, str]] = set()
        self.is_slow = False  # machines are being made and deleted until `settle`
        self._described = {name: described(name) for name in ("compute", "container", "file", "iam")}
        self._described["projects"] = described("cloudresourcemanager", "v3")

    # what tests do

    def provider(self) -> GoogleProvider:
        return GoogleProvider("gcp", CloudSettings(cloud="gcp", cluster="lab", region=REGION))

    def write_credentials(self, path: Path) -> None:
        """A key file of a service account, whose tokens this server gives."""
        body = {
            "type": "service_account", "project_id": PROJECT, "private_key_id": "1", "private_key": _key(),
            "client_email": f"x@{PROJECT}.iam.gserviceaccount.com", "client_id": "1", "token_uri": f"{self.url}/token",
        }  # fmt: skip
        path.write_text(json.dumps(body))

    def add_pool(
        self,
        pool: str | None,
        kind: str = "a3-highgpu-8g",
        *,
        zones: tuple[str, ...] = ZONES,
        most: int | None = 10,
        **more: Any,
    ) -> list[SimulatedGroup]:
        name = f"p{secrets.token_hex(3)}"
        groups = [SimulatedGroup(f"gke-lab-{name}-{secrets.token_hex(4)}-grp", zone) for zone in zones]
        self.groups |= {(group.zone, group.name): group for group in groups}
        base = "https://www.googleapis.com/compute/v1"
        sizes = {} if most is None else {"longboat-max": str(most)}
        gpus = TYPES.get(kind, (0, 0, 0))[2]
        config = {
            "machineType": kind,
            "labels": {**({"longboat.dev/pool": pool} if pool else {}), **more.pop("labels", {})},
            "resourceLabels": {**sizes, **more.pop("sizes", {})},
            "accelerators": [{"acceleratorType": "nvidia-h100-80gb", "acceleratorCount": str(gpus)}] if gpus else [],
            **more.pop("config", {}),
        }
        urls = [f"{base}/projects/{PROJECT}/zones/{g.zone}/instanceGroupManagers/{g.name}" for g in groups]
        self.pools.append({"name": name, "config": config, "instanceGroupUrls": urls, **more})
        return groups

    def settle(self) -> None:
        """Everything that goes on comes to its end."""
        for group in self.groups.values():
            for name, machine in [*group.machines.items()]:
                if machine["currentAction"] == "DELETING":
                    self._remove(group, name)
                elif machine["currentAction"] == "CREATING" and "lastAttempt" not in machine:
                    machine |= {"currentAction": "NONE", "instanceStatus": "RUNNING"}

    def leftovers(self) -> set[tuple[str, str]]:
        """Disks without a machine."""
        return self.disks - {(group.zone, name) for group in self.groups.values() for name in group.machines}

    # requests

    def give_token(self, path: str, query: dict[str, str], data: bytes) -> Body | None:
        if path != "/token":
            return None
        if "jwt-bearer" not in parse_qs(data.decode())["grant_type"][0]:
            self.violations.append("a token is asked for by an assertion")
        return {"access_token": self.token, "expires_in": 3600, "token_type": "Bearer"}

    def answer(
        self, method: str, path: str, query: dict[str, str], body: Body | None, headers: Any
    ) -> tuple[int, Body, dict[str, str]]:
        self._check(method, path, query, body)
        if path.startswith("/v1/"):
            known = f"/v1/projects/{PROJECT}/locations/{REGION}/clusters/lab"
            return (200, {"name": "lab", "nodePools": self.pools}, {}) if path == known else _missing(path)
        match = re.fullmatch(
            rf"/compute/v1/projects/{PROJECT}/zones/([^/]+)/instanceGroupManagers/([^/]+)/resizeRequests(?:/([^/]+))?"
            r"(/cancel)?",
            path,
        )
        if match is not None:
            zone, name, request, is_cancel = match.groups()
            return 200, self._answer_resize(self.groups[zone, name], method, request, bool(is_cancel), body), {}
        match = re.fullmatch(rf"/compute/v1/projects/{PROJECT}/zones/([^/]+)/(\w+)/([^/]+)(?:/(\w+))?", path)
        if match is None:
            return _missing(path)
        zone, kind, name, verb = match.groups()
        if kind == "machineTypes":
            return (200, _type(name), {}) if name in TYPES else _missing(path)
        group = self.groups.get((zone, name))
        if group is None:
            return _missing(path)
        return 200, self._answer_group(group, kind, verb, query, body or {}), {}

    def _answer_group(
        self, group: SimulatedGroup, kind: str, verb: str | None, query: dict[str, str], body: Body
    ) -> Body:
        if kind == "instanceGroups":
            mark = str(hash(json.dumps(group.ports)))
            if verb == "setNamedPorts":
                if body["fingerprint"] != mark:
                    raise refusal(412, "conditionNotMet", "Invalid fingerprint.")
                group.ports = body["namedPorts"]
            return {"name": group.name, "namedPorts": group.ports, "fingerprint": mark}
        if verb == "listManagedInstances":
            start, most = int(query.get("pageToken", 0)), int(query.get("maxResults", 500))
            listed = [*group.machines.values()]
            more = {"nextPageToken": str(start + most)} if start + most < len(listed) else {}
            return {"managedInstances": listed[start : start + most], **more}
        if verb == "createInstances":
            return self._create(group, [each["name"] for each in body["instances"]])
        if verb == "deleteInstances":
            return self._delete(group, body["instances"])
        return {"name": group.name, "baseInstanceName": group.name.removesuffix("-grp"), "targetSize": group.size}

    def _check(self, method: str, path: str, query: dict[str, str], body: Body | None) -> None:
        for operations, schemas in self._described.values():
            for known, pattern, operation in operations:
                if known == method and re.fullmatch(pattern, path):
                    unknown = [name for name in query if name not in operation.get("parameters", {})]
                    self.violations += [f"{method} {path}: no parameter {name}" for name in unknown]
                    wanted = (operation.get("request") or {}).get("$ref")
                    if (wanted is None) != (body is None):
                        self.violations.append(f"{method} {path}: a body, or none")
                    elif wanted:
                        validator = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{wanted}", "$defs": schemas})
                        self.violations += [f"{method} {path}: {each.message}" for each in validator.iter_errors(body)]
                    return self.need(operation["id"])
        self.violations.append(f"{method} {path}")
        raise refusal(404, "notFound", f"no such operation: {method} {path}")

    # groups

    def _answer_resize(
        self, group: SimulatedGroup, method: str, name: str | None, is_cancel: bool, body: Body | None
    ) -> Body:
        """All machines at once, or none: what is sold out is waited for, what is forbidden fails."""
        if method == "GET":
            self._serve_resizes(group)
            return {"items": [*group.resizes.values()]}
        if name is None:
            assert body is not None
            kind = (group.refusal or ("", 0))[0]
            if kind in ("auth", "throttled"):
                raise refusal(*WORDS[kind])
            if body["name"] in group.resizes:
                raise refusal(409, "alreadyExists", f"The resource '{body['name']}' already exists")
            when = f"2026-01-01T00:00:{len(group.resizes):02d}Z"
            group.resizes[body["name"]] = {**body, "state": "ACCEPTED", "creationTimestamp": when, "status": {}}
            group.size += len(body["instances"])
        elif name not in group.resizes:
            _missing(name)
        elif is_cancel:
            if group.resizes[name]["state"] != "ACCEPTED":
                raise refusal(400, "invalid", "it is not accepted any more")
            group.resizes[name]["state"] = "CANCELLED"
            group.size -= len(group.resizes[name]["instances"])
        else:
            del group.resizes[name]
        return {"name": f"operation-{secrets.token_hex(4)}", "status": "RUNNING"}

    def _serve_resizes(self, group: SimulatedGroup) -> None:
        kind = (group.refusal or ("", 0))[0]
        for request in group.resizes.values():
            if request["state"] != "ACCEPTED":
                continue
            _, code, words = WORDS.get(kind, (0, "", ""))
            error = {"error": {"errors": [{"code": code, "message": words}]}}
            if kind == "stockout":
                request["status"] = {"lastAttempt": error}
                continue
            group.size -= len(request["instances"])
            if kind:
                request |= {"state": "FAILED", "status": error}
                continue
            request["state"] = "SUCCEEDED"
            self._create(group, [each["name"] for each in request["instances"]])

    def _create(self, group: SimulatedGroup, names: list[str]) -> Body:
        kind, after = group.refusal or ("", 0)
        status, code, words = WORDS.get(kind, (0, "", ""))
        if kind and status != 200:
            raise refusal(status, code, words)
        taken = [name for name in names if name in group.machines]
        odd = [name for name in names if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)]
        if taken or odd or len(names) > 1000:
            raise refusal(400, "invalid", f"Invalid value for field 'instances': {(taken or odd or names)[0]}")
        for number, name in enumerate(names):
            group.size += 1
            machine: Body = {
                "instance": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{group.zone}/instances/{name}",
                "name": name,
                "currentAction": "CREATING",
            }
            if kind and number >= after:
                machine["lastAttempt"] = {"errors": {"errors": [{"code": code, "message": words}]}}
            else:
                self.disks.add((group.zone, name))
                if not self.is_slow:
                    machine |= {"currentAction": "NONE", "instanceStatus": "RUNNING"}
            group.machines[name] = machine
        return {"name": f"operation-{secrets.token_hex(4)}", "status": "RUNNING", "operationType": "createInstances"}

    def _delete(self, group: SimulatedGroup, paths: list[str]) -> Body:
        for path in paths:
            match = re.fullmatch(rf"zones/{group.zone}/instances/([^/]+)", path)
            if match is None:
                self.violations.append(f"deleteInstances: {path}")
            elif match[1] in group.machines and group.machines[match[1]]["currentAction"] != "DELETING":
                group.size -= 1
                if self.is_slow:
                    group.machines[match[1]]["currentAction"] = "DELETING"
                else:
                    self._remove(group, match[1])
        return {"name": f"operation-{secrets.token_hex(4)}", "status": "RUNNING", "operationType": "deleteInstances"}

    def _remove(self, group: SimulatedGroup, name: str) -> None:
        del group.machines[name]
        self.disks.discard((group.zone, name))


def refusal(status: int, reason: str, words: str) -> SimulatedRefusal:
    errors = [{"message": words, "domain": "global", "reason": reason}]
    return SimulatedRefusal(status, {"code": status, "message": words, "errors": errors})


def _missing(path: str) -> Any:
    raise refusal(404, "notFound", f"The resource '{path}' was not found")


def _type(name: str) -> Body:
    cpus, memory, gpus = TYPES[name]
    accelerators = [{"guestAcceleratorType": "nvidia-h100-80gb", "guestAcceleratorCount": gpus}] if gpus else []
    return {"name": name, "guestCpus": cpus, "memoryMb": memory << 10, "accelerators": accelerators}
