"""A podman of the tests' own: storage, locks and settings in one folder; its image has this machine's Python alone.

Nothing of it is seen by, or taken from, what the machine's users have in podman.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from testbed.errors import Missing

IMAGE = "longboat.test/own-python:latest"
RUNTIMES = ("crun", "runc")
"""podman's own choice first; it refuses machines with both versions of control groups."""
COMMAND_S = 120.0
LEFT_OUT = (
    "site-packages",
    "dist-packages",
    "__pycache__",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
)
PROGRAMS = ("sh", "sleep", "cat", "true", "env", "kill", "chmod")


class Podman:
    """podman with a folder of its own; `environment` makes every podman use that one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = IMAGE
        self.environment: Mapping[str, str] = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    def __call__(self, *arguments: str) -> str:
        done = self._run(*arguments)
        assert done.returncode == 0, f"podman {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            ["podman", *arguments], env=environment, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )

    def make(self) -> None:
        """Raises Missing with the reason where podman cannot run here."""
        if shutil.which("podman") is None:
            raise Missing("podman is missing: apt-get install podman")
        self.folder.mkdir(parents=True, exist_ok=True)
        archive = self.folder / "image.tar"
        write_rootfs(archive)
        graph, run = self.folder / "graph", self.folder / "run"
        (self.folder / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{graph}"\nrunroot = "{run}"\n'
        )
        reasons = []
        for runtime in (name for name in RUNTIMES if shutil.which(name)):
            self._configure(runtime)
            reason = self._try(archive)
            if reason is None:
                archive.unlink()
                return
            reasons.append(f"{runtime}: {reason}")
        raise Missing(f"podman cannot run here ({'; '.join(reasons) or 'apt-get install runc'})")

    def _configure(self, runtime: str) -> None:
        # Locks of the machine's other containers are left alone; there may be no journal and no systemd.
        settings = {
            "runtime": runtime,
            "cgroup_manager": "cgroupfs",
            "events_logger": "none",
            "lock_type": "file",
            "tmp_dir": str(self.folder / "tmp"),
        }
        lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        (self.folder / "containers.conf").write_text(f"[engine]\n{lines}")

    def _try(self, archive: Path) -> str | None:
        if self._run("image", "exists", IMAGE).returncode:
            imported = self._run("import", str(archive), IMAGE)
            if imported.returncode:
                return imported.stderr.strip().splitlines()[-1]
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limits = (f"--ulimit=nofile={limit}:{limit}", "--ulimit=nproc=1024:1024")
        done = self._run("run", "--rm", "--network=host", "--pid=host", *limits, IMAGE, "python3", "-c", "")
        return done.stderr.strip().splitlines()[-1] if done.returncode else None

    def containers(self) -> list[str]:
        """Names of all containers, running or not."""
        return self("ps", "--all", "--format", "{{.Names}}").split()

    def remove(self) -> None:
        """All of it: containers, images, mounts, files."""
        self._run("rm", "--force", "--all", "--time", "0")
        self._run("rmi", "--force", "--all")
        subprocess.run(
            ["umount", "--recursive", str(self.folder / "graph" / "overlay")], capture_output=True, check=False
        )
        shutil.rmtree(self.folder, ignore_errors=True)


def write_rootfs(archive: Path) -> None:
    """A tar file with this Python, its standard library, a shell, and the libraries that these are linked with."""
    python = os.path.realpath(sys.executable)
    library = sysconfig.get_path("stdlib")
    programs = [path for name in PROGRAMS if (path := shutil.which(name))]
    modules = [os.path.join(at, name) for at, name in _files(library)]
    linked = _libraries([python, *programs, *(path for path in modules if path.endswith(".so"))])
    with tarfile.open(archive, "w", dereference=True) as tar:
        for name in ("bin", "lib", "lib64"):  # as every Debian has them
            if os.path.islink(f"/{name}"):
                _link(tar, name, f"usr/{name}")
        for folder in ("tmp", "proc", "sys", "dev", "etc", "run", "root", "usr/bin"):
            _folder(tar, folder)
        for path in dict.fromkeys((python, *modules, *linked)):
            tar.add(path, _merged(path))
        for path in programs:
            tar.add(os.path.realpath(path), f"usr/bin/{os.path.basename(path)}")
        _link(tar, "usr/bin/python3", python)


def _files(library: str) -> Iterator[tuple[str, str]]:
    for at, folders, names in os.walk(library):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.startswith("config-"))
        yield from ((at, name) for name in sorted(names))


def _libraries(files: list[str]) -> list[str]:
    output = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    words = (word for line in output.splitlines() if not line.endswith(":") for word in line.split())
    return sorted({word for word in words if word.startswith("/")})


def _merged(path: str) -> str:
    """/lib and /bin are links below /usr."""
    head, rest = path.split("/", 2)[1:]
    return f"usr/{head}/{rest}" if os.path.islink(f"/{head}") else f"{head}/{rest}"


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def _folder(tar: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    tar.addfile(entry)
