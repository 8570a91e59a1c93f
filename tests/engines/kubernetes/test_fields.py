"""Which fields of Kubernetes we use: each is known to the oldest and the newest version, and to a running cluster.

The versions are those of `testbed.openapi`. A field that only a newer server has may be sent where `capabilities` has
seen that it is served; those are listed here.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.autoscaler.report.events import EventDraft, event_of
from longboat.core.jobs import Volume
from longboat.engines.kubernetes.exec.claims import create_volume, wanted
from longboat.engines.kubernetes.exec.helper_pod import HelperPod, HelperPodOptions, Security
from longboat.engines.kubernetes.install import controller_manifests
from longboat.engines.kubernetes.install.autoscaler_manifests import autoscaler_objects
from longboat.engines.kubernetes.record_store import write_state
from longboat.engines.kubernetes.records import Record, State, Storage
from longboat.engines.kubernetes.submit.code.packs import NewPack
from longboat.engines.kubernetes.submit.code.upload import Upload, launcher_name, upload_objects
from longboat.engines.kubernetes.submit.facts import cluster_facts
from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS, role_for
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ObjectNotFound
from longboat.kubeapi.kinds import CLAIM_TEMPLATE, JOB, KINDS, NODE, POD, Kind
from longboat.kubeapi.leases import Lease
from testbed import openapi
from testbed.errors import Missing
from tests.engines.kubernetes.manifest_samples import gpu_role, job, record
from tests.engines.kubernetes.schemas import Schemas
from tests.engines.kubernetes.test_manifests_accepted import all_objects, full_record
from tests.engines.kubernetes.wire import Wire, listening

Object = dict[str, Any]

ELSEWHERE = ("jobset.x-k8s.io/", "kueue.x-k8s.io/")
"""Groups of other projects, used where they are served."""
CLAIMS = "Job.spec.template.spec.resourceClaims"
ONLY_NEWER = {
    f"{CLAIM_TEMPLATE.api_version} is not served",
    f"{CLAIMS} is alpha",
    f"{CLAIMS}.resourceClaimTemplateName is unknown",
    "Job.spec.template.spec.containers.resources.claims is alpha",
}
"""What the oldest version says about claims of devices. `capabilities` decides who is sent them."""


def records() -> list[Record]:
    """Together they make every field of every object of a run."""
    volumes = (
        Volume(target="/new", claim="new", size=1 << 30, storage_class="fast"),
        Volume(target="ram", scratch=True, medium="memory", size=1 << 20),
    )
    stored = record(job(gpu_role(1), volumes=volumes), storage=Storage(path="/x", folder="y"), stored_packs=("code/0",))
    return [record(), full_record(), full_record(security="baseline", storage=Storage(nfs="a:/b", folder="y")), stored]


def of_jobsets() -> Iterator[Object]:
    """What a JobSet makes Jobs of. Its own fields are its own project's."""
    for each in records():
        for body in all_objects(msgspec.structs.replace(each, workload="jobset")):
            for part in body["spec"]["replicatedJobs"] if body["kind"] == "JobSet" else ():
                yield {"apiVersion": JOB.api_version, "kind": JOB.kind, **part["template"]}


def given() -> list[Object]:
    """Objects that are made by pure functions."""
    upload = Upload(launcher=launcher_name(), new=(NewPack(name="longboat-code-x", index="objects:", data=b"x"),))
    found = [*(body for each in records() for body in all_objects(each)), *of_jobsets()]
    found += upload_objects(upload, "default")
    for only in (None, ["team"]):
        found += controller_manifests.objects(image="longboat:1", only=only, version="1")
    found += autoscaler_objects(image="longboat:1", pools="pools: []", version="1", simulates=True)
    found.append(role_for(PERMISSIONS, namespace="team"))
    return [*found, event_of(EventDraft(POD, "default", "p", "R", "m"), "u", "2026-01-01T00:00:00Z")]


def written(client: Client, wire: Wire) -> list[Object]:
    """Objects and patches that are made where they are sent."""
    lease = Lease(client, "default", "longboat-gate", "me")
    assert lease.try_hold() and lease.try_hold()
    lease.release()
    create = partial(create_volume, client, timeout_s=0.0)
    with suppress(ObjectNotFound):
        create(wanted("data", "1Gi", storage_class=None))
    cluster_facts.observe(client, job(gpu_role(1)))
    write_state(client, "train", "1", State())
    client.patch(JOB, "train-a0-worker", {"spec": {"suspend": True}})
    taken = {"claimName": "keep"}
    volume = {"name": "v", "persistentVolumeClaim": taken}
    wire.there["pods"] = [{"metadata": {"name": "p"}, "spec": {"nodeName": "n", "volumes": [volume]}}]
    options = HelperPodOptions(run="train", owner="u", pull_secrets=("registry",), service_account="trainer")
    storages = (Storage(claim="keep"), Storage(nfs="a:/b"), Storage(path="/x"))
    levels: tuple[Security, ...] = ("baseline", "restricted")
    for storage in storages:
        for level in levels:
            with suppress(ObjectNotFound), HelperPod(client, storage, image="i", security=level, options=options):
                pass
    return wire.written


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """At least one of each object that we make, with every field that it may have."""
    with listening(tmp_path_factory.mktemp("wire")) as (client, wire):
        return msgspec.to_builtins([*given(), *written(client, wire)], builtin_types=(bytes,))  # type: ignore[no-any-return]


