"""One add-on of a cluster, as a value: its objects, its version, and how to see that it works. A module per add-on
makes one; `install` applies it and `remove` takes it out, by the label that every object gets here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from longboat.clusters.spec import ADDON_LABEL, Addon, ClusterSpec
from longboat.core.jobs import Value
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import kind_of

Object = dict[str, Any]


class PoolsText(Value, frozen=True):
    """The pools file of the autoscaler, read and checked."""

    text: str
    simulates: bool = False
    """A pool has the provider `kwok`."""
    annotations: dict[str, str] = {}
    """Of the service account: who it is for a cloud."""
    labels: dict[str, str] = {}
    """Of the pod."""


@dataclass(frozen=True)
class AddonInputs:
    """What add-ons are made from."""

    spec: ClusterSpec
    client: Client | None = None
    """The cluster, once there is one; none: a dry run before that."""
    pools: PoolsText | None = None


@dataclass(frozen=True)
class AddonManifest:
    """An add-on as it should be."""

    name: Addon
    objects: Sequence[Object] = ()
    """In the order of their creation."""
    version: str = ""
    omitted: str = ""
    """Why there is nothing to install; such an add-on is no failure."""
    notes: tuple[str, ...] = ()
    """What the user should know once it is installed."""
    check: Callable[[Client], str] | None = field(default=None, compare=False)
    """What still keeps it from working when its pods are ready; empty: nothing."""


AddonMaker = Callable[[AddonInputs], AddonManifest]

ObjectKey = tuple[str, str, str]


def object_key(body: Object) -> ObjectKey:
    """Kind, namespace and name; a cluster-wide object has no namespace."""
    meta = body["metadata"]
    return (body["kind"], meta.get("namespace", "") if kind_of(body).is_namespaced else "", meta["name"])


def shown(key: ObjectKey) -> str:
    kind, namespace, name = key
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def labelled(objects: Iterable[Object], name: Addon) -> list[Object]:
    """The objects with our label."""
    marked = []
    for body in objects:
        meta = body["metadata"]
        marked.append({**body, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), ADDON_LABEL: name}}})
    return marked


def addon_of(body: Object) -> str:
    """The add-on that an object of a cluster was made for by `up`; empty: it is somebody else's."""
    return str((body["metadata"].get("labels") or {}).get(ADDON_LABEL, ""))
