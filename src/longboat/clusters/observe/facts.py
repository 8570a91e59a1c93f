"""Facts of one host, as `probe` reads them; every field has a value for "not there", so that old hosts can be read."""

from __future__ import annotations

from longboat.core.jobs import Value

SYSTEM_FILES = (
    "/etc/containerd/config.toml",
    "/etc/fstab",
    "/etc/kubernetes/admin.conf",
    "/etc/kubernetes/kubelet.conf",
    "/etc/kubernetes/pki/ca.crt",
    "/etc/modules-load.d/longboat.conf",
    "/etc/sysctl.d/90-longboat.conf",
    "/etc/cni/net.d/10-longboat.conflist",
    "/var/lib/kubelet/config.yaml",
    "/run/cdi/nvidia.yaml",
)
"""Files that the plan looks at: present or not, and the hash of what is in them."""

PROGRAMS = (
    "containerd", "runc", "kubelet", "kubeadm", "kubectl", "flanneld", "nvidia-smi", "nvidia-ctk", "docker", "k3s",
)  # fmt: skip
SYSCTLS = ("net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables", "fs.inotify.max_user_instances")
MODULES = ("overlay", "br_netfilter", "vxlan", "nouveau", "nvidia")


PACKAGES = (
    "kubelet", "kubeadm", "kubectl", "cri-tools", "kubernetes-cni", "containerd", "containerd.io", "runc", "docker.io",
    "docker-ce", "moby-engine", "conntrack", "conntrack-tools", "socat", "ethtool", "ebtables", "iptables", "nftables",
    "nvidia-container-toolkit", "nvidia-open", "nvidia-driver", "cuda-drivers", "nvidia-fabricmanager", "nfs-common",
    "nfs-utils",
)  # fmt: skip
UNITS = (
    "containerd", "kubelet", "longboat-routes", "longboat-flannel",
    "docker", "crio", "firewalld", "ufw", "nftables", "iptables", "netfilter-persistent", "k3s", "k3s-agent",
    "rke2-server", "rke2-agent", "nvidia-fabricmanager", "nvidia-persistenced", "chronyd", "chrony",
    "systemd-timesyncd", "ntpd", "ntpsec",
)  # fmt: skip
JOURNAL = "/var/lib/longboat"


class Listener(Value, frozen=True):
    port: int
    program: str = ""


class Disk(Value, frozen=True):
    path: str
    total: int
    free: int


class GpuDevice(Value, frozen=True):
    """An NVIDIA PCI device, with or without a driver."""

    bus: str
    device: str


class HostFacts(Value, frozen=True):
    name: str
    """As the cluster file has it; `hostname` is what the host calls itself."""
    hostname: str = ""
    os_id: str = ""
    """ID of /etc/os-release: debian, ubuntu, rocky, ..."""
    os_like: tuple[str, ...] = ()
    os_version: str = ""
    os_codename: str = ""
    architecture: str = ""
    """As packages and images name it: amd64, arm64; else what `uname -m` says."""
    kernel: str = ""
    package_manager: str = ""
    """apt or dnf; zypper, pacman and apk are named but not used; empty: none known."""
    init: str = ""
    """systemd or the name of what runs as process 1."""
    cgroup_version: int = 0
    cpus: int = 0
    memory: int = 0
    disks: tuple[Disk, ...] = ()
    """Of /, /var and /var/lib, where they differ."""
    swaps: tuple[str, ...] = ()
    """In use now."""
    fstab_swaps: tuple[str, ...] = ()
    listeners: tuple[Listener, ...] = ()
    addresses: tuple[str, ...] = ()
    """With prefix, 10.0.0.5/24, of the host's own interfaces (no bridges of containers)."""
    routes: tuple[str, ...] = ()
    """Destinations of its routing table, 10.0.0.0/24, without the default route."""
    source_address: str = ""
    """The one it sends from by its default route, else its first."""
    has_route_out: bool = False
    machine_id: str = ""
    product_uuid: str = ""
    clock_s: float = 0.0
    """Seconds since 1970 as the host has them, halfway through the round trip."""
    skew_s: float = 0.0
    """How far its clock is ahead of ours."""
    firewall: str = ""
    """ufw, firewalld, nftables or iptables (rules of the user's own), or empty where nothing is filtered."""
    open_ports: tuple[str, ...] = ()
    """Those that the firewall lets in: 6443/tcp, 30000:32767/tcp, or a service's name."""
    forwarded: tuple[str, ...] | None = None
    """Networks whose packets nftables forwards; None: nothing there is dropped on its way through."""
    proxies: tuple[tuple[str, str], ...] = ()
    programs: tuple[tuple[str, str], ...] = ()
    """Program -> version, of those on the PATH of root."""
    packages: tuple[tuple[str, str], ...] = ()
    """Installed packages among those that the plan would install -> version."""
    units: tuple[tuple[str, str], ...] = ()
    """containerd, kubelet, flanneld, ...: active, inactive, failed, or empty: not there."""
    sysctls: tuple[tuple[str, str], ...] = ()
    modules: tuple[str, ...] = ()
    """Loaded, or built into the kernel."""
    loadable: tuple[str, ...] = ()
    """Not loaded, but modprobe has them."""
    files: tuple[tuple[str, str], ...] = ()
    """Path -> SHA-256, of SYSTEM_FILES that are there."""
    images: tuple[str, ...] = ()
    """References in containerd's namespace k8s.io."""
    cri_disabled: bool = False
    """containerd's configuration switches the part off that the kubelet needs, as Docker's package does."""
    containerd_root: str = ""
    """Where containerd's configuration keeps its data, if it says so; `containerd_state` for what ends with a boot."""
    containerd_state: str = ""
    cluster: str = ""
    """A cluster the host belongs to: kubeadm, k3s, rke2, microk8s, k0s, or leftovers of one; empty: none."""
    cluster_server: str = ""
    journal_cluster: str = ""
    """Name of the Longboat cluster in the host's journal; empty: none."""
    journal_id: str = ""
    """Its id, which tells clusters of one name apart; empty: none, or what is there is none."""
    journal: tuple[str, ...] = ()
    """Entries of the journal, oldest first."""
    done: tuple[tuple[str, str], ...] = ()
    """Step -> key of what was carried out (`done/` of the journal)."""
    container: str = ""
    """What systemd-detect-virt calls the container that the host itself is; empty: a machine, real or virtual."""
    gpus: tuple[GpuDevice, ...] = ()
    driver: str = ""
    """Version of the loaded NVIDIA driver."""
    secure_boot: bool = False
    nvswitch: bool = False
    sudo: str = ""
    """root, free (no password), password (given, and right), asks (not given, or wrong), or none."""
    sudo_message: str = ""
    """Why there is no way to root."""

    def program(self, name: str) -> str:
        return dict(self.programs).get(name, "")

    def package(self, name: str) -> str:
        return dict(self.packages).get(name, "")

    def unit(self, name: str) -> str:
        return dict(self.units).get(name, "")

    def file(self, path: str) -> str:
        return dict(self.files).get(path, "")


class HostProblem(Value, frozen=True):
    """A problem of a host, and its remedy."""

    host: str
    check: str
    """Short name: swap, port, sudo, clock, ..."""
    message: str
    severity: str = "error"
    """error: nothing is touched anywhere; repair: `up` mends it; warning: said, and on we go."""
    remedy: str = ""
    """What `up` does about it, or what the user should do."""
