"""What a Job that runs the machine's own commands looks like, and what is refused before it is sent."""

from __future__ import annotations

import os
from typing import Any

import pytest

from testbed import hostjobs
from testbed.errors import TestbedError
from testbed.hostjobs import Order


def pod_of(order: Order, folders: tuple[str, ...] = ("/usr", "/etc")) -> dict[str, Any]:
    made: dict[str, Any] = hostjobs.manifest(order, folders)["spec"]["template"]["spec"]
    return made


def mounts(pod: dict[str, Any]) -> dict[str, bool]:
    return {one["mountPath"]: one.get("readOnly", False) for one in pod["containers"][0]["volumeMounts"]}


def test_the_machines_folders_are_there_to_read() -> None:
    pod = pod_of(Order(("nvidia-smi",), name="one", writable=("/data",)))
    assert mounts(pod) == {"/usr": True, "/etc": True, "/data": False, "/tmp": False}
    assert [one.get("hostPath", {}).get("path") for one in pod["volumes"]] == ["/usr", "/etc", "/data", None]
    assert pod["hostNetwork"] and pod["containers"][0]["securityContext"] == {"privileged": True}


def test_the_machines_own_tmp_takes_the_place_of_the_empty_one() -> None:
    pod = pod_of(Order(("true",), name="one", writable=("/tmp",)))
    assert [one["name"] for one in pod["volumes"]] == ["host-0", "host-1", "host-2"]


def test_gpus_are_a_limit() -> None:
    assert pod_of(Order(("x",), gpus=2, name="one"))["containers"][0]["resources"] == {
        "limits": {"nvidia.com/gpu": "2"}
    }
    assert pod_of(Order(("x",), gpus=0, name="one"))["containers"][0]["resources"] == {}


def test_a_failed_command_is_not_run_again() -> None:
    job = hostjobs.manifest(Order(("false",), name="one"), ())
    assert job["spec"]["backoffLimit"] == 0 and job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_python_is_the_one_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/opt/torch/bin:/bin")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    passed = hostjobs.inherited_environment()
    assert passed["PATH"] == "/opt/torch/bin:/bin" and "SECRET_TOKEN" not in passed


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (Order((), name="one"), "nothing to run"),
        (Order(("x",), name="Not/A/Name"), "is no name"),
        (Order(("x",), name="one", writable=("relative",)), "is no folder"),
        (Order(("x",), name="one", writable=("/no/such/folder",)), "is no folder"),
    ],
)
def test_refused(order: Order, told: str) -> None:
    with pytest.raises(TestbedError, match=told):
        hostjobs.manifest_here(order)


def test_here_only_what_the_machine_has() -> None:
    job = hostjobs.manifest_here(Order(("x",), name=hostjobs.new_name()))
    paths = {one["hostPath"]["path"] for one in job["spec"]["template"]["spec"]["volumes"] if "hostPath" in one}
    assert paths and all(os.path.isdir(path) for path in paths)


def test_what_a_pod_waits_for_is_told() -> None:
    waiting = {"state": {"waiting": {"reason": "ErrImageNeverPull", "message": "not there"}}}
    assert hostjobs.obstacle({"status": {"containerStatuses": [waiting]}}) == "ErrImageNeverPull not there"
    unscheduled = {"type": "PodScheduled", "message": "0/1 nodes: Insufficient nvidia.com/gpu"}
    assert "Insufficient" in hostjobs.obstacle({"status": {"conditions": [unscheduled]}})
    assert hostjobs.obstacle({"status": {}}) == ""
