"""Every check of the doctor is seen to fail where the real thing is broken, or it is said here why not.

Tests of checks as pure functions are in `checks`; here is where a machine, a cluster or a host is broken.
"""

from __future__ import annotations

from pathlib import Path

from longboat.doctor import catalog

ROOT = Path(__file__).parent.parent.parent
MACHINE = {
    "tests/doctor/test_broken_machine.py": (
        "home", "disk", "trainer's python", "git", "processes", "shared memory", "gpus", "gpu isolation", "containers",
    ),
}  # fmt: skip
CLUSTER = {
    "tests/doctor/test_broken_objects.py": (
        "kubeconfig", "kubeconfig mode", "credentials", "service account", "api", "api certificate", "namespace",
        "quota", "webhooks", "certificate requests", "nodes", "node pressure", "cordoned nodes", "taints",
        "kubelet versions", "container runtimes", "heartbeats", "node clocks", "pod addresses", "storage classes",
        "hidden gpus", "gpu health", "device plugins", "gpu labels", "autoscaler", "stuck pods",
    ),
    "tests/doctor/test_cluster.py": ("permissions", "dns", "controller"),
    "tests/doctor/test_broken_pods.py": (
        "clock", "network policies", "claims", "claim", "gpu devices", "gpu toolkit", "gpu driver", "jobset", "kueue",
        "leftovers", "pod start", "image pull", "image python", "dns lookup", "pod shared memory", "nccl interfaces",
        "pod clock", "train step",
    ),
    "tests/engines/kubernetes/faults/test_doctor.py": ("api health", "pod logs", "services", "pod to pod", "mtu"),
}  # fmt: skip
HOSTS = {
    "tests/doctor/test_hosts.py": (
        "host login", "host sudo", "host packages", "host kernel", "host swap", "host disk", "host memory", "host cpu",
        "host cluster", "host containerd", "host port", "host firewall", "host proxy", "host route", "host range",
        "host link", "host gpu", "host driver", "host secure-boot", "host fabric", "host toolkit", "host clock",
        "host twin", "host vip", "host membership", "host kubelet", "host runtime", "host certificates", "host xid",
        "host driver match", "host nvidia-smi", "host cdi", "host inodes", "host forwarding",
    ),
    "tests/clusters/test_three_planes.py": ("host etcd",),
    "tests/doctor/test_broken_host.py": ("host systemd", "host architecture", "host cgroup", "host vxlan", "host ntp"),
}  # fmt: skip
WHOLE = {
    "python": "Longboat does not start with an older one",
    "loopback": "never worse than ok: nodes of a run share an address then",
    "machine": "CPUs and memory can always be counted on Linux",
    "gpus (cluster)": "says what there is; a cluster without GPUs is fine",
    "version": "no Kubernetes before 1.29 can be built any more",
    "limits": "containers get limits from their runtime, and that of the test cluster from this machine",
    "host name": "the cluster file refuses such names already",
}
"""Checks that nothing here can break, and why; docs/contributing/testbed.md names them."""


def covered(faults: dict[str, tuple[str, ...]]) -> set[str]:
    for file, names in faults.items():
        text = (ROOT / file).read_text()
        assert not [name for name in names if f'"{name}"' not in text], file
    return {name for names in faults.values() for name in names}


def test_every_check_is_broken_somewhere() -> None:
    machine, cluster, hosts = (
        {check.name for check in checks}
        for checks in (catalog.MACHINE_CHECKS, catalog.CLUSTER_CHECKS, catalog.HOST_CHECKS)
    )
    assert machine - covered(MACHINE) == {"python", "loopback", "machine"}
    assert cluster - covered(CLUSTER) == {"gpus", "version", "limits"}
    assert hosts - covered(HOSTS) == {name for name in WHOLE if name.startswith("host ")}
    assert not (covered(MACHINE) - machine | covered(CLUSTER) - cluster | covered(HOSTS) - hosts)
    page = (ROOT / "docs" / "contributing" / "testbed.md").read_text()
    assert not [name for name in WHOLE if f"`{name.partition(' (')[0]}`" not in page]
    total = sum(len(covered(faults)) for faults in (MACHINE, CLUSTER, HOSTS))
    assert total + len(WHOLE) == len(machine) + len(cluster) + len(hosts)
