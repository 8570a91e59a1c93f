"""Packages with everything they need, downloaded by apt with a state of its own: nothing of this machine changes.

Signatures of the repositories are checked by apt, as on a host. The distribution's own archive, as this machine has it
in /etc/apt, is asked only for what the repositories of the cluster file do not have.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from longboat.clusters.offline.dpkg_base import base_status
from longboat.clusters.spec import PackageRepository
from longboat.core.errors import EngineError, Refused
from longboat.engines.shared.files import disk

STATUS = Path("/var/lib/dpkg/status")
SOURCES = Path("/etc/apt")
DOWNLOAD_S = 1800.0  # some hundred megabytes over a slow line
_PROGRAMS = ("apt-get", "apt-cache", "dpkg-deb")


class PrivateApt:
    """An apt with its own state folder, which assumes the packages of a bare host to be installed."""

    def __init__(self, folder: Path, repositories: Sequence[PackageRepository], keys: Mapping[str, bytes]) -> None:
        missing = [name for name in _PROGRAMS if shutil.which(name) is None]
        if missing or not STATUS.is_file():
            raise Refused(
                f"a bundle is made with the hosts' package manager, apt; this machine has no {', '.join(missing)}",
                hint="make it on a machine, or in a container, with the system of the hosts: Debian or Ubuntu",
            )
        self._folder = folder
        with disk(f"prepare {folder}"):
            for name in ("parts", "lists/partial", "archives/partial"):
                (folder / name).mkdir(parents=True)
            (folder / "status").write_text(base_status(STATUS.read_text(errors="replace")))
            lines = []
            for number, repository in enumerate(repositories):
                key = keys[repository.key]
                ring = folder / f"key-{number}.{'asc' if key.startswith(b'-----') else 'gpg'}"
                ring.write_bytes(key)
                lines.append(f"deb [signed-by={ring}] {repository.url} {repository.suite}\n")
            (folder / "parts" / "cluster.list").write_text("".join(lines))
            self._configure()

    def _configure(self) -> None:
        settings = {
            "Dir::State": self._folder, "Dir::State::status": self._folder / "status",
            "Dir::State::lists": self._folder / "lists", "Dir::Cache": self._folder,
            "Dir::Cache::archives": self._folder / "archives", "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": self._folder / "parts", "Dir::Log": self._folder, "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false", "Acquire::Languages": "none", "Acquire::Retries": "3",
        }  # fmt: skip
        text = "".join(f'{name} "{value}";\n' for name, value in settings.items())
        (self._folder / "apt.conf").write_text(text)

    def download(self, names: Sequence[str]) -> list[Path]:
        """Download packages with their dependencies; `a|b`: the first that exists."""
        self._run("apt-get", "-q", "update")
        try:
            wanted = [self._choose(name) for name in names]
            self._run("apt-get", "-q", "-s", "install", *wanted)
        except EngineError:
            self._add_distribution()
            wanted = [self._choose(name) for name in names]
        self._run("apt-get", "-q", "-y", "--download-only", "install", *wanted)
        return sorted((self._folder / "archives").glob("*.deb"))

    def _choose(self, names: str) -> str:
        """Choose containerd's package: Docker's has another name than the distribution's."""
        options = names.split("|")
        for name in options[:-1]:
            if self._call("apt-cache", "show", name).returncode == 0:
                return name
        return options[-1]

    def _add_distribution(self) -> None:
        with disk("read /etc/apt"):
            for file in (SOURCES / "sources.list", *sorted((SOURCES / "sources.list.d").glob("*"))):
                if file.suffix in (".list", ".sources") and file.is_file():
                    shutil.copyfile(file, self._folder / "parts" / f"own-{file.name}")
        # Sources of others that are broken matter only if something is missing then.
        self._call("apt-get", "-q", "update")

    def _run(self, *command: str) -> None:
        done = self._call(*command)
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            reason = next((line for line in lines if line.startswith("E:")), lines[-1] if lines else "no reason given")
            raise EngineError(
                f"apt cannot get the packages: {reason.removeprefix('E:').strip()}",
                hint="source.repositories of the cluster file names the repositories; /etc/apt the distribution's",
            )

    def _call(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "APT_CONFIG": str(self._folder / "apt.conf"), "LC_ALL": "C"}
        environment["DEBIAN_FRONTEND"] = "noninteractive"
        try:
            return subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=DOWNLOAD_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise EngineError(f"{command[0]} has not ended after {DOWNLOAD_S:g} s") from None


def control_fields(file: Path) -> str:
    """The control fields of a package, as in a repository's index."""
    done = subprocess.run(["dpkg-deb", "--field", str(file)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EngineError(f"{file.name} is no package: {done.stderr.strip()}")
    return done.stdout.strip() + "\n"
