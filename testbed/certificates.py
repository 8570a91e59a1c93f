"""Certificates and kubeconfig files of a cluster: who there is, what each may be called, and the files.

The signing is done by the small Go program `certificates`: one start of it makes all of them in a few hundredths of a
second. Not here: permissions; those come from the names and groups that Kubernetes knows.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.binaries import Binaries
from testbed.clusters import Cluster
from testbed.errors import TestbedError


@dataclass(frozen=True)
class Certificate:
    name: str
    subject: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    authority: str = "ca"


def control_plane_certificates(cluster: Cluster) -> list[Certificate]:
    services = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    hosts = ("localhost", "127.0.0.1", cluster.address, cluster.first_service_address, *services)
    return [
        Certificate("apiserver", "kube-apiserver", hosts=tuple(dict.fromkeys(hosts))),
        Certificate("apiserver-kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",)),
        Certificate("front-proxy-client", "front-proxy-client", authority="front-proxy-ca"),
        Certificate("admin", "longboat-testbed-admin", ("system:masters",)),
        Certificate("controller-manager", "system:kube-controller-manager", hosts=("localhost", "127.0.0.1")),
        Certificate("scheduler", "system:kube-scheduler", hosts=("localhost", "127.0.0.1")),
        Certificate("kube-proxy", "system:kube-proxy"),
        Certificate("kwok", "longboat-testbed-kwok", ("system:masters",)),
    ]


def node_certificate(name: str, address: str) -> Certificate:
    return Certificate(f"node-{name}", f"system:node:{name}", ("system:nodes",), (name, address, "127.0.0.1"))


def make(cluster: Cluster, programs: Binaries, certificates: list[Certificate], keys: tuple[str, ...] = ()) -> None:
    cluster.pki.mkdir(mode=0o700, exist_ok=True)
    order = {
        "folder": str(cluster.pki),
        "certificates": [asdict(certificate) for certificate in certificates],
        "keys": keys,
    }
    done = subprocess.run(
        [str(programs["certificates"])], input=json.dumps(order), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise TestbedError(f"the cluster's certificates could not be made: {done.stderr.strip()}")


def kubeconfig(cluster: Cluster, certificate: str, *, server: str | None = None) -> dict[str, object]:
    """As one value that names files, so that no key is copied around."""
    pki = cluster.pki
    user = {"client-certificate": str(pki / f"{certificate}.crt"), "client-key": str(pki / f"{certificate}.key")}
    endpoint = {"server": server or cluster.server, "certificate-authority": str(pki / "ca.crt")}
    context = f"testbed-{cluster.name}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": endpoint}],
        "users": [{"name": certificate, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": certificate, "namespace": "default"}}],
        "current-context": context,
    }


def write_kubeconfig(cluster: Cluster, certificate: str, file: Path, *, server: str | None = None) -> Path:
    """JSON is YAML: what every client reads."""
    scratch = file.with_name(f".{file.name}.tmp")
    scratch.touch(mode=0o600)
    scratch.write_text(json.dumps(kubeconfig(cluster, certificate, server=server), indent=1))
    scratch.rename(file)
    return file
