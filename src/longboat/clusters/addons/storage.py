"""The add-on storage: a StorageClass, and our own provisioner that serves its claims with folders.

`local-path`: a pod on every node that makes folders there. `nfs`: one pod that makes folders on the server. Both need
the image that has Longboat, and no other.
"""

from __future__ import annotations

from longboat import __version__
from longboat.clusters.addons.addon import AddonInputs, AddonManifest, Object
from longboat.clusters.provisioner.volumes import CLASS, LABELS, PLACE, PROVISIONER, VolumePlace
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import EngineError
from longboat.core.words import counted
from longboat.engines.kubernetes.install.controller_manifests import (
    RbacRule,
    binding_of,
    container_of,
    object_of,
    rules_of,
)
from longboat.engines.kubernetes.names import selector
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DAEMON_SET,
    DEPLOYMENT,
    NAMESPACE,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
    VOLUME,
)

NAME = "longboat-storage"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
FOLDER = "/volumes"
HEALTH_PORT = 8088
RULES: tuple[RbacRule, ...] = (
    RbacRule("", "persistentvolumeclaims", ("list", "watch")),
    RbacRule("", "persistentvolumes", ("list", "watch", "create", "delete")),
    RbacRule("", "nodes", ("get",)),
    RbacRule("", "events", ("create",)),
)


def make(inputs: AddonInputs) -> AddonManifest:
    spec = inputs.spec
    if spec.image is None:
        raise EngineError("storage needs the field image of the cluster file: an image that has Longboat")
    is_default = True
    if inputs.client is not None:
        check_place(inputs.client, spec)
        is_default = not has_other_default(inputs.client)
    objects = storage_objects(spec, spec.image, is_default=is_default)
    word = "the default class" if is_default else "the cluster has another default class"
    note = f"claims of the class {CLASS[spec.storage.kind]} get folders of {place_of(spec).text}; {word}"
    return AddonManifest("storage", objects, __version__, notes=(note,))


def place_of(spec: ClusterSpec) -> VolumePlace:
    storage = spec.storage
    return VolumePlace(path=storage.folder, server=storage.server or "")


def check_place(client: Client, spec: ClusterSpec) -> None:
    """Volumes stay where they are: with another place nobody would ever delete them."""
    others = [
        place
        for volume in client.list(VOLUME, labels=selector(list(LABELS.items()))).items
        if (place := (volume["metadata"].get("annotations") or {}).get(PLACE)) != place_of(spec).text
    ]
    if others:
        raise EngineError(
            f"storage keeps {counted(len(others), 'volume')} on {others[0]}, and volumes cannot be moved",
            hint="keep the field storage as it was, or delete their claims first",
        )


def has_other_default(client: Client) -> bool:
    return any(
        (body["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
        for body in client.list(STORAGE_CLASS).items
        if body["metadata"]["name"] not in CLASS.values()
    )


def storage_objects(spec: ClusterSpec, image: str, *, is_default: bool) -> list[Object]:
    labels = {**LABELS, "app.kubernetes.io/name": NAME}
    named = {"name": NAME, "labels": {**labels, "app.kubernetes.io/version": __version__}}
    placed = {**named, "namespace": NAME}
    # Folders of a node are mounted into its pod, which no stricter level allows.
    level = {"pod-security.kubernetes.io/enforce": "privileged"}
    account = {"kind": SERVICE_ACCOUNT.kind, "name": NAME, "namespace": NAME}
    return [
        object_of(NAMESPACE, {"name": NAME, "labels": {**labels, **level}}),
        object_of(SERVICE_ACCOUNT, placed, automountServiceAccountToken=False),
        object_of(CLUSTER_ROLE, named, rules=rules_of(RULES)),
        binding_of(CLUSTER_ROLE_BINDING, named, CLUSTER_ROLE, account),
        _workload(spec, image, placed),
        _storage_class(spec, named, is_default=is_default),
    ]


def _storage_class(spec: ClusterSpec, named: Object, *, is_default: bool) -> Object:
    kind = spec.storage.kind
    meta = {**named, "name": CLASS[kind], "annotations": {DEFAULT_CLASS: "true" if is_default else "false"}}
    # Of a node's folder the scheduler chooses the node first.
    binding = "WaitForFirstConsumer" if kind == "local-path" else "Immediate"
    return object_of(STORAGE_CLASS, meta, provisioner=PROVISIONER, volumeBindingMode=binding, reclaimPolicy="Delete")


def _workload(spec: ClusterSpec, image: str, placed: Object) -> Object:
    chosen = {"app.kubernetes.io/name": NAME}
    storage = spec.storage
    if storage.kind == "nfs":
        source: Object = {"nfs": {"server": storage.server, "path": storage.path}}
    else:
        source = {"hostPath": {"path": storage.folder, "type": "DirectoryOrCreate"}}
    pod = {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(spec, image)],
        "volumes": [{"name": "home", "emptyDir": {"sizeLimit": "64Mi"}}, {"name": "volumes", **source}],
    }
    template = {"metadata": {"labels": {**LABELS, **chosen}}, "spec": pod}
    body: Object = {"selector": {"matchLabels": chosen}, "template": template}
    if storage.kind == "nfs":
        return object_of(DEPLOYMENT, placed, spec={**body, "replicas": 1, "strategy": {"type": "Recreate"}})
    pod["tolerations"] = [{"operator": "Exists"}]  # nodes with GPUs are tainted, and need volumes most
    return object_of(DAEMON_SET, placed, spec=body)


def _container(spec: ClusterSpec, image: str) -> Object:
    container = container_of("provisioner", image, HEALTH_PORT, "256Mi")
    words = ["longboat", "cluster", "provisioner", "--folder", FOLDER, "--path", spec.storage.folder]
    words += ["--server", spec.storage.server] if spec.storage.server else []
    words += ["--only-node"] if spec.kind == "local" else []
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    # Root, but only to make folders and to delete what others wrote into them.
    rights = {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "FOWNER"]}
    return {
        **container,
        "command": [*words, "--health-port", str(HEALTH_PORT)],
        "env": [*container["env"], node],
        "securityContext": {**container["securityContext"], "capabilities": rights},
        "volumeMounts": [*container["volumeMounts"], {"name": "volumes", "mountPath": FOLDER}],
    }
