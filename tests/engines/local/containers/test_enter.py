"""A command in a container that runs: what it is told, and what a list of processes shows of that."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from longboat.core.jobs import Secret
from longboat.engines.local.containers.enter import enter, variable_options
from longboat.engines.local.records import LocalRecord
from tests.engines.local.values import job

PLAN = {"attempt": 0, "node": "worker-0", "workdir": "/w"}
PODMAN = """#!/bin/sh
case "$1" in
  container) echo true ;;
  *) echo "$@" >> {log}; echo "$HF_TOKEN $MODE $PATH" >> {log} ;;
esac
"""


def test_only_what_the_program_goes_by_is_told_with_its_value() -> None:
    variables = {"PATH": "/image", "LD_PRELOAD": "x.so", "HOMEPAGE": "h", "MODE": "fast", "LD_KEY": "s3cret"}
    options, given = variable_options(variables, ["LD_KEY"])
    assert options == ["HOMEPAGE", "LD_KEY", "LD_PRELOAD=x.so", "MODE", "PATH=/image"]
    assert given == {"HOMEPAGE": "h", "MODE": "fast", "LD_KEY": "s3cret"}


def test_a_secret_is_in_no_list_of_processes(tmp_path: Path) -> None:
    """Also where the caller's shell has another value of its name."""
    log = tmp_path / "log"
    (tmp_path / "podman").write_text(PODMAN.format(log=log))
    (tmp_path / "podman").chmod(0o755)
    record = LocalRecord(
        name="run", uid="feed", job=job(secrets=(Secret(name="HF_TOKEN"),)), base="/", created=0.0, user="me"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    code = enter(
        msgspec.structs.replace(record, containers="podman"),
        PLAN,
        ["true"],
        variables={"HF_TOKEN": "s3cret", "MODE": "fast", "PATH": "/image"},
        environment={"PATH": path, "HF_TOKEN": "other", "MODE": "slow"},
    )
    assert code == 0
    _, _, entering, values = log.read_text().splitlines()
    assert "--env=HF_TOKEN --env=MODE --env=PATH=/image" in entering and "s3cret" not in entering
    assert values == f"s3cret fast {path}"
