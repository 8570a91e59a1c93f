"""Builds deploy/Dockerfile and Dockerfile.ui as a user would, by scripts/image.sh: with buildah and a base of ours.

No registry is needed: the base and the builder are images of the testbed, and pip installs from a folder of wheels that
is mounted into the build. buildah keeps what it makes in a folder that is removed afterwards; of the machine's own
images nothing is used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testbed import binaries, checkout, wheels
from testbed.errors import Missing, TestbedError

ROOT = checkout.ROOT
PARTS = ("deploy/Dockerfile", "deploy/requirements.txt", "scripts/image.sh", ".dockerignore", "pyproject.toml")
UI_PARTS = ("deploy/Dockerfile.ui", "deploy/requirements-ui.txt")
"""What the image of the dashboard is made of besides."""
BUILD_TOOLS = ("setuptools>=68", "wheel")
BUILD_S = 600
"""A build takes about 20 s; one that hangs must not hang a whole test run."""


def key(*, ui: bool = False) -> str:
    """Changes with what goes into the image, its base excepted."""
    digest = hashlib.sha256(checkout.key().encode())
    for part in (*PARTS, *(UI_PARTS if ui else ())):
        digest.update((ROOT / part).read_bytes())
    return digest.hexdigest()


def missing_tool() -> str | None:
    return None if shutil.which("buildah") else "deploy/Dockerfile is built by buildah: install buildah"


def wheel_folder() -> Path:
    """Wheels of everything that the images have, for Debian's Python; fetched if they are not in the cache yet."""
    required = [ROOT / "deploy" / name for name in ("requirements.txt", "requirements-ui.txt")]
    texts = [file.read_text() for file in required]
    text = "\n".join([wheels.PYTHON, os.uname().machine, *BUILD_TOOLS, *texts])
    folder = binaries.cache_folder() / "wheels" / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as scratch:
            fetch_wheels(required, Path(scratch, "wheels"))
            if not folder.exists():
                Path(scratch, "wheels").rename(folder)
    return folder


def fetch_wheels(required: Sequence[Path], target: Path) -> None:
    platforms = [f"--platform=manylinux{version}_{os.uname().machine}" for version in wheels.PLATFORMS]
    options = [f"--dest={target}", f"--python-version={wheels.PYTHON}", *platforms, "--only-binary=:all:"]
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "download"]
    command = [*pip, *options, *BUILD_TOOLS, *(word for file in required for word in ("-r", str(file)))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"pip gets the packages of the image from a package index: {done.stderr.strip()[-400:]}")


def build(archive: Path, name: str, base: Path, builder: Path, *, ui: bool = False) -> None:
    """Write the image `name` to `archive`, in the form that containerd and docker import. `ui`: that of the dashboard,
    on top of one of the controller that is made for it."""
    lacks = missing_tool()
    if lacks:
        raise Missing(lacks)
    with tempfile.TemporaryDirectory(prefix="longboat-buildah-", dir=archive.parent) as scratch:
        tool = ["buildah", "--root", f"{scratch}/root", "--runroot", f"{scratch}/run"]
        try:
            images = {part: f"localhost/{part}:testbed" for part in ("base", "builder")}
            for part, file in (("base", base), ("builder", builder)):
                pulled = run([*tool, "pull", "--quiet", f"oci-archive:{file}:latest"]).strip().splitlines()[-1]
                run([*tool, "tag", pulled, images[part]])
            environment = {
                **os.environ,
                "TOOL": " ".join(tool),
                # No systemd and no control groups of our own are needed to run pip. The base has no history, and
                # buildah builds on no image whose history does not name all layers.
                "BUILD_OPTIONS": f"--isolation=chroot --pull-never --omit-history --volume={wheel_folder()}:/wheels:ro",
                "BASE": images["base"],
                "BUILDER": images["builder"],
                "PIP_OPTIONS": "--no-index --find-links=/wheels --disable-pip-version-check --root-user-action=ignore",
            }
            below = ["localhost/below:testbed"] if ui else []
            run(["sh", str(ROOT / "scripts" / "image.sh"), *below, name], environment)
            run([*tool, "push", "--quiet", name, f"docker-archive:{archive}:{name}"])
        finally:
            # Its layers are mounted, and belong to whoever is root in them: only buildah can remove them all.
            subprocess.run([*tool, "rmi", "--all", "--force"], capture_output=True, check=False)


def run(command: list[str], environment: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=BUILD_S, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        raise TestbedError(f"{' '.join(command[:6])} took longer than {BUILD_S} s") from None
    if done.returncode != 0:
        raise TestbedError(f"{' '.join(command)} failed:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")
    return done.stdout
