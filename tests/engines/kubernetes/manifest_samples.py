"""Records of runs for the tests of the manifests."""

from __future__ import annotations

from typing import Any

from longboat.core.jobs import Gpus, Job, Resources, Role
from longboat.engines.kubernetes.records import Record

IMAGE = "longboat.test/python:latest"
UID = "0123456789abcdef"


def job(*roles: Role, **fields: Any) -> Job:
    given = roles or (Role(name="worker", run=("python3", "-c", "print(1)")),)
    defaults: dict[str, Any] = {"name": "train", "ends": tuple(role.name for role in given)}
    return Job(roles=given, **{**defaults, **fields})


def record(what: Job | None = None, **fields: Any) -> Record:
    what = what or job()
    defaults: dict[str, Any] = {
        "name": what.name,
        "uid": UID,
        "job": what,
        "namespace": "default",
        "created": 1.0,
        "user": "anna@example.org",
        "images": {role.name: role.image or IMAGE for role in what.roles},
        "launcher": "longboat-launcher-0123456789abcdef",
        "checkpoint_dir": "/longboat/node/checkpoints",
        "artifacts_dir": "/longboat/node/artifacts",
    }
    return Record(**{**defaults, **fields})


def role(name: str = "worker", **fields: Any) -> Role:
    return Role(**{"name": name, "run": "python3 train.py", **fields})


def gpu_role(count: int = 8, kind: str | None = None, **fields: Any) -> Role:
    return role(resources=Resources(gpus=Gpus(count=count, type=kind), cpus=4, memory=64 << 30), **fields)
