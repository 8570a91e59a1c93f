from __future__ import annotations

from typing import Any

import pytest

from longboat.core.jobs import Resources, Role
from longboat.engines.kubernetes.manifests import pod_template
from longboat.engines.kubernetes.records import CodeStore, Record, Storage
from tests.engines.kubernetes.manifest_samples import gpu_role, job, record, role


def template(what: Record | None = None, *, attempt: int = 0) -> dict[str, Any]:
    what = what or record()
    return pod_template.pod_template(what, what.job.roles[0], attempt, labels={"longboat.dev/run": what.name})


def spec_of(*roles: Role, **fields: Any) -> dict[str, Any]:
    spec: dict[str, Any] = template(record(job(*roles), **fields))["spec"]
    return spec


def container_of(*roles: Role, **fields: Any) -> dict[str, Any]:
    (container,) = spec_of(*roles, **fields)["containers"]
    found: dict[str, Any] = container
    return found


def test_the_launcher_is_the_first_process_and_everything_it_needs_is_mounted() -> None:
    container = container_of(role("chief"))
    assert container["name"] == "main"
    assert container["command"] == [
        "python3", "-I", "-S", "/longboat/launcher/launcher.pyz", "--pod", "/longboat", "chief",
    ]  # fmt: skip
    assert "args" not in container
    places = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert set(places) == {"/longboat/node", "/dev/shm", "/longboat/launcher", "/longboat/gang"}
    assert places["/longboat/gang"]["readOnly"] and places["/longboat/launcher"]["readOnly"]
    assert container["workingDir"] == "/longboat/node"
    assert container["terminationMessagePolicy"] == "File"


