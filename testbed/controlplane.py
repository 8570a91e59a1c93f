"""The control plane as processes: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

Durability is switched off where that is quicker: a test cluster never outlives its machine. Not here: nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed import api, certificates, processes
from testbed.binaries import Binaries
from testbed.clusters import Cluster
from testbed.errors import Hopeless, TestbedError
from testbed.processes import Launch, Process

TARGETS = ("tools", "etcd", "kubernetes")
PORTS = ("apiserver", "etcd", "etcd-peer", "controller-manager", "scheduler")
FIXED_PORTS = {"apiserver": 6443, "etcd": 2379, "etcd-peer": 2380, "controller-manager": 10257, "scheduler": 10259}
"""Where a cluster has a network of its own, the usual ports are free."""
READY_S = 60.0


def etcd_arguments(cluster: Cluster) -> list[str]:
    client = f"http://127.0.0.1:{cluster.ports['etcd']}"
    peer = f"http://127.0.0.1:{cluster.ports['etcd-peer']}"
    return [
        "--name=testbed",
        f"--data-dir={cluster.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=testbed={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--quota-backend-bytes=4294967296",
        # A member alone needs no time to see that nobody else wants to lead.
        "--heartbeat-interval=50",
        "--election-timeout=250",
    ]


def apiserver_arguments(cluster: Cluster) -> list[str]:
    pki = cluster.pki
    return [
        f"--etcd-servers=http://127.0.0.1:{cluster.ports['etcd']}",
        f"--bind-address={'127.0.0.1' if cluster.range is None else '0.0.0.0'}",
        f"--advertise-address={cluster.address}",
        f"--secure-port={cluster.ports['apiserver']}",
        f"--service-cluster-ip-range={cluster.service_range}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/sa.key",
        f"--service-account-signing-key-file={pki}/sa.key",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={pki}/front-proxy-client.crt",
        f"--proxy-client-key-file={pki}/front-proxy-client.key",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-aggregator-routing=true",
        "--allow-privileged=true",
        "--profiling=false",
        # Tests create thousands of objects at once from one address.
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
        "--endpoint-reconciler-type=lease",
    ]


def controller_manager_arguments(cluster: Cluster) -> list[str]:
    pki = cluster.pki
    kubeconfig = cluster.folder / "controller-manager.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={cluster.ports['controller-manager']}",
        f"--tls-cert-file={pki}/controller-manager.crt",
        f"--tls-private-key-file={pki}/controller-manager.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/sa.key",
        "--use-service-account-credentials=true",
        "--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
        "--allocate-node-cidrs=false",
        # It makes this folder, by default one in /usr.
        f"--flex-volume-plugin-dir={cluster.folder / 'volume-plugins'}",
        "--leader-elect=false",
        "--profiling=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--concurrent-job-syncs=10",
        # A real node that is killed is noticed within a test's patience; simulated ones report rarely.
        "--node-monitor-period=2s",
        f"--node-monitor-grace-period={240 if cluster.range is None else 20}s",
    ]


def scheduler_arguments(cluster: Cluster) -> list[str]:
    pki = cluster.pki
    return [
        f"--config={cluster.folder / 'scheduler.json'}",
        f"--authentication-kubeconfig={cluster.folder / 'scheduler.kubeconfig'}",
        f"--authorization-kubeconfig={cluster.folder / 'scheduler.kubeconfig'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={cluster.ports['scheduler']}",
        f"--tls-cert-file={pki}/scheduler.crt",
        f"--tls-private-key-file={pki}/scheduler.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
    ]


def scheduler_configuration(cluster: Cluster) -> dict[str, object]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(cluster.folder / "scheduler.kubeconfig"), "qps": 1000, "burst": 2000},
        "enableProfiling": False,
    }


def program_of(name: str) -> str:
    return name if name == "etcd" else f"kube-{name}"


def arguments_of(cluster: Cluster) -> Mapping[str, list[str]]:
    return {
        "etcd": etcd_arguments(cluster),
        "apiserver": apiserver_arguments(cluster),
        "controller-manager": controller_manager_arguments(cluster),
        "scheduler": scheduler_arguments(cluster),
    }


def environment(cluster: Cluster, programs: Binaries) -> dict[str, str]:
    """Nothing of the caller's: a cluster behaves the same whoever starts it."""
    return {
        "PATH": programs.search_path(),
        "HOME": str(cluster.folder),
        **processes.marks(cluster.id, cluster.folder),
    }


def start_component(cluster: Cluster, programs: Binaries, name: str, holder: int | None = None) -> Process:
    """Start (again) one of the four; its earlier log is kept and added to."""
    launch = Launch(
        name,
        [str(programs[program_of(name)]), *arguments_of(cluster)[name]],
        environment(cluster, programs),
        cluster.logs / f"{name}.log",
        holder,
    )
    process = processes.start(launch)
    processes.record(cluster.processes, process)
    return process


def write_files(cluster: Cluster, programs: Binaries, more: list[certificates.Certificate]) -> None:
    wanted = [*certificates.control_plane_certificates(cluster), *more]
    certificates.make(cluster, programs, wanted, keys=("sa",))
    certificates.write_kubeconfig(cluster, "admin", cluster.kubeconfig)
    for name in ("controller-manager", "scheduler", "kube-proxy", "kwok"):
        certificates.write_kubeconfig(cluster, name, cluster.folder / f"{name}.kubeconfig")
    (cluster.folder / "scheduler.json").write_text(json.dumps(scheduler_configuration(cluster)))


def start(cluster: Cluster, programs: Binaries, holder: int | None = None) -> None:
    """Start all four and return when the API answers and the controllers work."""
    running = [start_component(cluster, programs, "etcd", holder)]
    # An API that finds no etcd tries again only after a second.
    wait_running("etcd listens", lambda: processes.is_listening(running[0].pid, cluster.ports["etcd"]), running)
    running.append(start_component(cluster, programs, "apiserver", holder))
    with_api = api.Api(cluster, timeout_s=5.0)
    try:
        wait_running("the API is ready", with_api.is_ready, running)
        # Started only now: without an API they give up after some seconds.
        running += [start_component(cluster, programs, name, holder) for name in ("controller-manager", "scheduler")]
        account = api.path_of("ServiceAccount", "v1", "default", "default")
        wait_running("the controllers work", lambda: with_api.get(account) is not None, running)
    finally:
        with_api.close()


def wait_running(condition: str, holds: Callable[[], bool], running: list[Process], within_s: float = READY_S) -> None:
    """Wait, and fail at once with its log when one of the processes has ended."""

    def checked() -> bool:
        gone = processes.ended(running)
        if gone:
            logs = "\n".join(f"{process.name} ended:\n{processes.tail(Path(process.log))}" for process in gone)
            raise Hopeless(f"waiting until {condition}: {logs}")
        return holds()

    try:
        api.wait_for(condition, checked, within_s, every_s=0.03)
    except Hopeless:
        raise
    except TestbedError as error:
        logs = "\n".join(f"{process.name}:\n{processes.tail(Path(process.log), 5)}" for process in running)
        raise TestbedError(f"{error}\n{logs}") from error
