"""A signed apt repository of the built programs, served to a group of hosts; it can be broken for tests.

Laid out as the real ones are, so that only the first part of an address differs:

URL/core:/stable:/v1.36/deb/               kubelet, kubeadm, kubectl, kubernetes-cni, as pkgs.k8s.io; with Release.key
URL/distribution/                          containerd, runc: what a distribution's own archive has
URL/libnvidia-container/stable/deb/amd64/  nvidia-container-toolkit, as NVIDIA's; for groups with a host that has GPUs
URL/compute/cuda/repos/debian12/x86_64/    nvidia-open, a stand-in for the driver, where NVIDIA has its own; likewise
URL/release/v1.36.4/bin/linux/amd64/       the programs themselves with their .sha256, as dl.k8s.io
URL/images/v1.36.4.tar                     all images of that version's kubeadm in one file, for `ctr images import`

The server listens on this machine's address in the hosts' network, which hosts without a way out reach as well: to them
it is a mirror in their own network. It is a process of the group, and goes with it. What is in the packages is in
`packages`, what can go wrong in `file_server`.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import file_server, images, kubeadm_images, packages, processes
from testbed.binaries import HOST_COMMANDS, KUBERNETES_VERSION, find
from testbed.controlplane import wait_running
from testbed.errors import Missing, TestbedError
from testbed.file_server import Fault
from testbed.hosts import Group, Host
from testbed.packages import Package
from testbed.processes import Launch

NAME = "repository"
READY_S = 20.0
KEYRING = "/etc/apt/keyrings/distribution.asc"
# The release of the distribution that the host came with is far away; everything its packages need is installed.
_USE = """set -e
mkdir -p /etc/apt/keyrings
curl -fsS --noproxy "*" -o {keyring} {url}/distribution/Release.key
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
echo "deb [signed-by={keyring}] {url}/distribution/ /" > /etc/apt/sources.list
"""


@dataclass(frozen=True)
class Repository:
    """A repository that is being served."""

    folder: Path
    url: str
    log: Path

    @property
    def key(self) -> Path:
        """What signs all of it, as a file."""
        return self.folder / file_server.PUBLIC / "distribution" / "Release.key"

    def kubernetes_url(self, version: str = KUBERNETES_VERSION) -> str:
        """Where the packages of this version's minor release are; the key is Release.key below it."""
        return f"{self.url}/{kubernetes_path(version)}"

    def images_url(self, version: str = KUBERNETES_VERSION) -> str:
        return f"{self.url}/images/v{version}.tar"

    def programs_url(self, version: str = KUBERNETES_VERSION) -> str:
        return f"{self.url}/{programs_path(version)}"

    def nvidia_url(self) -> str:
        return f"{self.url}/{nvidia_path()}"

    def driver_url(self) -> str:
        return f"{self.url}/{driver_path()}"

    def use(self, host: Host) -> None:
        """Make `distribution` the only source of the host's apt, as if the host had been installed from it."""
        # As root: a user who may not sudo is a case to test.
        host.run(_USE.format(keyring=KEYRING, url=self.url), user="root")

    def requests(self) -> list[str]:
        """Every request so far: `GET /path 200`."""
        lines = self.log.read_text(errors="replace").splitlines()
        parts = [line.partition('"')[2].split('"') for line in lines if '"' in line]
        return [f"{request.rpartition(' ')[0]} {rest.split()[0]}" for request, rest, *_ in parts if rest.split()]

    def hang(self, pattern: str = "*") -> None:
        """Accept requests for paths that match, and answer none until `restore`."""
        self.break_by(Fault(pattern, hangs=True))

    def refuse(self, status: int = 404, pattern: str = "*") -> None:
        self.break_by(Fault(pattern, status=status))

    def crawl(self, bytes_per_s: float, pattern: str = "*") -> None:
        self.break_by(Fault(pattern, bytes_per_s=bytes_per_s))

    def cut(self, after_bytes: int, pattern: str = "*") -> None:
        """Close the connection in the middle of a content."""
        self.break_by(Fault(pattern, cut_after=after_bytes))

    def spoil(self, pattern: str = "*.deb") -> None:
        """Send something else than what was signed."""
        self.break_by(Fault(pattern, is_spoiled=True))

    def break_by(self, fault: Fault) -> None:
        file_server.write_faults(self.folder, [*file_server.read_faults(self.folder), fault])

    def sign_with_another_key(self) -> None:
        """From now on a key that no host knows signs; Release.key stays what it was."""
        with signing_key() as home:
            for release in self.folder.glob("public/**/Release"):
                sign(home, release)

    def restore(self) -> None:
        """Serve again, signed by the key that hosts know; what hung is answered now."""
        for release in self.folder.glob("public/**/Release"):
            release.with_name("InRelease").write_bytes((release.with_name("InRelease.good")).read_bytes())
        file_server.write_faults(self.folder, [])


def kubernetes_path(version: str) -> str:
    return f"core:/stable:/v{'.'.join(version.split('.')[:2])}/deb"


def nvidia_path() -> str:
    return f"libnvidia-container/stable/deb/{images.architecture()}"