def schemas_of(version: str) -> Schemas:
    try:
        openapi.folder(version)
    except Missing as error:
        pytest.skip(str(error))
    return Schemas(partial(openapi.document, version))


@pytest.fixture(params=[openapi.OLDEST, openapi.NEWEST])
def schemas(request: pytest.FixtureRequest) -> Schemas:
    return schemas_of(request.param)


def test_every_kind_that_we_write_is_among_those_that_are_checked(bodies: list[Object]) -> None:
    kinds = {body["kind"] for body in bodies}
    assert kinds == {
        "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment", "Event", "Job", "Lease", "Namespace",
        "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "Role", "RoleBinding", "Secret",
        "SelfSubjectAccessReview", "Service", "ServiceAccount",
    }  # fmt: skip


def test_every_field_is_known_to_the_oldest_and_the_newest_version(schemas: Schemas, bodies: list[Object]) -> None:
    assert {trouble for body in bodies for trouble in schemas.troubles(body)} == set()


def test_a_field_that_was_renamed_is_found(schemas: Schemas) -> None:
    bent = copy.deepcopy(all_objects(record())[-1])
    assert schemas.troubles(bent) == []
    spec = bent["spec"]["template"]["spec"]
    spec["containers"][0]["comand"] = []
    spec["enableServiceLinks"] = "no"
    del bent["spec"]["completionMode"]
    bent["spec"]["CompletionMode"] = "Indexed"
    assert set(schemas.troubles(bent)) == {
        "Job.spec.template.spec.containers.comand is unknown",
        "Job.spec.template.spec.enableServiceLinks is no boolean",
        "Job.spec.CompletionMode is unknown",
    }
    assert schemas.troubles({"apiVersion": "policy/v1beta1", "kind": "X"}) == ["policy/v1beta1 is not served"]


def test_claims_of_devices_are_something_that_only_newer_servers_have() -> None:
    oldest, newest = schemas_of(openapi.OLDEST), schemas_of(openapi.NEWEST)
    objects = all_objects(record(job(gpu_role(1)), gpu_resource="dra:gpu.nvidia.com"))
    assert {trouble for body in objects for trouble in oldest.troubles(body)} == ONLY_NEWER
    assert {trouble for body in objects for trouble in newest.troubles(body)} == set()


@pytest.mark.parametrize(("version", "found"), [(openapi.OLDEST, ()), (openapi.NEWEST, ("gpu.nvidia.com",))])
def test_device_classes_count_only_where_claims_are_served_as_we_write_them(
    version: str, found: tuple[str, ...], tmp_path: Path
) -> None:
    schemas_of(version)
    with listening(tmp_path) as (client, wire):
        wire.groups = openapi.groups(version)
        wire.there["deviceclasses"] = [{"metadata": {"name": "gpu.nvidia.com"}}]
        seen = cluster_facts.observe(client, job(gpu_role(1)))
    assert "resource.k8s.io" in seen.groups and seen.device_classes == found


def paths_of(kind: Kind) -> tuple[str, ...]:
    collection = kind.path("NAMESPACE").replace("NAMESPACE", "{namespace}")
    return (collection,) if kind.kind.endswith("Review") else (collection, f"{collection}/{{name}}")


def test_every_kind_that_we_read_is_served(schemas: Schemas) -> None:
    ours = [kind for kind in KINDS.values() if not kind.api_version.startswith(ELSEWHERE)]
    newer = {kind.kind for kind in ours if kind.api_version == CLAIM_TEMPLATE.api_version}
    lacking = {kind.kind for kind in ours for path in paths_of(kind) if not schemas.serves(kind.api_version, path)}
    assert lacking in (set(), newer)
    assert schemas.serves(NODE.api_version, "/api/v1/nodes/{name}")
    for subresource in ("log", "exec", "portforward", "eviction"):
        assert schemas.serves("v1", f"/api/v1/namespaces/{{namespace}}/pods/{{name}}/{subresource}")


def served_by(client: Client) -> Schemas:
    def read(version: str) -> Object | None:
        path = f"/openapi/v3/{'apis' if '/' in version else 'api'}/{version}"
        try:
            found: Object = json.loads(client.request("GET", path))
        except ObjectNotFound:
            return None
        return found

    return Schemas(read)


@pytest.mark.cluster
def test_every_field_is_known_to_the_running_cluster(client: Client, bodies: list[Object]) -> None:
    schemas = served_by(client)
    devices = record(job(gpu_role(1)), gpu_resource="dra:gpu.nvidia.com")
    assert {trouble for body in [*bodies, *all_objects(devices)] for trouble in schemas.troubles(body)} == set()


@pytest.mark.pods("controllers")
def test_every_field_of_a_jobset_is_known_to_the_running_cluster(client: Client) -> None:
    schemas = served_by(client)
    what = msgspec.structs.replace(full_record(), workload="jobset")
    (jobset,) = (body for body in all_objects(what) if body["kind"] == "JobSet")
    assert schemas.troubles(jobset) == []
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["sspend"] = True
    assert schemas.troubles(jobset) == ["JobSet.spec.replicatedJobs.template.spec.sspend is unknown"]
