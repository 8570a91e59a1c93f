"""Manifests of other projects' add-ons: from the cluster file's `manifests`, its `source`, or the project's release.

Reads and checks them; what is done with the objects is `install`'s.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from longboat.clusters.addons.addon import Object
from longboat.clusters.small_files import load_file
from longboat.clusters.spec import Addon, ClusterSpec
from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.kubeapi.kinds import (
    API_SERVICE,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    CRD,
    DAEMON_SET,
    DEPLOYMENT,
    DEVICE_CLASS,
    MUTATING_WEBHOOKS,
    NAMESPACE,
    NETWORK_POLICY,
    PDB,
    PRIORITY_CLASS,
    ROLE,
    ROLE_BINDING,
    RUNTIME_CLASS,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
    VALIDATING_WEBHOOKS,
)

REMOVABLE = (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    API_SERVICE,
    DEPLOYMENT,
    DAEMON_SET,
    SERVICE,
    CONFIG_MAP,
    SECRET,
    ROLE_BINDING,
    ROLE,
    SERVICE_ACCOUNT,
    NETWORK_POLICY,
    PDB,
    CLUSTER_ROLE_BINDING,
    CLUSTER_ROLE,
    PRIORITY_CLASS,
    RUNTIME_CLASS,
    DEVICE_CLASS,
    STORAGE_CLASS,
    CRD,
    NAMESPACE,
)
"""Kinds that an add-on may have, in the order of their removal: first what would refuse or delay the rest;
bindings after what is in namespaces, because they tell which namespaces are used."""


CHECKSUM = "#sha256="
"""Stands after the location of a manifest, with 64 digits: no other content is taken."""


class ReleasedManifest(Value, frozen=True):
    """A file that a project publishes with each of its versions."""

    addon: Addon
    version: str
    url: str
    images: tuple[str, ...]
    """Images that a manifest of this version names. What says something else is another version's file."""

    @property
    def file_name(self) -> str:
        """Its name in a folder or bundle of files, below `manifests`."""
        return f"manifests/{self.addon}-{self.version}.yaml"


def load_manifest(spec: ClusterSpec, release: ReleasedManifest) -> list[Object]:
    return read_release(spec, release)[1]


def read_release(spec: ClusterSpec, release: ReleasedManifest) -> tuple[bytes, list[Object]]:
    """The file and its objects. What the user names is taken as it is, if it has the checksum that may follow it; the
    project's own must be of the pinned version.
    """
    location, _, checksum = dict(spec.manifests).get(release.addon, release.url).partition(CHECKSUM)
    content = load_file(location)
    if checksum and hashlib.sha256(content).hexdigest() != checksum:
        raise EngineError(f"{location} has another content than {CHECKSUM[1:]}{checksum} says")
    objects = parse_manifest(content, location)
    if release.addon not in dict(spec.manifests):
        missing = [image for image in release.images if image not in set(images_of(objects))]
        if missing:
            hint = f"manifests: {{{release.addon}: FILE}} takes a manifest of yours"
            raise EngineError(
                f"{location} is not the manifest of {release.addon} {release.version}: no image {missing[0]}", hint=hint
            )
    return content, objects


def parse_manifest(content: bytes, location: str) -> list[Object]:
    """YAML as kubectl reads it, or JSON; a List is taken apart. EngineError says what is wrong."""
    import yaml

    try:
        documents = list(yaml.load_all(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise EngineError(f"{location}: not YAML: {' '.join(str(error).split())}") from None
    objects: list[Object] = []
    for document in documents:
        if isinstance(document, list):
            objects += document
        elif isinstance(document, dict) and document.get("kind") == "List":
            objects += document.get("items") or []
        elif document is not None:
            objects.append(document)
    if not objects:
        raise EngineError(f"{location}: there are no objects in it")
    for body in objects:
        _check(body, location)
    return [_without_placeholders(body) for body in objects]


def _check(body: Any, location: str) -> None:
    meta = body.get("metadata") if isinstance(body, dict) else None
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not isinstance(body.get("kind"), str):
        raise EngineError(f"{location}: a document is no object: it has no kind or no name")
    if body["kind"] not in {kind.kind for kind in REMOVABLE}:
        hint = "kubectl apply installs it; up and down leave it alone then"
        raise EngineError(f"{location}: {body['kind']} {meta['name']}: down could not remove this kind", hint=hint)


def _without_placeholders(body: Object) -> Object:
    """A certificate authority that is an empty line is filled in by the controller: applied again, it would be lost."""
    text = msgspec.json.encode(body)
    if b'"caBundle"' not in text:
        return body
    cleaned: Object = _dropped(msgspec.json.decode(text))
    return cleaned


def _dropped(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _dropped(value) for key, value in part.items() if not (key == "caBundle" and value == "Cg==")}
    return [_dropped(item) for item in part] if isinstance(part, list) else part


def images_of(part: Any) -> list[str]:
    """Images that objects name, at any depth."""
    if isinstance(part, dict):
        own = [part["image"]] if isinstance(part.get("image"), str) else []
        return own + [image for value in part.values() for image in images_of(value)]
    return [image for item in part for image in images_of(item)] if isinstance(part, list) else []