def driver_path() -> str:
    return f"compute/cuda/repos/debian12/{os.uname().machine}"


def programs_path(version: str) -> str:
    return f"release/v{version}/bin/linux/{images.architecture()}"


def missing() -> str | None:
    """What this machine lacks for a repository, in one line."""
    for command, package in (("gpg", "gpg"), ("gpgconf", "gpgconf"), ("gpg-agent", "gpg-agent")):
        if not any(os.access(f"{folder}/{command}", os.X_OK) for folder in os.get_exec_path()):
            return f"a repository is signed with {command}: install {package}"
    return packages.missing()


def serve(group: Group, versions: Sequence[str] = (KUBERNETES_VERSION,), others: Sequence[str] = ()) -> Repository:
    """Make the packages if need be, sign them with a new key and serve them to the group. `others`: programs whose
    images the archive has beside kubeadm's (`kubeadm_images.OTHERS`).

    `PREVIOUS_VERSION` is one more to ask for, for upgrades; the first time its programs are built, which takes long.
    """
    lacks = missing()
    if lacks:
        raise Missing(lacks)
    folder = group.record.folder / NAME
    if folder.exists():
        raise TestbedError(f"the hosts of {group.record.name!r} have a repository already")
    public = folder / file_server.PUBLIC
    public.mkdir(parents=True)
    (public / "images").mkdir()
    with signing_key() as home:
        write_index(public / "distribution", packages.OF_DISTRIBUTION, home)
        has_gpus = any(host.traits.gpus for host in group.hosts)
        if has_gpus:
            write_index(public / nvidia_path(), packages.OF_NVIDIA, home)
            write_index(public / driver_path(), packages.DRIVERS, home)
        wanted = [*([kubeadm_images.PLUGIN] if has_gpus else ()), *others]
        for version in versions:
            write_index(public / kubernetes_path(version), packages.VERSIONS[version], home)
            write_programs(public / programs_path(version), packages.VERSIONS[version])
            (public / "images" / f"v{version}.tar").symlink_to(kubeadm_images.archive(version, wanted))
    return start(group, folder)


def start(group: Group, folder: Path) -> Repository:
    record = group.record
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[1]),
        **processes.marks(record.id, record.folder),
    }
    arguments = [sys.executable, "-u", "-m", "testbed.file_server", str(folder), group.gateway]
    running = processes.start(Launch(NAME, arguments, environment, record.logs / f"{NAME}.log"))
    processes.record(record.processes, running)
    port = folder / file_server.PORT
    wait_running("the repository is served", port.exists, [running], READY_S)
    return Repository(folder, f"http://{group.gateway}:{port.read_text()}", Path(running.log))


def write_programs(folder: Path, listed: Sequence[Package]) -> None:
    """The programs under their own names, each with its checksum beside it."""
    folder.mkdir(parents=True)
    programs = find(packages.targets_of(listed))
    for name in HOST_COMMANDS:
        program = programs[name].resolve()
        (folder / name).symlink_to(program)
        (folder / f"{name}.sha256").write_text(images.digest_of(program))


def write_index(folder: Path, listed: Sequence[Package], home: Path) -> None:
    """A flat repository: the packages by links into the cache, Packages, Release and its signature."""
    architecture = images.architecture()
    (folder / architecture).mkdir(parents=True)
    rows = []
    for package in listed:
        file = packages.get(package)
        name = f"{architecture}/{package.file}"
        (folder / name).symlink_to(file)
        rows.append(
            f"{packages.control_of(file)}Filename: {name}\nSize: {file.stat().st_size}\n"
            f"SHA256: {images.digest_of(file)}\n"
        )
    (folder / "Packages").write_text("\n".join(rows))
    (folder / "Release").write_text(release_text((folder / "Packages").read_bytes(), architecture))
    sign(home, folder / "Release")
    (folder / "InRelease.good").write_bytes((folder / "InRelease").read_bytes())
    (folder / "Release.key").write_bytes(gpg(home, "--armor", "--export"))


def release_text(index: bytes, architecture: str) -> str:
    return (
        f"Origin: testbed\nLabel: testbed\nDate: {email.utils.formatdate(usegmt=True)}\nArchitectures: {architecture}\n"
        f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} Packages\n"
    )


@contextlib.contextmanager
def signing_key() -> Iterator[Path]:
    """A new key, in a folder that is gone afterwards together with the agent that gpg starts."""
    with tempfile.TemporaryDirectory(prefix="longboat-gpg-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        try:
            gpg(home, "--quick-generate-key", "testbed <testbed@longboat.test>", "ed25519", "sign", "never")
            yield home
        finally:
            subprocess.run(["gpgconf", "--homedir", folder, "--kill", "all"], capture_output=True, check=False)


def gpg(home: Path, *arguments: str) -> bytes:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--no-tty", "--yes", "--passphrase", "", *arguments]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise TestbedError(f"gpg {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def sign(home: Path, release: Path) -> None:
    gpg(home, "--clearsign", "--output", str(release.with_name("InRelease")), str(release))
