"""The add-on `gpu`: NVIDIA's device plugin on every node with GPUs, which offers them as nvidia.com/gpu. Pure.

It gives pods their devices by CDI, through the container runtime that the node has. So there is no RuntimeClass for
GPUs: a pod could name it and see devices that it has not asked for.
"""

from __future__ import annotations

import re

from longboat.clusters.addons.addon import AddonInputs, AddonManifest, Object, addon_of
from longboat.clusters.spec import GPU_LABEL
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import DAEMON_SET

NAME, NAMESPACE = "nvidia-device-plugin", "kube-system"
SELECTOR = {"app.kubernetes.io/name": NAME}
DRIVER_ROOT = "/driver-root"
_FOLDERS = {
    "driver-root": ("/", DRIVER_ROOT, "Directory"),
    "device-plugins": ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet/device-plugins", "Directory"),
    "cdi": ("/var/run/cdi", "/var/run/cdi", "DirectoryOrCreate"),
}
"""Volume -> folder of the node, where the plugin sees it, type."""
_OPERATORS = re.compile("nvidia|gpu-operator")
"""Of namespaces: as operators and charts call them."""


def make(inputs: AddonInputs) -> AddonManifest:
    versions = inputs.spec.versions
    other = other_plugin(inputs.client) if inputs.client else ""
    if other:
        return AddonManifest("gpu", omitted=f"{other} offers the GPUs of the nodes already, left alone")
    label = f"the device plugin runs on nodes with the label {GPU_LABEL}=true"
    notes = (label,) if inputs.spec.kind == "existing" else ()
    return AddonManifest("gpu", [daemon_set(versions.device_plugin_image)], versions.device_plugin, notes=notes)


def daemon_set(image: str) -> Object:
    meta = {"name": NAME, "namespace": NAMESPACE, "labels": SELECTOR}
    template = {"metadata": {"labels": SELECTOR}, "spec": _pod(image)}
    body = {"selector": {"matchLabels": SELECTOR}, "template": template}
    return {"apiVersion": DAEMON_SET.api_version, "kind": DAEMON_SET.kind, "metadata": meta, "spec": body}


def _pod(image: str) -> Object:
    return {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {GPU_LABEL: "true"},
        "tolerations": [{"operator": "Exists"}],  # as other agents of a node
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [_container(image)],
        "volumes": [
            {"name": name, "hostPath": {"path": path, "type": kind}} for name, (path, _, kind) in _FOLDERS.items()
        ],
    }


def _container(image: str) -> Object:
    return {
        "name": "plugin",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["nvidia-device-plugin"],
        "args": [
            "--device-list-strategy=cdi-cri",
            "--nvidia-driver-root=/",
            f"--container-driver-root={DRIVER_ROOT}",
            "--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook",
        ],
        # It must open the device files of all GPUs, and Kubernetes knows no other way to that for a pod. It has neither
        # an account in the cluster nor the host's network or processes, and writes into two folders of the host only.
        "securityContext": {"privileged": True, "readOnlyRootFilesystem": True},
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [_mount(name, path) for name, (_, path, _) in _FOLDERS.items()],
    }


def _mount(name: str, path: str) -> Object:
    mount = {"name": name, "mountPath": path, "readOnly": name == "driver-root"}
    # Volumes of other pods that are unmounted on the host are unmounted here too: they would stay busy.
    return mount | ({"mountPropagation": "HostToContainer"} if name == "driver-root" else {})


def other_plugin(client: Client) -> str:
    """A device plugin of NVIDIA's that somebody else installed, as namespace/name; empty: there is none."""
    for each in client.list(DAEMON_SET, everywhere=True).items:
        if is_plugin(each) and not addon_of(each):
            return f"{each['metadata']['namespace']}/{each['metadata']['name']}"
    return ""


def is_plugin(daemon_set: Object) -> bool:
    """Whether it is NVIDIA's plugin and can be at work: where plugins and operators are installed, with the folder in
    which the kubelet looks for plugins. A tenant's DaemonSet of that name keeps nobody's GPUs back.
    """
    meta, pod = daemon_set["metadata"], daemon_set["spec"]["template"]["spec"]
    if meta["namespace"] != NAMESPACE and not _OPERATORS.search(meta["namespace"]):
        return False
    paths = [str((volume.get("hostPath") or {}).get("path")).rstrip("/") for volume in pod.get("volumes") or ()]
    if not any(path.endswith("/kubelet/device-plugins") for path in paths):  # distributions have it elsewhere
        return False
    images = [str(container.get("image", "")) for container in pod.get("containers") or ()]
    return any("device-plugin" in image and "nvidia" in f"{image} {meta['name']}" for image in images)
