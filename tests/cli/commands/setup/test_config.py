"""`longboat config`: set, show, unset; a mistake is told with its place and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.errors import JobError, NotFound, UsageError
from tests.cli.conftest import Longboat

USAGE = UsageError.exit_code
SPEC = JobError.exit_code


def test_set_show_unset(longboat: Longboat, home: Path) -> None:
    said = longboat("config", "set", "kubernetes.storage.claim", "training")
    assert said.err == f"longboat: kubernetes.storage.claim is set in {home / 'config.yaml'}\n"
    longboat("config", "set", "contexts.lab.namespace", "vision")
    assert longboat("config", "show", "kubernetes.storage.claim").out == "training\n"
    assert '"namespace": "vision"' in longboat("config", "show", "-o", "json").out
    assert longboat("config", "show", "contexts.lab").out == "namespace: vision\n"
    said = longboat("config", "unset", "kubernetes.storage.claim")
    assert said.err == f"longboat: kubernetes.storage.claim is not set any more in {home / 'config.yaml'}\n"
    assert "kubernetes.storage.claim was not set" in longboat("config", "unset", "kubernetes.storage.claim").err
    gone = longboat("config", "show", "kubernetes.storage", code=NotFound.exit_code)
    assert "kubernetes.storage is not set" in gone.err


def test_values_are_those_of_yaml(longboat: Longboat) -> None:
    longboat("config", "set", "kubernetes.pull_secrets", "[one, two]")
    longboat("config", "set", "kubernetes.allow_host_paths", "true")
    longboat("config", "set", "kubernetes.gate_s", "2m")
    assert longboat("config", "show", "kubernetes.pull_secrets").out == "- one\n- two\n"
    assert longboat("config", "show", "kubernetes.gate_s").out == "2m\n"
    assert longboat("config", "show", "kubernetes.allow_host_paths").out == "true\n"


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("engine", "slurm", "local"),
        ("kubernetes.storag.claim", "x", "storag"),
        ("kubernetes.storage", "{claim: a, path: /b}", "exactly one"),
        ("kubernetes.namespace", "Not A Name", "kubernetes.namespace"),
        ("kubernetes.images.pytorch", "x", "framework"),
        ("kubernetes.gate_s", "soon", "gate_s"),
        ("kubernetes.log_wait_s", "-1", "found the number -1, expected a duration"),
        ("kubernetes.pod", "{replicas: 2}", "metadata and spec"),
        ("kubernetes.queue", "[", "config kubernetes.queue"),
    ],
)
def test_mistakes_change_nothing(longboat: Longboat, home: Path, key: str, value: str, told: str) -> None:
    longboat("config", "set", "kubernetes.queue", "research")
    before = (home / "config.yaml").read_bytes()
    done = longboat("config", "set", key, value, code=SPEC)
    assert told in done.err and "Traceback" not in done.err
    assert (home / "config.yaml").read_bytes() == before


def test_no_value_and_no_key(longboat: Longboat) -> None:
    assert "longboat config unset" in longboat("config", "set", "engine", "", code=USAGE).err
    assert "kubernetes.namespace" in longboat("config", "set", "..", "x", code=None).err


def test_the_engine_that_was_set_is_the_default(longboat: Longboat) -> None:
    longboat("config", "set", "engine", "kubernetes")
    longboat.environment["KUBECONFIG"] = "/nonexistent"
    assert "no kubeconfig" in longboat("ps", code=205).err
    longboat("config", "unset", "engine")
    longboat("ps")


def test_a_broken_file_is_told_with_its_line(longboat: Longboat, home: Path) -> None:
    (home / "config.yaml").write_text("engine: local\nkubernetes:\n  namspace: a\n")
    done = longboat("config", "show", code=SPEC)
    assert "config.yaml:3:" in done.err and "namspace" in done.err
    (home / "config.yaml").unlink()
