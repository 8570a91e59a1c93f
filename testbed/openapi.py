"""What versions of Kubernetes that are not built here say about their objects: the OpenAPI files of their Go modules.

They are fetched once with the Go command, by whatever proxy it is set to use, checked against the pinned sum and kept
in the cache. Not here: what is done with them; and a running cluster, which tells of itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from testbed import binaries, build
from testbed.errors import Missing, TestbedError

MODULE = "k8s.io/kubernetes"
SUMS = {
    "1.29.15": "h1:hLcyf3XmxtfkubCEmmPX5QVD7lDclXjvEUrJeP283LM=",
    "1.37.1": "h1:LTUzSbp9n0W7649oVKBYfC48zcoD3vCk++1PZQn28q8=",
}
"""The oldest and the newest version that Longboat works with, each with the sum of its module as go.sum has it."""
OLDEST, NEWEST = SUMS
FOLDER = "api/openapi-spec/v3"
UNREACHABLE = ("dial tcp", "lookup disabled", "i/o timeout", "TLS handshake timeout", "connection re")
"""Words of the Go command about a proxy that it cannot speak to, which is no fault of what it was asked for."""


def cached_folder(version: str) -> Path:
    return binaries.cache_folder() / "openapi" / version


def missing(version: str) -> str | None:
    """What this machine lacks to have them."""
    if cached_folder(version).exists() or build.go_program() is not None:
        return None
    return f"the OpenAPI of Kubernetes {version} comes with its Go module: install Go 1.21 or newer"


def folder(version: str) -> Path:
    """Where the files of this version are; fetched if they are not in the cache yet. Raises Missing."""
    wanted = cached_folder(version)
    if not wanted.exists():
        lacks = missing(version)
        if lacks:
            raise Missing(lacks)
        with tempfile.TemporaryDirectory(prefix="longboat-modules-") as modules:
            keep(fetched(version, Path(modules)) / FOLDER, wanted)
    return wanted


def keep(files: Path, wanted: Path) -> None:
    """All of them or none; that somebody else was faster is no error."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=wanted.parent))
    try:
        shutil.copytree(files, scratch, dirs_exist_ok=True)
        scratch.chmod(0o755)
        scratch.rename(wanted)
    except OSError:
        if not wanted.exists():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def fetched(version: str, modules: Path) -> Path:
    """The module, unpacked in a folder of its own: 100 MB of which a tenth is kept."""
    command = [str(build.go_program()), "mod", "download", "-json", f"{MODULE}@v{version}"]
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": "-modcacherw", "GOMODCACHE": str(modules)}
    done = subprocess.run(command, cwd=modules, env=environment, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout) if done.stdout.strip() else {}
    if done.returncode != 0:
        words = str(report.get("Error") or done.stderr).strip()
        if any(phrase in words for phrase in UNREACHABLE):
            raise Missing(f"the OpenAPI of Kubernetes {version} cannot be fetched: {words.splitlines()[0]}")
        raise TestbedError(f"{' '.join(command)}: {words}")
    if report["Sum"] != SUMS[version]:
        raise TestbedError(f"{MODULE}@v{version} is {report['Sum']}, which is not what was pinned")
    return Path(report["Dir"])


def document(version: str, group_version: str) -> dict[str, Any] | None:
    """The OpenAPI of `v1`, `batch/v1`, ... as that version of Kubernetes serves it; None where it has no such."""
    parts = ["apis", *group_version.split("/")] if "/" in group_version else ["api", group_version]
    file = folder(version) / f"{'__'.join(parts)}_openapi.json"
    if not file.exists():
        return None
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def groups(version: str) -> dict[str, tuple[str, ...]]:
    """The API groups that this version of Kubernetes knows, each with its versions."""
    versions: dict[str, tuple[str, ...]] = {}
    for file in sorted(folder(version).glob("apis__*__*_openapi.json")):
        _, group, number = file.name.removesuffix("_openapi.json").split("__")
        versions[group] = (*versions.get(group, ()), number)
    return versions
