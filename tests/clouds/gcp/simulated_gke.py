"""A simulated GKE: clusters that are made, changed and deleted by operations that go on for a while, one at a time."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from tests.clouds.gcp.simulated_google import PROJECT, REGION, SimulatedGoogle, SimulatedGroup, refusal
from tests.clouds.gcp.simulated_stored import ZONE, SimulatedStored
from tests.clouds.simulated_rest import Body

PLACE = f"/v1/projects/{PROJECT}/locations/{REGION}"
LOOKS = 2  # after so many looks an operation has ended


class SimulatedGke(SimulatedStored, SimulatedGoogle):
    def __init__(self) -> None:
        super().__init__()
        self.cluster: Body | None = None
        self.operations: dict[str, Body] = {}
        self.looks: dict[str, int] = {}
        self.claims: list[str] = []  # disks of claims
        self.quotas = {"CPUS": 100.0, "NVIDIA_L4_GPUS": 1.0}
        self.fails = ""  # the next operation does, with these words
        self.keeps_node_disks = False
        self.elsewhere: list[Body] = []  # clusters of other places
        self.missing: list[str] = []  # zones that do not answer

    def answer(
        self, method: str, path: str, query: dict[str, str], body: Body | None, headers: Any
    ) -> tuple[int, Body, dict[str, str]]:
        self._check(method, path, query, body)
        answer = self.answer_iam(method, path, body or {})
        if answer is not None:
            return 200, answer, {}
        if path == f"{PLACE}/serverConfig":
            return 200, {"validMasterVersions": ["1.35.3-gke.100", "1.34.9-gke.5"]}, {}
        if path == f"{PLACE}/operations":
            return 200, {"operations": [*self.operations.values()]}, {}
        if path.startswith(f"{PLACE}/operations/"):
            return 200, self._look(path.rpartition("/")[2]), {}
        if path == f"/v1/projects/{PROJECT}/locations/-/clusters":
            here = [{**self.cluster, "location": REGION, "id": "0123abcd" + "0" * 32}] if self.cluster else []
            missing = {"missingZones": self.missing} if self.missing else {}
            return 200, {"clusters": [*here, *self.elsewhere], **missing}, {}
        if path.startswith(f"{PLACE}/clusters"):
            return 200, self._clusters(method, path.removeprefix(f"{PLACE}/clusters"), body or {}), {}
        base = f"/compute/v1/projects/{PROJECT}"
        if path == f"{base}/regions/{REGION}":
            quotas = [{"metric": name, "limit": limit, "usage": 0.0} for name, limit in self.quotas.items()]
            return 200, {"name": REGION, "quotas": quotas}, {}
        answer = self.answer_stored(method, path, query)
        if answer is not None:
            return 200, answer, {}
        return super().answer(method, path, query, body, headers)

    def cluster_disks(self) -> list[Body]:
        mine = {"goog-k8s-cluster-name": "lab", "goog-k8s-cluster-location": REGION}
        claims = [{"name": each, "zone": ZONE, "labels": mine} for each in self.claims]
        pools = (self.cluster or {}).get("nodePools") or ()
        if self.keeps_node_disks:
            pools = [{"name": "gone"}]
        return claims + [
            {"name": f"boot-{pool['name']}", "zone": ZONE, "labels": {**mine, "goog-k8s-node-pool-name": pool["name"]}}
            for pool in pools
        ]

    def drop_disk(self, name: str) -> None:
        self.claims.remove(name)

    def _clusters(self, method: str, rest: str, body: Body) -> Body:
        name = rest.split("/")[1] if rest else body["cluster"]["name"]
        if rest == "":
            if self.cluster is not None:
                raise refusal(409, "alreadyExists", f"Already exists: {name}")
            cluster = self.cluster = {**body["cluster"], "status": "PROVISIONING"}
            cluster["nodePools"] = [self._pool(name, pool) for pool in cluster["nodePools"]]
            return self._begin("CREATE_CLUSTER", name)
        if self.cluster is None or self.cluster["name"] != name:
            raise refusal(404, "notFound", f"Not found: {name}")
        if method == "GET":
            return self.cluster
        if any(each["status"] != "DONE" for each in self.operations.values()):
            raise refusal(409, "conflict", "Cluster is running incompatible operation")
        if rest == f"/{name}" and method == "PUT":
            self.cluster["workloadIdentityConfig"] = body["update"]["desiredWorkloadIdentityConfig"]
            return self._begin("UPDATE_CLUSTER", name)
        if rest == f"/{name}":
            self.cluster["status"] = "STOPPING"
            return self._begin("DELETE_CLUSTER", name)
        return self._change_pool(method, name, rest.removeprefix(f"/{name}/nodePools").removeprefix("/"), body)

    def _change_pool(self, method: str, name: str, rest: str, body: Body) -> Body:
        assert self.cluster is not None
        pools, (pool, _, verb) = self.cluster["nodePools"], rest.partition(":")
        if not pool:
            pools.append(self._pool(name, body["nodePool"]))
            return self._begin("CREATE_NODE_POOL", name)
        there = next(each for each in pools if each["name"] == pool)
        if method == "DELETE":
            pools.remove(there)
            return self._begin("DELETE_NODE_POOL", name)
        if verb == "setSize":
            self.groups[there["locations"][0], f"gke-{pool}-grp"].size = body["nodeCount"]
            return self._begin("SET_NODE_POOL_SIZE", name)
        if method == "PUT":
            labels = body.get("resourceLabels", {}).get("labels")
            there["config"] |= {"resourceLabels": labels} if labels is not None else body
            return self._begin("UPGRADE_NODES", name)
        there["autoscaling"] = body["autoscaling"]
        return self._begin("UPDATE_CLUSTER", name)

    def _pool(self, name: str, body: Body) -> Body:
        zone = body["locations"][0]
        group = self.groups[zone, f"gke-{body['name']}-grp"] = SimulatedGroup(f"gke-{body['name']}-grp", zone)
        group.size = body["initialNodeCount"]
        base = "https://www.googleapis.com/compute/v1"
        url = f"{base}/projects/{PROJECT}/zones/{zone}/instanceGroupManagers/{group.name}"
        return {**body, "status": "PROVISIONING", "instanceGroupUrls": [url]}

    def _begin(self, kind: str, name: str) -> Body:
        operation = {
            "name": f"operation-{secrets.token_hex(4)}",
            "operationType": kind,
            "status": "RUNNING",
            "targetLink": f"https://container.googleapis.com{PLACE}/clusters/{name}",
        }
        self.operations[operation["name"]] = operation
        return operation

    def _look(self, name: str) -> Body:
        operation = self.operations[name]
        self.looks[name] = self.looks.get(name, 0) + 1
        if self.looks[name] >= LOOKS and operation["status"] != "DONE":
            operation["status"] = "DONE"
            self._end(operation)
        return operation

    def _end(self, operation: Body) -> None:
        assert self.cluster is not None
        if self.fails:
            operation["error"] = {"code": 8, "message": self.fails}
            self.cluster |= {"status": "ERROR", "conditions": [{"message": self.fails}]}
            self.fails = ""
            return
        if operation["operationType"] == "DELETE_CLUSTER":
            self.cluster = None
            return
        authority = base64.b64encode(b"authority").decode()
        self.cluster |= {
            "status": "RUNNING",
            "endpoint": "192.0.2.7",
            "masterAuth": {"clusterCaCertificate": authority},
        }
        self.cluster["currentMasterVersion"] = f"{self.cluster['initialClusterVersion']}.3-gke.100"
        for pool in self.cluster["nodePools"]:
            pool["status"] = "RUNNING"