def test_every_mount_has_its_volume() -> None:
    spec = template(record(packs=("longboat-code-a", "longboat-code-b")), attempt=3)["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert {mount["name"] for mount in spec["containers"][0]["volumeMounts"]} == set(volumes)
    assert volumes["gang"]["secret"]["secretName"] == "train-a3"
    assert volumes["launcher"]["secret"]["secretName"] == "longboat-launcher-0123456789abcdef"
    assert volumes["code"]["projected"]["sources"] == [
        {"secret": {"name": "longboat-code-a", "items": [{"key": "pack", "path": "0"}]}},
        {"secret": {"name": "longboat-code-b", "items": [{"key": "pack", "path": "1"}]}},
    ]
    assert spec["subdomain"] == "train-a3"


def test_code_in_the_storage_is_mounted_as_a_pack() -> None:
    storage = Storage(nfs="nas:/x", folder="longboat/train-1")
    mounts = container_of(role(), storage=storage, stored_packs=("code/0",))["volumeMounts"]
    assert {
        "name": "storage",
        "mountPath": "/longboat/code/0",
        "subPath": "longboat/train-1/code/0",
        "readOnly": True,
    } in mounts


def test_the_secret_of_a_code_store_is_mounted_and_is_no_variable() -> None:
    found = template(record(job(role()), code_store=CodeStore(url="s3://bucket", secret="reader")))["spec"]
    (container,) = found["containers"]
    assert {"name": "store", "secret": {"secretName": "reader", "defaultMode": 0o444}} in found["volumes"]
    assert {"name": "store", "mountPath": "/longboat/store", "readOnly": True} in container["volumeMounts"]
    assert "reader" not in str(container.get("env")) and "envFrom" not in container
    bare = template(record(job(role()), code_store=CodeStore(url="s3://bucket")))["spec"]
    assert "store" not in [volume["name"] for volume in bare["volumes"]]


def test_the_pod_is_left_alone_and_ends_in_time() -> None:
    found = template(record(job(role(), grace_s=12.5)))
    assert found["metadata"]["annotations"] == {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    spec = found["spec"]
    assert spec["terminationGracePeriodSeconds"] == 23
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False
    lost = {t["key"]: t for t in spec["tolerations"]}
    for state in ("not-ready", "unreachable"):
        toleration = lost[f"node.kubernetes.io/{state}"]
        assert (toleration["tolerationSeconds"], toleration["effect"]) == (60, "NoExecute")


def test_no_gpu_is_visible_where_none_was_asked_for() -> None:
    container = container_of(role())
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void" and env["CUDA_VISIBLE_DEVICES"] == ""
    assert "resources" not in container
    spec = spec_of(role())
    assert len(spec["tolerations"]) == 2 and "affinity" not in spec


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb"])
def test_gpus_are_asked_for_by_the_name_that_nodes_offer(resource: str) -> None:
    container = container_of(gpu_role(4), gpu_resource=resource)
    assert container["resources"] == {
        "requests": {"cpu": "4", "memory": "64Gi", resource: "4"},
        "limits": {"memory": "64Gi", resource: "4"},
    }
    assert "env" not in container
    keys = {t["key"] for t in spec_of(gpu_role(4), gpu_resource=resource)["tolerations"] if "effect" not in t}
    assert keys == {"nvidia.com/gpu", resource}


def test_gpus_by_dynamic_resource_allocation() -> None:
    spec = spec_of(gpu_role(2), gpu_resource="dra:gpu.nvidia.com")
    assert spec["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "train-a0-worker"}]
    resources = spec["containers"][0]["resources"]
    assert resources["claims"] == [{"name": "gpus"}]
    assert not any("dra" in name for name in (*resources["requests"], *resources["limits"]))
    assert "resourceClaims" not in spec_of(role(), gpu_resource="dra:gpu.nvidia.com")


def test_a_gpu_type_is_any_of_the_labels_that_nodes_carry() -> None:
    selector = {"worker": {"nvidia.com/gpu.product": ("A", "B"), "gpu": ("h100",)}}
    affinity = spec_of(gpu_role(1, "H100"), gpu_selector=selector, gpu_resource="nvidia.com/gpu")["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [
        {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100"]}]},
        {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["A", "B"]}]},
    ]
    assert "affinity" not in spec_of(role("other"), gpu_selector=selector)


@pytest.mark.parametrize(
    ("needs", "size"),
    [
        (Resources(), "64Mi"),
        (Resources(memory=32 << 30), "16Gi"),
        (Resources(memory=32 << 30, shm=1 << 30), "1Gi"),
        (Resources(shm=10**9), "1G"),
    ],
)
def test_shared_memory_is_as_asked_or_half_of_the_memory(needs: Resources, size: str) -> None:
    volumes = {volume["name"]: volume for volume in spec_of(role(resources=needs))["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": size}


def test_disk_is_ephemeral_storage_and_cpus_are_no_limit() -> None:
    resources = container_of(role(resources=Resources(cpus=0.5, disk=10**9)))["resources"]
    assert resources == {"requests": {"cpu": "0.5", "ephemeral-storage": "1G"}}


def test_secrets_are_references() -> None:
    env = container_of(gpu_role(1), secrets={"HF_TOKEN": ("train-env", "HF_TOKEN")})["env"]
    assert env == [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "train-env", "key": "HF_TOKEN"}}},
    ]


def test_the_restricted_profile() -> None:
    spec = spec_of(role(), security="restricted")
    assert spec["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
    }
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    plain = spec_of(role())
    assert plain["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert "securityContext" not in plain["containers"][0]


def test_topology_is_asked_of_kueue_only() -> None:
    topology = {"required": "rack"}
    queued = template(record(queue="q", topology=topology))["metadata"]["annotations"]
    assert queued["kueue.x-k8s.io/podset-required-topology"] == "rack"
    assert not any("kueue" in key for key in template(record(topology=topology))["metadata"]["annotations"])


def test_accounts_and_pull_secrets() -> None:
    spec = spec_of(role(), service_account="trainer", pull_secrets=("a", "b"))
    assert spec["serviceAccountName"] == "trainer"
    assert spec["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
