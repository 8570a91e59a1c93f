"""Clusters of testbed/ for the parts that need one: brought up for a measurement, taken down after it."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PYTHON_IMAGE = "longboat.test/python:latest"
NAMESPACE = "default"

sys.path.insert(0, str(ROOT))


class Ground(NamedTuple):
    """A cluster, and a folder with a home of its own."""

    name: str
    folder: Path
    environment: dict[str, str]

    def set(self, **settings: Any) -> None:
        """What `longboat config set` would write."""
        home = Path(self.environment["LONGBOAT_HOME"])
        home.mkdir(exist_ok=True)
        (home / "config.yaml").write_text(json.dumps({"engine": "kubernetes", "kubernetes": settings}))

    def load_image(self, image: str) -> None:
        from testbed import binaries, clusters, images, namespaces, node

        holder = namespaces.holder_of(clusters.get(self.name), node.name_of(0))
        assert holder is not None
        images.load([image], binaries.find(("tools", "containerd")), holder, node.SOCKET)


@contextmanager
def cluster(name: str, *options: str) -> Iterator[Ground]:
    """`cluster("bench-pods", "--profile", "pods")`."""
    testbed("up", "--name", name, *options)
    try:
        with tempfile.TemporaryDirectory(prefix="longboat-bench-") as scratch:
            kept = {key: value for key, value in os.environ.items() if not key.startswith("LONGBOAT_")}
            # Without its bytecode every command would compile Longboat anew.
            kept.pop("PYTHONDONTWRITEBYTECODE", None)
            environment = {
                **kept,
                "KUBECONFIG": testbed("kubeconfig", "--name", name).strip(),
                "LONGBOAT_HOME": str(Path(scratch) / "home"),
            }
            ground = Ground(name, Path(scratch), environment)
            ground.set(image=PYTHON_IMAGE)
            until_it_has_its_account(environment)
            yield ground
    finally:
        testbed("down", "--name", name)


def until_it_has_its_account(environment: dict[str, str]) -> None:
    """A namespace takes no pods before."""
    import time

    from longboat.kubeapi.client import Client
    from longboat.kubeapi.kinds import SERVICE_ACCOUNT

    with Client.open(environment=environment, namespace=NAMESPACE) as client:
        while client.find(SERVICE_ACCOUNT, "default") is None:
            time.sleep(0.05)


def testbed(*arguments: str) -> str:
    command = [sys.executable, "-m", "testbed", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def kubectl() -> str:
    from testbed import binaries

    return str(binaries.find(("kubernetes",))["kubectl"])


@functools.cache
def longboat() -> str:
    """The command beside this Python; where nothing is installed, a script that starts it from the same places."""
    beside = Path(sys.executable).parent / "longboat"
    if beside.exists():
        return str(beside)
    folder = Path(tempfile.mkdtemp(prefix="longboat-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "longboat"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m longboat "$@"\n')
    script.chmod(0o755)
    return str(script)
