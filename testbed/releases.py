"""Official release files in place of a build, where they can be reached: checked against their published SHA-256.

Reaching is tried once per process, within a few seconds; a machine without that network loses no more than that.
LONGBOAT_TESTBED_RELEASES=off skips it; another value is the address of a mirror with the same paths (without the
scheme). Not here: programs that are not published as files (kwok's stages, jobset, kueue): those are always built.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.binaries import KUBERNETES_VERSION, OLDER, OLDER_VERSION, PREVIOUS, PREVIOUS_VERSION, Target
from testbed.errors import TestbedError

REACH_S = 3.0
READ_S = 60.0
_ANSWERS: dict[str, bool] = {}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Release:
    """One published file, where its checksum is published, and which programs are in it (one program: the file)."""

    url: str
    checksum_url: str
    programs: Mapping[str, str]
    """Program to its path in the archive; an empty path means that the file is the program."""


def releases_of(target: Target) -> list[Release]:
    arch = ARCHITECTURES.get(platform.machine())
    if arch is None or platform.system() != "Linux":
        return []
    if target.name in ("kubernetes", "kubernetes-host", OLDER.name, PREVIOUS.name):
        version = {OLDER.name: OLDER_VERSION, PREVIOUS.name: PREVIOUS_VERSION}.get(target.name, KUBERNETES_VERSION)
        root = f"dl.k8s.io/release/v{version}/bin/linux/{arch}"
        return [Release(f"{root}/{name}", f"{root}/{name}.sha256", {name: ""}) for name in target.programs]
    if target.name == "etcd":
        root = "github.com/etcd-io/etcd/releases/download/v3.6.8"
        folder = f"etcd-v3.6.8-linux-{arch}"
        return [Release(f"{root}/{folder}.tar.gz", f"{root}/SHA256SUMS", {"etcd": f"{folder}/etcd"})]
    if target.name == "containerd":
        file = f"github.com/containerd/containerd/releases/download/v2.4.2/containerd-static-2.4.2-linux-{arch}.tar.gz"
        return [Release(file, f"{file}.sha256sum", {name: f"bin/{name}" for name in target.programs})]
    if target.name == "runc":
        root = "github.com/opencontainers/runc/releases/download/v1.5.2"
        return [Release(f"{root}/runc.{arch}", f"{root}/runc.sha256sum", {"runc": ""})]
    if target.name in ("cni", "cni-bridge"):
        file = f"github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-{arch}-v1.9.1.tgz"
        return [Release(file, f"{file}.sha256", {name: name for name in target.programs})]
    return []


def fetch(target: Target, folder: Path, say: Callable[[str], None]) -> bool:
    """Download the target's programs into the folder; False when that is not possible here and it must be built."""
    wanted = releases_of(target)
    if not wanted or not all(reachable(address(release.checksum_url)) for release in wanted[:1]):
        return False
    try:
        for release in wanted:
            say(f"downloading {Path(release.url).name}")
            unpack(release, checked(release), folder)
    except (OSError, tarfile.TarError, TestbedError) as error:
        say(f"{target.name}: no official release ({error}), building it instead")
        for file in folder.iterdir():
            file.unlink()
        return False
    return True


def address(place: str) -> str:
    mirror = os.environ.get("LONGBOAT_TESTBED_RELEASES", "")
    return f"{mirror.rstrip('/')}/{place}" if mirror else f"https://{place}"


def reachable(url: str) -> bool:
    """Whether the address's host answers at all, asked once per host."""
    if os.environ.get("LONGBOAT_TESTBED_RELEASES") == "off":
        return False
    host = "/".join(url.split("/")[:3])
    if host not in _ANSWERS:
        _ANSWERS[host] = answers(url)
    return _ANSWERS[host]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=REACH_S):
            return True
    except urllib.error.HTTPError:
        return True  # the host is there; whether this file is will be seen
    except (OSError, ValueError):
        return False


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=READ_S) as answer:
        content: bytes = answer.read()
    return content


def checked(release: Release) -> bytes:
    """The file's content, equal to its published checksum."""
    name = release.url.rsplit("/", 1)[-1]
    listed = read(address(release.checksum_url)).decode(errors="replace")
    lines = [line for line in listed.splitlines() if name in line] or listed.splitlines()
    sums = re.findall(r"\b[0-9a-f]{64}\b", " ".join(lines))
    content = read(address(release.url))
    if hashlib.sha256(content).hexdigest() not in sums[:1]:
        raise TestbedError(f"{name} is not what its checksum says")
    return content


def unpack(release: Release, content: bytes, folder: Path) -> None:
    if list(release.programs.values()) == [""]:
        (program,) = release.programs
        files = {program: content}
    else:
        files = {}
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = {member.name.removeprefix("./"): member for member in archive.getmembers() if member.isfile()}
            for program, path in release.programs.items():
                stored = archive.extractfile(members[path]) if path in members else None
                if stored is None:
                    raise TestbedError(f"there is no {path} in {release.url}")
                files[program] = stored.read()
    for program, bytes_ in files.items():
        (folder / program).write_bytes(bytes_)
        (folder / program).chmod(0o755)
