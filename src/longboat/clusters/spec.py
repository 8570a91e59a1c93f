"""What a cluster file asks for, as values: hosts, roles, versions, network, add-ons. Text is `cluster_file`'s."""

from __future__ import annotations

from typing import Literal

from longboat.clusters.cloud.spec import CloudSpec
from longboat.core.jobs import Value
from longboat.fitting.model.nodes import Taint

ClusterKind = Literal["ssh", "local", "existing", "aws", "azure", "gcp"]
Role = Literal["control-plane", "worker"]
GpuChoice = Literal["auto", "yes", "no"]
FirewallChoice = Literal["check", "open", "ignore"]
DriverChoice = Literal["nvidia", "distribution", "keep"]
NetworkKind = Literal["routes", "flannel", "manifest"]
StorageKind = Literal["local-path", "nfs"]
Addon = Literal["gpu", "jobset", "kueue", "storage", "controller", "autoscaler", "metrics"]

API_PORT = 6443
GPU_RESOURCE = "nvidia.com/gpu"
GPU_LABEL = "nvidia.com/gpu.present"
"""Of nodes with GPUs; the device plugin runs on them. NVIDIA's own charts and feature discovery use the same."""
ADDON_LABEL = "longboat.dev/addon"
"""On every object that was made for an add-on; its value is the add-on's name. What lacks it is somebody else's."""


class HostSpec(Value, frozen=True):
    """A machine and its role."""

    name: str
    """The node's name in the cluster, and the one that messages use."""
    address: str
    """What ssh connects to: an address, a name, or an alias of ~/.ssh/config. Empty: this machine."""
    user: str | None = None
    port: int | None = None
    key: str | None = None
    """A file with a private key; none: the agent's, and what ~/.ssh/config names."""
    bastion: str | None = None
    """[user@]host[:port] through which the host is reached."""
    node_address: str | None = None
    """The address other nodes use; none: the one the host sends from."""
    role: Role = "worker"
    gpu: GpuChoice = "auto"
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()


class Versions(Value, frozen=True):
    """Pinned versions. The defaults are a tested combination (`versions`)."""

    kubernetes: str = "1.36.4"
    containerd: str = "2.4.2"
    flannel: str = "0.28.0"
    pause: str = "3.10.2"
    """The image that holds a pod's namespaces, as this version of kubeadm names it."""
    driver: str = "580"
    """The branch of NVIDIA's driver that is installed where there is none."""
    toolkit: str = "1.20.1"
    """NVIDIA's container toolkit."""
    device_plugin: str = "0.19.3"
    """NVIDIA's device plugin."""
    kube_vip: str = "1.0.0"
    """What moves a virtual IP between control planes."""

    @property
    def kube_vip_image(self) -> str:
        return f"ghcr.io/kube-vip/kube-vip:v{self.kube_vip}"

    @property
    def device_plugin_image(self) -> str:
        """The device plugin's image, also used to verify GPUs: a GPU host surely has it."""
        return f"nvcr.io/nvidia/k8s-device-plugin:v{self.device_plugin}"


class PackageRepository(Value, frozen=True):
    """A signed package repository besides the distribution's."""

    url: str
    """Of apt: what stands after `deb`, with `{minor}` for a version such as v1.36. Of dnf: the base URL."""
    key: str
    """The public key that signs it: a URL or a file here."""
    suite: str = "/"
    """Of apt: suite and components; `/` for a flat repository."""


class SoftwareSource(Value, frozen=True):
    """The source of packages and images."""

    kind: Literal["packages", "files"] = "packages"
    """`packages`: the host's package manager; `files`: a folder or bundle here, or a URL with the same layout."""
    location: str | None = None
    """Of files."""
    flanneld: str | None = None
    """Of packages: the program of `network: flannel`, a file here or a URL; none: the project's release."""
    sha256: str | None = None
    """Of files: checksum of the bundle's manifest, which has those of all others."""
    repositories: tuple[PackageRepository, ...] = ()
    """Of packages: instead of the projects' own."""
    images: str | None = None
    """An archive of images (a file here or a URL, perhaps with `#sha256=SUM`) imported instead of pulling. Files
    bring their own.
    """

    @property
    def image_archive(self) -> tuple[str, str]:
        """Location of `images` and the checksum that it must have, each perhaps empty."""
        location, _, checksum = (self.images or "").partition("#sha256=")
        return location, checksum


class Network(Value, frozen=True):
    """The pod network."""

    kind: NetworkKind = "routes"
    pods: str = "10.244.0.0/16"
    services: str = "10.96.0.0/12"
    manifest: str | None = None


OWN_FOLDER = "longboat-volumes"
"""The last part of the folder of volumes on nodes."""


class VolumeStorage(Value, frozen=True):
    """The storage of the add-on `storage`: a folder on each node, or an NFS export."""

    kind: StorageKind = "local-path"
    path: str = "/var/lib/longboat-volumes"
    """Outside of the journal's folder: it goes with the cluster, volumes stay."""
    server: str | None = None
    """Of nfs."""

    @property
    def folder(self) -> str:
        """Where volumes are: on nodes in a folder of our own, because it is closed to everybody but root, and the path
        may be one that others use too."""
        is_own = self.kind != "local-path" or self.path.endswith(f"/{OWN_FOLDER}")
        return self.path if is_own else f"{self.path}/{OWN_FOLDER}"


class ClusterSpec(Value, frozen=True):
    name: str
    """Also the context's name in the kubeconfig, for `--on`."""
    id: str = ""
    """Random, made by the first `up`: not of the file. Tells clusters of one name apart."""
    kind: ClusterKind = "ssh"
    hosts: tuple[HostSpec, ...] = ()
    context: str | None = None
    """Of `existing`: the kubeconfig's context."""
    endpoint: str | None = None
    """address[:port] before several control planes; none: `vip`, or the only one's."""
    vip: str | None = None
    """An address that kube-vip moves between the control planes."""
    versions: Versions = Versions()
    source: SoftwareSource = SoftwareSource()
    network: Network = Network()
    firewall: FirewallChoice = "check"
    driver: DriverChoice = "nvidia"
    """Where the driver of GPU hosts comes from; `keep`: they have it already."""
    addons: tuple[Addon, ...] = ("controller",)
    image: str | None = None
    """The image that has Longboat, for the add-ons controller and autoscaler."""
    storage: VolumeStorage = VolumeStorage()
    pools: str | None = None
    """The pools file of the add-on autoscaler."""
    manifests: tuple[tuple[str, str], ...] = ()
    """Add-on to a file or URL, instead of the manifest that its project publishes."""
    kubelet: tuple[tuple[str, str], ...] = ()
    """KubeletConfiguration fields as JSON texts, for machines with needs of their own."""

    cloud: CloudSpec | None = None
    """Of a cloud's kind: its region, network and pools."""

    @property
    def control_planes(self) -> tuple[HostSpec, ...]:
        return tuple(host for host in self.hosts if host.role == "control-plane")
