"""What leads from outside to a notebook: selects its pods alone, on its port alone, and goes with its record."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.cli.commands.workbench.exposing import exposure_of
from longboat.core.errors import UsageError
from longboat.core.jobs import Job, Role
from longboat.engines.local.engine import LocalEngine
from longboat.workbench.exposure import Exposure, check_open, exposure_objects
from longboat.workbench.jobs import ServerOptions, bench_job

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "lab", "uid": "u1"}


def made(exposure: Exposure, *, has_policy: bool = True) -> dict[str, Any]:
    objects = exposure_objects("lab", "ns", OWNER, exposure, has_policy=has_policy)
    assert all(body["metadata"]["ownerReferences"] == [OWNER] for body in objects)
    return {body["kind"]: body["spec"] for body in objects}


def test_a_port_of_the_nodes() -> None:
    specs = made(Exposure(port=8888, node_port=True))
    assert list(specs) == ["NetworkPolicy", "Service"]
    assert specs["Service"]["type"] == "NodePort" and specs["Service"]["selector"] == {"longboat.dev/run": "lab"}
    assert specs["Service"]["ports"] == [{"name": "http", "port": 80, "targetPort": 8888}]
    assert specs["NetworkPolicy"]["ingress"] == [{"ports": [{"port": 8888, "protocol": "TCP"}]}]
    assert list(made(Exposure(port=8888, node_port=True), has_policy=False)) == ["Service"]


def test_a_host_name() -> None:
    specs = made(Exposure(port=6006, ingress="lab.example.org"))
    assert specs["Service"]["type"] == "ClusterIP"
    (rule,) = specs["Ingress"]["rules"]
    assert rule["host"] == "lab.example.org"
    assert rule["http"]["paths"][0]["backend"] == {"service": {"name": "lab-open", "port": {"number": 80}}}


def test_one_that_listens_inside_only() -> None:
    job = Job(name="x", roles=(Role(name="worker", run="sh"),))
    check_open(bench_job(job, "lab", ServerOptions(idle_s=0, is_open=True)), "x")
    with pytest.raises(UsageError, match="listens inside of its pod only"):
        check_open(bench_job(job, "lab", ServerOptions(idle_s=0)), "x")


def test_bad_input(home: object) -> None:
    place = LocalEngine()
    assert exposure_of(place, {"node_port": False, "ingress": None}, 1) is None
    with pytest.raises(UsageError, match="are for a cluster"):
        exposure_of(place, {"node_port": True, "ingress": None}, 1)
