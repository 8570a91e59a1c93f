"""The record of one test cluster: its names, addresses, ports and folder, and how it is claimed, kept and found again.

Everything else (which processes run, whether they answer) is observed, never written down. Not here: starting anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import ipaddress
import json
import os
import re
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import TestbedError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")
DEFAULT_NAME = "dev"
RANGES = range(64, 128)
"""Second byte of 10.x.0.0/16: one such range for each cluster with real nodes."""


@dataclass(frozen=True)
class Cluster:
    """One cluster. With `range` its processes live in namespaces of their own, without it on the machine itself."""

    name: str
    id: str
    folder: Path
    profiles: tuple[str, ...]
    address: str = "127.0.0.1"
    ports: Mapping[str, int] = field(default_factory=dict)
    range: int | None = None
    ready: bool = False

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.ports['apiserver']}"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def processes(self) -> Path:
        return self.folder / "processes"

    @property
    def service_range(self) -> str:
        return "10.96.0.0/16" if self.range is None else f"10.{self.range}.128.0/18"

    @property
    def first_service_address(self) -> str:
        return str(ipaddress.ip_network(self.service_range)[1])

    @property
    def dns_address(self) -> str:
        return str(ipaddress.ip_network(self.service_range)[10])

    @property
    def pod_range(self) -> str:
        return "10.244.0.0/16" if self.range is None else f"10.{self.range}.0.0/17"

    @property
    def cgroup(self) -> str:
        return f"longboat-{self.id}"

    @property
    def link(self) -> str:
        """The machine's end of the cable into the cluster's network."""
        return f"lb{self.id}"


def state_folder() -> Path:
    named = os.environ.get("LONGBOAT_TESTBED_STATE")
    if named:
        return Path(named).expanduser().absolute()
    return Path(tempfile.gettempdir()) / f"longboat-testbed-{os.getuid()}"


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise TestbedError(f"{name!r} is no cluster name: small letters, digits and '-', at most 30")
    return name


def folder_of(name: str) -> Path:
    return state_folder() / check_name(name)


def new_id() -> str:
    return secrets.token_hex(4)


def save(cluster: Cluster) -> Cluster:
    values = dataclasses.asdict(cluster)
    values["folder"] = str(cluster.folder)
    scratch = cluster.folder / ".cluster.json.tmp"
    scratch.write_text(json.dumps(values, indent=1))
    scratch.rename(cluster.folder / "cluster.json")
    return cluster


def load_folder(folder: Path) -> Cluster | None:
    """The record in this folder; nothing where there is none, or only half of one."""
    try:
        values = json.loads((folder / "cluster.json").read_text())
        values["folder"] = folder
        values["profiles"] = tuple(values["profiles"])
        return Cluster(**values)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def load(name: str) -> Cluster | None:
    return load_folder(folder_of(name))


def get(name: str) -> Cluster:
    cluster = load(name)
    if cluster is None:
        raise TestbedError(f"there is no cluster {name!r} in {state_folder()}; python -m testbed up --name {name}")
    return cluster


def folders() -> list[Path]:
    """Every cluster's folder, also of one whose record is missing."""
    try:
        return sorted(entry for entry in state_folder().iterdir() if entry.is_dir() and NAME.fullmatch(entry.name))
    except OSError:
        return []


@contextlib.contextmanager
def machine_lock(name: str, *, within_s: float = 60.0) -> Iterator[None]:
    """One at a time on this machine, across checkouts and state folders. Leaves no file, and dies with the process."""
    held = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + within_s
    try:
        while True:
            try:
                held.bind(f"\0longboat-testbed-{hashlib.sha256(name.encode()).hexdigest()}")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise TestbedError(f"the lock {name!r} is held by another testbed for {within_s:.0f} s") from None
                time.sleep(0.02)
        yield
    finally:
        held.close()


@contextlib.contextmanager
def folder_lock(name: str) -> Iterator[None]:
    """One `up`, `down` or `clean` at a time for one cluster name of one state folder."""
    with machine_lock(f"{state_folder().resolve()}/{check_name(name)}", within_s=300.0):
        yield


def free_ports(names: tuple[str, ...], taken: frozenset[int] = frozenset()) -> dict[str, int]:
    """Ports that nobody listens on now. All are held open until the last was found, so no two are the same."""
    held: list[socket.socket] = []
    try:
        ports: dict[str, int] = {}
        while len(ports) < len(names):
            holder = socket.socket()
            held.append(holder)
            holder.bind(("127.0.0.1", 0))
            port = int(holder.getsockname()[1])
            if port not in taken:
                ports[names[len(ports)]] = port
        return ports
    finally:
        for holder in held:
            holder.close()


def taken_ports() -> frozenset[int]:
    """Ports that other clusters of this state folder were given, listening or not."""
    known = [load_folder(folder) for folder in folders()]
    return frozenset(port for cluster in known if cluster for port in cluster.ports.values())


def used_networks() -> list[ipaddress.IPv4Network]:
    shown = subprocess.run(["ip", "-4", "-j", "route"], capture_output=True, text=True, check=False).stdout
    networks = []
    for row in json.loads(shown or "[]"):
        with contextlib.suppress(ValueError):
            networks.append(ipaddress.IPv4Network(row.get("dst", ""), strict=False))
    return networks


def free_range(used: list[ipaddress.IPv4Network]) -> int:
    """The first range that no route of this machine touches."""
    for number in RANGES:
        wanted = ipaddress.IPv4Network(f"10.{number}.0.0/16")
        if not any(taken.overlaps(wanted) for taken in used):
            return number
    raise TestbedError("no free range of addresses is left between 10.64.0.0/16 and 10.127.0.0/16")


def hold_lease(folder: Path) -> int | None:
    """Say that this process uses the cluster, until it ends or closes the returned file; nothing if it is gone."""
    try:
        descriptor = os.open(folder / "lease", os.O_RDWR)
    except OSError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def is_last_user(descriptor: int) -> bool:
    """Whether nobody else holds the lease; if so, nobody can take it before it is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_abandoned(folder: Path) -> bool:
    """Whether a test run took a lease on this cluster and nobody holds it any more."""
    try:
        descriptor = os.open(folder / "lease", os.O_RDWR)
    except OSError:
        return False
    try:
        return is_last_user(descriptor)
    finally:
        os.close(descriptor)
