"""Writing a service's objects: a Deployment, and what it owns.

What pods mount is there before the first pod: a new Deployment has no replicas until then, and a changed one gets its
new template last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longboat.core.errors import EngineError, LongboatError, UsageError
from longboat.engines.kubernetes.creation import create_object
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, Conflict, Forbidden
from longboat.kubeapi.kinds import DEPLOYMENT, HPA, INGRESS, NODE, PDB, POD, SERVICE, Kind
from longboat.serving.kubernetes.status import owners_of

Object = dict[str, Any]

MOST_CONFLICTS = 10
"""Tries to change a Deployment whose status the cluster writes at the same time: it does so a few times per change."""
CHANGED: dict[str, Kind] = {kind.kind: kind for kind in (SERVICE, PDB, INGRESS, HPA)}
"""Kinds that each service has at most one of, which a new version changes."""


def put(client: Client, objects: Sequence[Object], *, parent: Object | None = None) -> Object:
    """Create a Deployment with what it owns; one that cannot be completed goes again. `parent`: who owns it."""
    deployment, *rest = objects
    name, replicas = deployment["metadata"]["name"], deployment["spec"]["replicas"]
    empty = {**deployment, "spec": {**deployment["spec"], "replicas": 0}}
    if parent is not None:
        empty = {**empty, "metadata": {**empty["metadata"], "ownerReferences": [owner_of(parent)]}}
    try:
        made = client.create(empty)
    except AlreadyExists:
        raise UsageError(f"a Deployment {name} was made this moment", hint="try again") from None
    try:
        for body in rest:
            _create(client, body, owner_of(made))
        return client.patch(DEPLOYMENT, name, {"spec": {"replicas": replicas}})
    except LongboatError:
        client.delete(DEPLOYMENT, name, uid=made["metadata"]["uid"])
        raise


def change(client: Client, objects: Sequence[Object]) -> None:
    """Give a Deployment that is there another version."""
    deployment, *rest = objects
    there = client.get(DEPLOYMENT, deployment["metadata"]["name"])
    for body in rest:
        _create(client, body, owner_of(there))
    replace_spec(client, deployment)
    remove_owned(client, there, PDB)  # of an older version, under the service's own name: of two a drain respects none
    if all(body["kind"] != INGRESS.kind for body in rest):
        remove_owned(client, there, INGRESS)


def remove_owned(client: Client, deployment: Mapping[str, Any], kind: Kind) -> None:
    """Of a version that has none of this kind: what the one before had must not stay."""
    name, uid = deployment["metadata"]["name"], deployment["metadata"]["uid"]
    with contextlib.suppress(Forbidden):  # of what the user may not see, and so has not made
        there = client.find(kind, name)
        if there is not None and uid in [each.get("uid") for each in owners_of(there)]:
            client.delete(kind, name, uid=there["metadata"]["uid"])


def replace_spec(client: Client, deployment: Object) -> None:
    """A whole new spec: what the version before had and this one has not must not stay. Its selector cannot change."""
    name = deployment["metadata"]["name"]
    version = {"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind}
    for _ in range(MOST_CONFLICTS):
        there = client.get(DEPLOYMENT, name)
        annotations = {**(there["metadata"].get("annotations") or {}), **deployment["metadata"]["annotations"]}
        metadata = {**there["metadata"], "annotations": annotations}
        with contextlib.suppress(Conflict):
            client.replace({**version, **there, "metadata": metadata, "spec": deployment["spec"]})
            return
    raise EngineError(f"{name} is being changed by others", hint="try again")


def patch_as_read(client: Client, read: Callable[[], Object], change_of: Callable[[Object], Object]) -> Object:
    """Change a Deployment as it was read; where somebody else has meanwhile, a follower perhaps, it is read again:
    what is derived from the one before would take back what they did."""
    for _ in range(MOST_CONFLICTS):
        there = read()
        metadata, patch = there["metadata"], change_of(there)
        patch = {**patch, "metadata": {**patch["metadata"], "resourceVersion": metadata["resourceVersion"]}}
        with contextlib.suppress(Conflict):
            return client.patch(DEPLOYMENT, metadata["name"], patch)
    raise EngineError("the service is being changed by others", hint="try again")


def put_owned(client: Client, deployment: Mapping[str, Any], body: Object) -> None:
    _create(client, body, owner_of(deployment))


def owner_of(deployment: Mapping[str, Any]) -> Object:
    metadata = deployment["metadata"]
    return {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": DEPLOYMENT.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _create(client: Client, body: Object, owner: Object) -> None:
    """Raises EngineError where an object of that name is there that is not of this service, or not what it was."""
    metadata, uid = body["metadata"], owner["uid"]
    if body["kind"] == "PersistentVolumeClaim":
        create_object(client, body, owner=uid)
        return
    kind = CHANGED.get(body["kind"])
    there = client.find(kind, metadata["name"]) if kind is not None else None
    if kind is not None and there is not None and uid in [each.get("uid") for each in owners_of(there)]:
        client.patch(kind, metadata["name"], {"spec": body["spec"]})
        return
    create_object(client, {**body, "metadata": {**metadata, "ownerReferences": [owner]}}, owner=uid)


def drop_lost(client: Client, labels: str) -> None:
    """Remove pods that are being deleted on nodes that do not answer: no kubelet will ever say that they have ended.

    A replica writes nothing that another one could spoil; a node that comes back ends it.
    """
    for pod in client.list(POD, labels=labels).items:
        host = pod["spec"].get("nodeName")
        if host and pod["metadata"].get("deletionTimestamp"):
            with contextlib.suppress(Forbidden):  # who may not see nodes waits
                node = client.find(NODE, host)
                conditions = (node or {}).get("status", {}).get("conditions") or ()
                if not any((each["type"], each["status"]) == ("Ready", "True") for each in conditions):
                    client.delete(POD, pod["metadata"]["name"], grace_s=0, uid=pod["metadata"]["uid"])
