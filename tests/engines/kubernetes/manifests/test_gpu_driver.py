"""The driver of the nodes: what a pod mounts of it, and where its ranks look for it."""

from __future__ import annotations

from longboat.engines.kubernetes.manifests import gang_file
from longboat.engines.kubernetes.manifests.gang_file import layout_of
from longboat.engines.kubernetes.manifests.pod_template import pod_template
from longboat.engines.kubernetes.records import GpuDriver, Record
from longboat.launcher.node.environment import node_environment
from longboat.launcher.node.plan import NodePlan
from longboat.launcher.pod.gang_file import plan_of
from tests.engines.kubernetes.manifest_samples import gpu_role, job, record, role

LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


def driven(libcuda: str | None = LIBCUDA) -> Record:
    roles = (gpu_role(2, name="gpu"), role("ps"))
    return record(job(*roles), gpu_driver=GpuDriver(folder="/usr/lib/nvidia-384", libcuda=libcuda))


def mounted(what: Record, name: str) -> dict[str, dict[str, str]]:
    """Where in the pod -> what of the node."""
    spec = pod_template(what, what.job.role(name), 0, labels={})["spec"]
    sources = {volume["name"]: volume["hostPath"] for volume in spec["volumes"] if "hostPath" in volume}
    mounts = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] in sources]
    assert all(mount["readOnly"] for mount in mounts)
    return {mount["mountPath"]: sources[mount["name"]] for mount in mounts}


def environment(what: Record, name: str, inherited: dict[str, str]) -> dict[str, str]:
    gang = gang_file.gang_of(what, layout_of(what, 0), timeout_s=None, code=None)
    return node_environment(NodePlan(plan_of(gang, name, 0, "/longboat", inherited)), inherited)


def test_folders_and_libcuda_are_mounted_where_cuda_images_look() -> None:
    assert mounted(driven(), "gpu") == {
        "/usr/local/nvidia/lib": {"path": "/usr/lib/nvidia-384", "type": "Directory"},
        "/usr/local/nvidia/bin": {"path": "/usr/lib/nvidia-384/bin", "type": "Directory"},
        "/usr/local/nvidia/lib64/libcuda.so.1": {"path": LIBCUDA, "type": "File"},
    }
    assert "/usr/local/nvidia/lib64/libcuda.so.1" not in mounted(driven(libcuda=None), "gpu")


def test_a_role_without_gpus_has_nothing_of_it() -> None:
    assert mounted(driven(), "ps") == {}
    assert environment(driven(), "ps", {"PATH": "/bin"}).keys() & {"LD_LIBRARY_PATH"} == set()


def test_paths_of_the_image_come_after_those_of_the_driver() -> None:
    env = environment(driven(), "gpu", {"PATH": "/opt/bin:/bin", "LD_LIBRARY_PATH": "/opt/lib"})
    assert env["PATH"] == "/usr/local/nvidia/bin:/opt/bin:/bin"
    assert env["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib:/usr/local/nvidia/lib64:/opt/lib"
    env = environment(driven(), "gpu", {"PATH": "/bin"})
    assert env["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"


def test_without_the_setting_nothing_changes() -> None:
    plain = record(job(gpu_role(2, name="gpu")))
    assert mounted(plain, "gpu") == {}
    assert "LD_LIBRARY_PATH" not in environment(plain, "gpu", {"PATH": "/bin"})
