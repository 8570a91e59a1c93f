"""Cluster files and hosts as tests write them down."""

from __future__ import annotations

import base64
import gzip
from typing import Any

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.spec import ClusterSpec, HostSpec, PackageRepository, SoftwareSource

KEY = "https://mirror.test/key"
SOURCE = SoftwareSource(repositories=(PackageRepository(url="https://mirror.test/deb/", key=KEY),))
KEYS = {KEY: b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n"}


def cluster(planes: int = 1, workers: int = 2, **fields: Any) -> ClusterSpec:
    hosts = [HostSpec(name=f"cp-{number}", address=f"cp-{number}", role="control-plane") for number in range(planes)]
    hosts += [HostSpec(name=f"w-{number}", address=f"w-{number}") for number in range(workers)]
    return ClusterSpec(**{"name": "lab", "hosts": tuple(hosts), "source": SOURCE, **fields})


def bare(name: str, **fields: Any) -> HostFacts:
    """A Debian machine that nobody has touched."""
    known: dict[str, Any] = {
        "hostname": name,
        "os_id": "debian",
        "os_codename": "trixie",
        "package_manager": "apt",
        "init": "systemd",
        "cgroup_version": 2,
        "source_address": "10.0.0.1",
        "modules": ("overlay",),
        "sysctls": (("net.ipv4.ip_forward", "0"),),
    }
    return HostFacts(**{"name": name, **known, **fields})


def packed(text: str) -> str:
    """As a control plane sends lists of nodes and pods."""
    return base64.encodebytes(gzip.compress(text.encode())).decode()
