"""A real node: containerd, kubelet and kube-proxy in a room of their own (see `namespaces`).

Inside the room the usual paths hold (/var/lib/kubelet, /run/containerd): the room's own, not the machine's. Not here:
the room, the network, the images.
"""

from __future__ import annotations

import json
from pathlib import Path

from testbed import api, cgroups, controlplane, dns, driver, images, namespaces, network, processes
from testbed.binaries import Binaries
from testbed.certificates import Certificate, node_certificate, write_kubeconfig
from testbed.clusters import Cluster
from testbed.processes import Launch, Process

TARGETS = ("containerd", "runc", "cni", "coredns")
GPU_PROFILE = "nvidia"
GPU_TARGETS = ("nvidia-device-plugin", "nvidia-container-toolkit")
PLUGIN = "nvidia-device-plugin"
CDI_HOOK = "nvidia-cdi-hook"
GPU = "nvidia.com/gpu"
GPUS = 8
"""Of each real node in a cluster that has that profile."""
SOCKET = "/run/containerd/containerd.sock"
REAL_LABEL = dns.REAL_LABEL
READY_S = 90.0


def name_of(number: int) -> str:
    return f"node-{number}"


def certificate_of(cluster: Cluster, number: int) -> Certificate:
    return node_certificate(name_of(number), network.node_address(cluster, number))


def containerd_configuration(
    folder: Path, programs: Binaries, *, snapshotter: str = "overlayfs", plugin: str = "ptp"
) -> str:
    unused = "native" if snapshotter == "overlayfs" else "overlayfs"
    runtime = 'plugins."io.containerd.cri.v1.runtime"'
    pictures = 'plugins."io.containerd.cri.v1.images"'
    return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs",
  "io.containerd.snapshotter.v1.{unused}", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing", "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt",
]

[grpc]
  address = "{SOCKET}"

[{pictures}]
  snapshotter = "{snapshotter}"
[{pictures}.pinned_images]
  sandbox = "{images.reference("pause")}"
[{pictures}.registry]
  config_path = "{folder / "registries"}"

[{runtime}]
  # The room may not lower its score, and every sandbox would die trying.
  restrict_oom_score_adj = true
[{runtime}.cni]
  bin_dirs = ["{programs[plugin].parent}"]
  conf_dir = "{folder / "cni"}"
[{runtime}.containerd]
  default_runtime_name = "runc"
[{runtime}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{runtime}.containerd.runtimes.runc.options]
  BinaryName = "{programs["runc"]}"
  SystemdCgroup = false
