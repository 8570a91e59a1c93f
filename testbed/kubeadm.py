"""Makes a host ready for kubeadm as an administrator would: packages by apt, containerd configured, images imported.

Everything comes from the group's repository (`apt_repository`), so it works without a way out. Not here: calling
kubeadm; a test, or Longboat, does that.
"""

from __future__ import annotations

import json

from testbed import kubeadm_images, packages
from testbed.apt_repository import Repository
from testbed.hosts import Group

TARGETS = (*kubeadm_images.TARGETS, *packages.targets_of((*packages.NEWEST, *packages.OF_DISTRIBUTION)))
INSTALL_S = 300.0  # 106 MB are unpacked, on a machine that may be busy with other hosts
_INSTALL = """set -e
mkdir -p /etc/cni/net.d
cat > /etc/cni/net.d/10-testbed.conflist
curl -fsS --noproxy "*" -o /etc/apt/keyrings/kubernetes.asc {url}/Release.key
echo "deb [signed-by=/etc/apt/keyrings/kubernetes.asc] {url}/ /" > /etc/apt/sources.list.d/kubernetes.list
apt-get -q update
DEBIAN_FRONTEND=noninteractive apt-get -q -y install containerd kubelet kubeadm kubectl
containerd config default | sed "s/SystemdCgroup = false/SystemdCgroup = true/" > /etc/containerd/config.toml
systemctl restart containerd
curl -fsS --noproxy "*" -o /var/tmp/images.tar {images}
ctr -n k8s.io images import /var/tmp/images.tar
rm /var/tmp/images.tar
sysctl -q -w net.ipv4.ip_forward=1
"""


def pod_range(group: Group, number: int) -> str:
    return f"10.{group.record.range}.{64 + number}.0/24"


def network_configuration(group: Group, number: int) -> str:
    """Pods are attached by the CNI plugin ptp; hosts route to each other's pods."""
    subnet = {"subnet": pod_range(group, number)}
    addresses = {"type": "host-local", "ranges": [[subnet]], "routes": [{"dst": "0.0.0.0/0"}]}
    return json.dumps({"cniVersion": "1.0.0", "name": "testbed", "plugins": [{"type": "ptp", "ipam": addresses}]})


def install(group: Group, number: int, repository: Repository) -> None:
    """Put everything on one host and start containerd. The kubelet waits for kubeadm."""
    host = group.hosts[number]
    repository.use(host)
    script = _INSTALL.format(url=repository.kubernetes_url(), images=repository.images_url())
    host.run(f"sudo sh -c '{script}' 2>&1", text=network_configuration(group, number), within_s=INSTALL_S)
    for other, machine in enumerate(group.hosts):
        if other != number:
            host.run(f"sudo ip route replace {pod_range(group, other)} via {machine.address}")
