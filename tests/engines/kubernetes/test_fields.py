"""Which fields of Kubernetes we use: each is in the OpenAPI of a running cluster, and old enough for version 1.29.

A field that is not in the tables below fails the test: look up since which version it is on by default, and add it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from longboat.core.jobs import Volume
from longboat.engines.kubernetes.api.client import Client
from longboat.engines.kubernetes.code import Upload, launcher_name, upload_objects
from longboat.engines.kubernetes.packs import NewPack
from longboat.engines.kubernetes.records import Record, Storage
from testbed.clusters import Cluster
from tests.engines.kubernetes.manifest_samples import gpu_role, job, record
from tests.engines.kubernetes.test_manifests_accepted import all_objects, full_record

OLDEST = 29

OLD = {
    "": "apiVersion kind metadata spec data type",
    "metadata": "name namespace labels annotations ownerReferences",
    "metadata.ownerReferences": "apiVersion kind name uid",
    "Service.spec": "clusterIP publishNotReadyAddresses selector",
    "PersistentVolumeClaim.spec": "accessModes resources storageClassName",
    "PersistentVolumeClaim.spec.resources": "requests",
    "PodDisruptionBudget.spec": "minAvailable selector",
    "PodDisruptionBudget.spec.selector": "matchLabels matchExpressions",
    "PodDisruptionBudget.spec.selector.matchExpressions": "key operator",
    "Job.spec": "completions parallelism template",
    "template": "metadata spec",
    "pod": "affinity automountServiceAccountToken containers enableServiceLinks imagePullSecrets restartPolicy"
    " securityContext serviceAccountName subdomain terminationGracePeriodSeconds tolerations volumes",
    "pod.affinity": "nodeAffinity",
    "pod.affinity.nodeAffinity": "requiredDuringSchedulingIgnoredDuringExecution",
    "pod.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution": "nodeSelectorTerms",
    "pod.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms": "matchExpressions",
    "pod.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.matchExpressions": (
        "key operator values"
    ),
    "pod.imagePullSecrets": "name",
    "pod.securityContext": "fsGroup runAsGroup runAsNonRoot runAsUser",
    "pod.securityContext.seccompProfile": "type",
    "pod.tolerations": "effect key operator tolerationSeconds",
    "pod.volumes": "emptyDir hostPath name nfs persistentVolumeClaim projected secret",
    "pod.volumes.emptyDir": "medium sizeLimit",
    "pod.volumes.hostPath": "path type",
    "pod.volumes.nfs": "path server",
    "pod.volumes.persistentVolumeClaim": "claimName",
    "pod.volumes.projected": "defaultMode sources",
    "pod.volumes.projected.sources": "secret",
    "pod.volumes.projected.sources.secret": "items name",
    "pod.volumes.projected.sources.secret.items": "key path",
    "pod.volumes.secret": "defaultMode secretName",
    "container": "command env image imagePullPolicy name resources securityContext terminationMessagePath"
    " terminationMessagePolicy volumeMounts workingDir",
    "container.env": "name value valueFrom",
    "container.env.valueFrom": "secretKeyRef",
    "container.env.valueFrom.secretKeyRef": "key name",
    "container.resources": "limits requests",
    "container.securityContext": "allowPrivilegeEscalation capabilities",
    "container.securityContext.capabilities": "drop",
    "container.volumeMounts": "mountPath name readOnly subPath",
}
"""Generally available in 1.18 or before."""

SINCE = {
    "immutable": 19,  # of a Secret; beta, on by default
    "pod.securityContext.seccompProfile": 19,
    "pod.securityContext.fsGroupChangePolicy": 20,  # beta
    "Job.spec.completionMode": 22,  # beta
    "Job.spec.suspend": 22,  # beta
    "Job.spec.backoffLimitPerIndex": 29,  # beta
    "Job.spec.podReplacementPolicy": 29,  # beta
}
APIS = {"v1": 0, "batch/v1": 21, "policy/v1": 21}
"""Group versions and the version of Kubernetes that serves them; Indexed Jobs want batch/v1 of 1.22."""

ONLY_DRA = {"pod.resourceClaims", "container.resources.claims"}
FREE = ("labels", "annotations", "data", "requests", "limits", "matchLabels")
SHORTER = (
    ("Job.spec.template.spec.containers", "container"),
    ("Job.spec.template.spec", "pod"),
    ("Job.spec.template", "template"),
)


def sample() -> list[dict[str, Any]]:
    """At least one of each object that we make."""
    volumes = (
        Volume(target="/new", claim="new", size=1 << 30, storage_class="fast"),
        Volume(target="ram", scratch=True, medium="memory", size=1 << 20),
    )
    stored = record(job(gpu_role(1), volumes=volumes), storage=Storage(path="/x", folder="y"), stored_packs=("code/0",))
    upload = Upload(launcher=launcher_name(), new=(NewPack(name="longboat-code-x", index="objects:", data=b"x"),))
    records: list[Record] = [record(), full_record(), stored]
    return [*(body for each in records for body in all_objects(each)), *upload_objects(upload, "default")]


def fields_of(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            place = f"{path}.{key}"
            yield place
            if key not in FREE and not place.endswith("Service.spec.selector"):
                yield from fields_of(item, place)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from fields_of(item, path)


def location(path: str) -> str:
    """`Job.spec.template.spec.volumes.nfs` is pod.volumes.nfs; metadata is the same everywhere."""
    kind, _, rest = path.partition(".")
    if "metadata" in path:
        return path[path.index("metadata") :]
    for long, short in SHORTER:
        if path.startswith(long) and path != long and path[len(long)] == ".":
            return short + path.removeprefix(long)
    return path if "." in rest else rest


def test_nothing_newer_than_the_oldest_version_is_used() -> None:
    known = {f"{place}.{name}".removeprefix(".") for place, names in OLD.items() for name in names.split()}
    recent = {name for name, version in SINCE.items() if version <= OLDEST}
    used: set[str] = set()
    for body in sample():
        assert APIS[body["apiVersion"]] <= OLDEST
        used |= {location(path) for path in fields_of(body, body["kind"])}
    assert used - known - recent == set()
    assert set(SINCE) <= used, "a field in the table is no longer used"


def test_claims_of_devices_are_used_only_where_the_cluster_has_them() -> None:
    what = record(job(gpu_role(1)), gpu_resource="dra:gpu.nvidia.com")
    used = {location(path) for body in all_objects(what) for path in fields_of(body, body["kind"])}
    assert used >= ONLY_DRA
    plain = {location(path) for body in sample() for path in fields_of(body, body["kind"])}
    assert not plain & ONLY_DRA


@pytest.fixture
def client(cluster: Cluster, namespace: str) -> Iterator[Client]:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    with Client.open(namespace=namespace, environment=environment) as found:
        yield found


class OpenApi:
    """The schemas of the running cluster."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.documents: dict[str, Any] = {}

    def schema(self, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        version = body["apiVersion"]
        if version not in self.documents:
            path = f"/openapi/v3/{'apis' if '/' in version else 'api'}/{version}"
            self.documents[version] = json.loads(self.client.request("GET", path))["components"]["schemas"]
        group, _, number = version.rpartition("/")
        wanted = {"group": group, "kind": body["kind"], "version": number}
        for schema in self.documents[version].values():
            if wanted in schema.get("x-kubernetes-group-version-kind", []):
                return schema, self.documents[version]
        raise AssertionError(f"the cluster has no {wanted}")

    def unknown(self, body: dict[str, Any]) -> list[str]:
        schema, schemas = self.schema(body)
        found: list[str] = []
        self._walk(body, schema, schemas, body["kind"], found)
        return found

    def _walk(self, value: Any, schema: dict[str, Any], schemas: dict[str, Any], path: str, found: list[str]) -> None:
        for part in (schema, *schema.get("allOf", [])):
            if "$ref" in part:
                schema = schemas[part["$ref"].rsplit("/", 1)[1]]
        if isinstance(value, dict) and "properties" in schema:
            for key, item in value.items():
                if key not in schema["properties"]:
                    found.append(f"{path}.{key}")
                else:
                    self._walk(item, schema["properties"][key], schemas, f"{path}.{key}", found)
        elif isinstance(value, (list, tuple)) and "items" in schema:
            for item in value:
                self._walk(item, schema["items"], schemas, path, found)


@pytest.mark.cluster
def test_every_field_is_in_the_openapi_of_the_running_cluster(client: Client) -> None:
    openapi = OpenApi(client)
    dra = record(job(gpu_role(1)), gpu_resource="dra:gpu.nvidia.com")
    for body in [*sample(), *all_objects(dra)]:
        assert openapi.unknown(body) == []
    bent = msgspec.json.decode(msgspec.json.encode(all_objects(record())[-1]))
    bent["spec"]["template"]["spec"]["containers"][0]["comand"] = []
    assert openapi.unknown(bent) == ["Job.spec.template.spec.containers.comand"]


@pytest.mark.pods("controllers")
def test_every_field_of_a_jobset_is_in_the_openapi_of_the_running_cluster(client: Client) -> None:
    openapi = OpenApi(client)
    what = msgspec.structs.replace(full_record(), workload="jobset")
    (jobset,) = (body for body in all_objects(what) if body["kind"] == "JobSet")
    assert openapi.unknown(jobset) == []
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["sspend"] = True
    assert openapi.unknown(jobset) == ["JobSet.spec.replicatedJobs.template.spec.sspend"]