"""


def kubelet_configuration(cluster: Cluster, number: int) -> dict[str, object]:
    pki, name = cluster.pki, name_of(number)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/node-{name}.crt",
        "tlsPrivateKeyFile": f"{pki}/node-{name}.key",
        "clusterDomain": "cluster.local",
        "clusterDNS": [cluster.dns_address],
        "resolvConf": str(cluster.folder / name / "resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cluster.cgroup}/{name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "serializeImagePulls": False,
        "maxPods": 250,
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 12,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        # A full disk of the developer's machine is no reason to evict a test's pods.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        # Whoever pulls the same layers from elsewhere with a secret takes a preloaded image from all others otherwise.
        "imagePullCredentialsVerificationPolicy": "NeverVerify",
        "shutdownGracePeriod": "0s",
        "enableSystemLogHandler": False,
    }


def proxy_configuration(cluster: Cluster, number: int) -> dict[str, object]:
    # What is usual later had to be asked for at first.
    gates = {"featureGates": {"NFTablesProxyMode": True}} if "older" in cluster.profiles else {}
    return {
        **gates,
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "bindAddress": "0.0.0.0",
        "hostnameOverride": name_of(number),
        "clientConnection": {"kubeconfig": str(cluster.folder / "kube-proxy.kubeconfig"), "qps": 100, "burst": 200},
        "clusterCIDR": cluster.pod_range,
        "detectLocalMode": "ClusterCIDR",
        "nftables": {"syncPeriod": "30s", "minSyncPeriod": "100ms"},
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def write_files(cluster: Cluster, programs: Binaries, number: int) -> None:
    name = name_of(number)
    folder = cluster.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "containerd.toml").write_text(containerd_configuration(folder, programs))
    (folder / "kubelet.json").write_text(json.dumps(kubelet_configuration(cluster, number), indent=1))
    (folder / "kube-proxy.json").write_text(json.dumps(proxy_configuration(cluster, number), indent=1))
    (folder / "resolv.conf").write_text("# The cluster's own names are all there are.\n")
    (folder / "registries").mkdir(exist_ok=True)
    network.write_plugin_configuration(cluster, number, folder / "cni")
    write_kubeconfig(cluster, f"node-{name}", folder / "kubeconfig")


def driver_root(cluster: Cluster, number: int) -> Path:
    return cluster.folder / name_of(number) / "driver"


def plugin_arguments(cluster: Cluster, programs: Binaries, number: int) -> list[str]:
    root = driver_root(cluster, number)
    return [
        str(programs[PLUGIN]),
        "--device-list-strategy=cdi-cri",
        f"--nvidia-driver-root={root}",
        f"--container-driver-root={root}",
        f"--nvidia-cdi-hook-path={programs[CDI_HOOK]}",
    ]


def component_arguments(cluster: Cluster, programs: Binaries, number: int) -> dict[str, list[str]]:
    name = name_of(number)
    folder = cluster.folder / name
    plugin = {PLUGIN: plugin_arguments(cluster, programs, number)} if GPU_PROFILE in cluster.profiles else {}
    return {
        **plugin,
        "containerd": [str(programs["containerd"]), "--config", str(folder / "containerd.toml"), "--log-level", "info"],
        "kubelet": [
            str(programs["kubelet"]),
            f"--config={folder / 'kubelet.json'}",
            f"--kubeconfig={folder / 'kubeconfig'}",
            f"--hostname-override={name}",
            f"--node-ip={network.node_address(cluster, number)}",
            "--root-dir=/var/lib/kubelet",
            f"--node-labels={REAL_LABEL}=true",
        ],
        "kube-proxy": [str(programs["kube-proxy"]), f"--config={folder / 'kube-proxy.json'}"],
    }


def start_component(cluster: Cluster, programs: Binaries, number: int, component: str, holder: int) -> Process:
    """Start (again) containerd, kubelet, kube-proxy or the device plugin of one node."""
    name = f"{name_of(number)}-{component}"
    launch = Launch(
        name,
        component_arguments(cluster, programs, number)[component],
        controlplane.environment(cluster, programs),
        cluster.logs / f"{name}.log",
        holder,
    )
    process = processes.start(launch)
    processes.record(cluster.processes, process)
    return process


def start_runtime(cluster: Cluster, programs: Binaries, number: int, holder: int, store: Path) -> Process:
    """Everything that can be done before there is an API: groups, images, containerd."""
    cgroups.make(f"{cluster.cgroup}/{name_of(number)}")
    images.clone(store, cluster.folder / name_of(number) / "lib/containerd")
    write_files(cluster, programs, number)
    if GPU_PROFILE in cluster.profiles:
        driver.make_root(driver_root(cluster, number), GPUS, number + 1)
    return start_component(cluster, programs, number, "containerd", holder)


def wait_runtime(programs: Binaries, holder: int, running: Process) -> None:
    """A kubelet that finds no runtime gives up for good."""
    asked = [str(programs["ctr"]), "-a", SOCKET, "version"]

    def answers() -> bool:
        namespaces.run(holder, asked)
        return True

    controlplane.wait_running("containerd answers", answers, [running])


def start_agents(cluster: Cluster, programs: Binaries, number: int, holder: int) -> list[Process]:
    return [start_component(cluster, programs, number, agent, holder) for agent in ("kubelet", "kube-proxy")]


def shown_gpus(with_api: api.Api, name: str) -> int:
    """How many GPUs of a node the scheduler may hand out."""
    body = with_api.get(api.path_of("Node", "v1", name=name)) or {}
    return int(body.get("status", {}).get("allocatable", {}).get(GPU, 0))


def is_ready(with_api: api.Api, name: str) -> bool:
    body = with_api.get(api.path_of("Node", "v1", name=name))
    conditions = (body or {}).get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
