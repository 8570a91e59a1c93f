"""Hosts that `longboat cluster` is tried on, with a repository of packages in their network, and the command itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from testbed import apt_repository
from testbed.apt_repository import Repository
from testbed.binaries import KUBERNETES_VERSION
from testbed.hosts import Group, Host
from testbed.images import digest_of


def pinned_images(repository: Repository, version: str = KUBERNETES_VERSION) -> str:
    """The archive of images, with the checksum that a URL with http needs."""
    url = repository.images_url(version)
    return f"{url}#sha256={digest_of(repository.folder / 'public' / url.removeprefix(f'{repository.url}/'))}"


class Lab:
    """A user's machine: a home, a cluster file, and hosts that ssh reaches."""

    def __init__(self, folder: Path, group: Group, repository: Repository) -> None:
        self.folder, self.group, self.repository = folder, group, repository
        self.home = folder / "home"
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh" / "config").write_text(group.hosts[0].config.read_text())
        key = (
            repository.folder
            / "public"
            / repository.kubernetes_url().removeprefix(f"{repository.url}/")
            / "Release.key"
        )
        (folder / "key.asc").write_bytes(key.read_bytes())
        self.write(count=len(group.hosts))

    def write(
        self, *, count: int | None = None, chosen: Sequence[Host] = (), planes: int = 1,
        version: str = KUBERNETES_VERSION, **more: object,
    ) -> None:  # fmt: skip
        """A cluster file with the first hosts, or those `chosen`; the first of them are control planes."""
        hosts = [{"name": host.name, "address": host.name} for host in chosen or self.group.hosts[:count]]
        for host in hosts[:planes]:
            host["role"] = "control-plane"
        urls = [f"{self.repository.url}/core:/stable:/{{minor}}/deb"]
        if any(host.traits.gpus for host in self.group.hosts):
            urls += [self.repository.nvidia_url(), self.repository.driver_url()]
        text = {
            "name": "lab",
            "hosts": hosts,
            "source": {
                "repositories": [{"url": f"{url}/", "key": "key.asc"} for url in urls],
                "images": pinned_images(self.repository, version),
            },
            "versions": version,
            "network": {"pods": "172.29.0.0/16", "services": "172.30.0.0/16"},
            # What hosts that are containers on this machine cannot have.
            "kubelet": {
                "failCgroupV1": False,
                "localStorageCapacityIsolation": False,
                "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            },
            **more,
        }
        (self.folder / "cluster.yaml").write_text(yaml.safe_dump(text, sort_keys=False))

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LONGBOAT_", "KUBE"))}
        return {**kept, "HOME": str(self.home), "LONGBOAT_HOME": str(self.folder / "longboat")}

    def popen(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "longboat", *args], cwd=self.folder, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def __call__(self, *args: str, code: int | None = 0) -> str:
        """Both streams of the command together, which ends with `code`."""
        process = self.popen(*args)
        out, err = process.communicate()
        assert code in (None, process.returncode), f"exit code {process.returncode}\n{out}\n{err}"
        return out + err


@pytest.fixture
def lab(tmp_path: Path, hosts: Callable[..., Group]) -> Iterator[Callable[..., Lab]]:
    """`lab(2, "1:swap")`: hosts with these traits, and a user who wants a cluster of them."""
    lacks = apt_repository.missing()
    if lacks:
        pytest.skip(lacks)

    def make(
        count: int,
        *traits: str,
        versions: Sequence[str] = (KUBERNETES_VERSION,),
        uses_repository: bool = True,
        images: Sequence[str] = (),
    ) -> Lab:
        group = hosts(count, *traits)
        repository = apt_repository.serve(group, versions, images)
        for host in group.hosts if uses_repository else ():
            repository.use(host)
        return Lab(tmp_path, group, repository)

    yield make
