"""The device plugin as a DaemonSet: on GPU nodes only, with no rights in the cluster, pinned."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.clusters.addons import gpu
from longboat.clusters.addons.addon import AddonInputs, labelled
from longboat.clusters.spec import GPU_LABEL
from longboat.kubeapi.client import ObjectList
from tests.clusters.worlds import cluster


def pod() -> dict[str, Any]:
    (body,) = gpu.make(AddonInputs(cluster(addons=("gpu",)))).objects
    template = body["spec"]["template"]
    assert body["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    return dict(template["spec"])


def test_it_runs_where_gpus_are_whatever_taints_a_node_has() -> None:
    assert pod()["nodeSelector"] == {GPU_LABEL: "true"}
    assert pod()["tolerations"] == [{"operator": "Exists"}]


def test_it_has_the_host_s_devices_and_nothing_else() -> None:
    spec = pod()
    (container,) = spec["containers"]
    assert container["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & spec.keys()
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount["readOnly"]}
    assert writable == {"/var/lib/kubelet/device-plugins", "/var/run/cdi"}


def test_its_version_is_pinned_and_devices_come_by_cdi() -> None:
    (container,) = pod()["containers"]
    assert container["image"] == "nvcr.io/nvidia/k8s-device-plugin:v0.19.3"
    assert "--device-list-strategy=cdi-cri" in container["args"]


class Cluster:
    """What other people's DaemonSets look like."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = list(items)

    def list(self, _kind: object, *, everywhere: bool) -> ObjectList[dict[str, Any]]:
        return ObjectList(self.items, "1")


NVIDIA = "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"
PLUGINS = "/var/lib/kubelet/device-plugins"


def daemon_set(
    image: str, namespace: str = "gpu-operator", name: str = "plugin", path: str = PLUGINS
) -> dict[str, Any]:
    pod = {"containers": [{"image": image}], "volumes": [{"emptyDir": {}}, {"hostPath": {"path": path}}]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"template": {"spec": pod}}}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (daemon_set(NVIDIA), "gpu-operator/plugin"),
        (daemon_set(NVIDIA, "kube-system"), "kube-system/plugin"),
        (daemon_set(NVIDIA, "nvidia-device-plugin", path=f"{PLUGINS}/"), "nvidia-device-plugin/plugin"),
        (daemon_set("mirror/k8s-device-plugin:v1", name="nvidia-plugin"), "gpu-operator/nvidia-plugin"),
        (daemon_set("docker.io/library/fluentd"), ""),
        (daemon_set("rocm/k8s-device-plugin:1.31", "kube-system"), ""),
        (daemon_set(NVIDIA, "team"), ""),
        (daemon_set(NVIDIA, "kube-system", path="/var/log"), ""),
        (labelled([gpu.daemon_set("nvcr.io/nvidia/k8s-device-plugin:v0.19.3")], "gpu")[0], ""),
    ],
)
def test_a_plugin_that_somebody_else_installed_is_recognized(item: dict[str, Any], expected: str) -> None:
    client: Any = Cluster(item)
    manifest = gpu.make(AddonInputs(cluster(), client))
    assert gpu.other_plugin(client) == expected
    assert bool(manifest.omitted) == bool(expected) != bool(manifest.objects)
