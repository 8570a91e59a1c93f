"""Steps for kubeadm: its configuration documents, init of the first control plane, join of the others. Pure.

Tokens are no part of a step: `apply` makes a short-lived one when a host joins, and it travels through stdin.
"""

from __future__ import annotations

import json
from typing import Any

from longboat.clusters import virtual_ip
from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.plan.journal_shell import undo
from longboat.clusters.plan.runtime import SOCKET, uses_systemd_cgroups
from longboat.clusters.plan.steps import Kept, Step
from longboat.clusters.spec import API_PORT, ClusterSpec, HostSpec
from longboat.core.jobs import Value

ADMIN, KUBELET = "/etc/kubernetes/admin.conf", "/etc/kubernetes/kubelet.conf"
API = "kubeadm.k8s.io/v1beta4"
Document = dict[str, Any]
# kubeadm's own limits of one minute are too short for a machine that is busy or pulls images while it starts.
TIMEOUTS = {
    "controlPlaneComponentHealthCheck": "5m0s",
    "kubeletHealthCheck": "5m0s",
    "kubernetesAPICall": "3m0s",
    "tlsBootstrap": "5m0s",
}

# In a namespace of containerd that was there before, or of which that is not known, only what a kubelet made is ours.
# A containerd that was there before, Docker's say, stays: without the images that only we have brought.
_REMOVE_CONTAINERS = r"""
was() { grep -q "^$1" /var/lib/longboat/before 2>/dev/null; }
made_by_kubelet=
if was "containerd	\(namespace k8s.io\|not known\)\$"; then made_by_kubelet='labels."io.cri-containerd.kind"'; fi
if command -v ctr >/dev/null && timeout 10 ctr version >/dev/null 2>&1; then
    boxes=$(ctr -n k8s.io containers list -q $made_by_kubelet) || true
    for box in $boxes; do timeout 20 ctr -n k8s.io tasks kill -s 9 "$box" 2>/dev/null || true; done
    for box in $boxes; do
        timeout 20 ctr -n k8s.io tasks delete -f "$box" >/dev/null 2>&1 || true
        timeout 20 ctr -n k8s.io containers delete "$box" || true
    done
    if was "\(program\|file\)	.*/bin/containerd\$" && [ -z "$made_by_kubelet" ]; then
        timeout 120 ctr -n k8s.io images remove --sync $(ctr -n k8s.io images list -q) >/dev/null || true
        for try in 1 2 3 4 5 6 7 8 9 10; do timeout 20 ctr namespaces remove k8s.io && break; sleep 1; done
    fi
fi
"""

# Of pods that kubeadm could not stop in time: the kubelet's volumes, network namespaces, and the shared memory of their
# sandboxes, which kubelets alone have. A containerd that was there before keeps its folders, so nothing else does it.
_UNMOUNT = r"""
state=$(sed -n 's/^state *= *"\(.*\)"/\1/p' /etc/containerd/config.toml 2>/dev/null | head -n 1)
awk -v boxes="${state:-/run/containerd}/io.containerd.grpc.v1.cri/sandboxes/" '
    index($2, "/var/lib/kubelet/") == 1 || index($2, "/run/netns/cni-") == 1 {print $2}
    index($2, boxes) == 1 && $2 ~ "[0-9a-f]/shm$" {print $2}' /proc/mounts | sort -r |
    while read -r mounted; do
        timeout 20 umount "$mounted" || umount -l "$mounted"
        case $mounted in */sandboxes/*/shm) rm -rf --one-file-system "${mounted%/shm}" ;; esac
    done
"""

# Containers whose runtime did not answer: they hold GPUs, files and ports for ever. Those of a cluster inside a
# container (kind, minikube) are seen from here too: they have namespaces of their own.
_KILL_SHIMS = r"""
for shim in $(pgrep -f 'containerd-shim.* -namespace k8s.io '); do
    spaces=$(readlink "/proc/$shim/ns/pid" "/proc/$shim/ns/mnt") || continue
    [ "$spaces" = "$(readlink /proc/1/ns/pid /proc/1/ns/mnt)" ] || continue
    words=$(tr '\0' '\n' < "/proc/$shim/cmdline") || continue
    printf '%s\n' "$words" | grep -qx /run/containerd/containerd.sock || continue
    box=/run/containerd/io.containerd.runtime.v2.task/k8s.io/$(printf '%s\n' "$words" | sed -n '/^-id$/{n;p;}')
    [ -z "$made_by_kubelet" ] || grep -q '"io.kubernetes.cri.' "$box/config.json" 2>/dev/null || continue
    kill -9 "$shim" 2>/dev/null || true
done
"""

# What `kubeadm reset` leaves: pods whose runtime did not answer, interfaces, chains of kube-proxy and the CNI plugins.
RESET = (
    r"""
systemctl stop kubelet 2>/dev/null || true
if command -v containerd >/dev/null; then
    systemctl start containerd 2>/dev/null || true
    for try in 1 2 3 4 5 6 7 8 9 10; do timeout 5 ctr version >/dev/null 2>&1 && break; sleep 1; done
fi
if command -v kubeadm >/dev/null; then
    timeout 180 kubeadm reset -f --cri-socket unix:///run/containerd/containerd.sock || echo "kubeadm reset failed"
fi
"""
    + _REMOVE_CONTAINERS
    + _UNMOUNT
    + r"""
rm -f /run/netns/cni-*
rm -rf /etc/kubernetes/manifests /etc/kubernetes/pki /etc/kubernetes/tmp
rm -f /etc/kubernetes/*.conf /etc/cni/net.d/*longboat*
for link in cni0 flannel.1 kube-ipvs0 kube-bridge; do
    was "interface	$link\$" || ip link delete "$link" 2>/dev/null || true
done
nft delete table ip kube-proxy 2>/dev/null || true
nft delete table ip6 kube-proxy 2>/dev/null || true
for family in iptables ip6tables; do
    for variant in nft legacy; do
        command -v $family-$variant-save >/dev/null || continue
        [ $variant = nft ] || grep -q -s . "/proc/net/${family%tables}_tables_names" || continue
        was "chain	$family-$variant \(KUBE\|CNI\|FLANNEL\)-" && continue  # somebody else's, from before
        kept=$($family-$variant-save 2>/dev/null) || continue
        case "$kept" in *KUBE-*|*CNI-*|*FLANNEL-*) ;; *) continue ;; esac
        printf '%s\n' "$kept" | grep -v 'KUBE-\|CNI-\|FLANNEL-' | $family-$variant-restore
    done
done
"""
    + _KILL_SHIMS
    + r"""
# The nft form of iptables leaves its tables behind, empty; those that were there before stay.
for table in 'ip nat' 'ip filter' 'ip mangle' 'ip6 nat' 'ip6 filter' 'ip6 mangle'; do
    grep -qx "chain	table $table" /var/lib/longboat/before && continue
    rules=$(nft -a list table $table 2>/dev/null) || continue
    printf '%s\n' "$rules" | grep -q '# handle .*' || continue
    printf '%s\n' "$rules" | grep -v '^table\|chain .* {\|type .* hook\|^[[:space:]]*}\|^$\|^#' | grep -q . ||
        nft delete table $table
done
"""
)


class JoinTicket(Value, frozen=True):
    """Short-lived secrets that a host needs to join."""

    server: str
    token: str
    ca_hash: str
    certificate_key: str = ""
    """Of a control plane: opens the certificates that the first one has stored in the cluster."""


def endpoint(spec: ClusterSpec, address: str) -> str:
    wanted = spec.endpoint or spec.vip or address
    return wanted if ":" in wanted else f"{wanted}:{API_PORT}"


def address_of(host: HostSpec, facts: HostFacts) -> str:
    return host.node_address or facts.source_address


def registration(host: HostSpec, facts: HostFacts) -> Document:
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in host.taints]
    document: Document = {
        "name": host.name,
        "criSocket": SOCKET,
        "kubeletExtraArgs": [{"name": "node-ip", "value": address_of(host, facts)}],
        "ignorePreflightErrors": list(ignored(facts)),
    }
    # A control plane without the key gets kubeadm's taint; an empty list means none, as on a cluster of one host.
    return document | ({"taints": taints} if taints or host.role == "worker" else {})


def ignored(facts: HostFacts) -> tuple[str, ...]:
    """Preflight checks of kubeadm to ignore: `problems` checks the same more precisely."""
    always = ("NumCPU", "Mem", "Swap")
    # The check of the kernel's configuration fails inside a container, which has no modules folder.
    return (*always, "SystemVerification") if facts.container or facts.cgroup_version == 1 else always


def kubelet_configuration(spec: ClusterSpec, facts: HostFacts) -> Document:
    document: Document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd" if uses_systemd_cgroups(facts) else "cgroupfs",
        "rotateCertificates": True,
        # Trainings that are told to end may write a checkpoint while the machine goes down.
        "shutdownGracePeriod": "60s",
        "shutdownGracePeriodCriticalPods": "10s",
    }
    return document | {name: json.loads(text) for name, text in spec.kubelet}


def proxy_configuration(facts: HostFacts) -> Document:
    document: Document = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
    }
    if facts.container:  # limits of connection tracking are the machine's, not the container's
        document["conntrack"] = {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return document


def init_documents(spec: ClusterSpec, host: HostSpec, facts: HostFacts, token: str) -> list[Document]:
    address = address_of(host, facts)
    is_single = len(spec.hosts) == 1
    return [
        {
            "apiVersion": API,
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": address, "bindPort": API_PORT},
            "nodeRegistration": registration(host, facts) | ({"taints": []} if is_single and not host.taints else {}),
            "timeouts": TIMEOUTS,
            # kubeadm insists on one; hosts join with others, so this one goes at once.
            "bootstrapTokens": [{"token": token, "ttl": "1m0s"}],
        },
        {
            "apiVersion": API,
            "kind": "ClusterConfiguration",
            "clusterName": spec.name,
            "kubernetesVersion": f"v{spec.versions.kubernetes}",
            "controlPlaneEndpoint": endpoint(spec, address),
            "networking": {"podSubnet": spec.network.pods, "serviceSubnet": spec.network.services},
        },
        kubelet_configuration(spec, facts),
        proxy_configuration(facts),
    ]


def certificate_documents(spec: ClusterSpec, host: HostSpec, facts: HostFacts, key: str) -> list[Document]:
    """For the upload of a control plane's certificates: without an address kubeadm wants a default route to find one,
    and without a version it asks the internet.
    """
    local = {"advertiseAddress": address_of(host, facts), "bindPort": API_PORT}
    registered = {"name": host.name, "criSocket": SOCKET}
    version = f"v{spec.versions.kubernetes}"
    return [
        {
            "apiVersion": API,
            "kind": "InitConfiguration",
            "localAPIEndpoint": local,
            "nodeRegistration": registered,
            "certificateKey": key,
        },
        {"apiVersion": API, "kind": "ClusterConfiguration", "kubernetesVersion": version},
    ]


def join_documents(spec: ClusterSpec, host: HostSpec, facts: HostFacts, ticket: JoinTicket) -> list[Document]:
    discovery = {"apiServerEndpoint": ticket.server, "token": ticket.token, "caCertHashes": [ticket.ca_hash]}
    document: Document = {
        "apiVersion": API,
        "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": discovery, "tlsBootstrapToken": ticket.token},
        "nodeRegistration": registration(host, facts),
        "timeouts": TIMEOUTS,
    }
    if host.role == "control-plane":
        local = {"advertiseAddress": address_of(host, facts), "bindPort": API_PORT}
        document["controlPlane"] = {"localAPIEndpoint": local, "certificateKey": ticket.certificate_key}
    return [document]


def as_text(documents: list[Document]) -> bytes:
    """A multi-document YAML text (JSON is YAML)."""
    return "\n---\n".join(json.dumps(document) for document in documents).encode()


# The configuration holds a token: it is written for root alone, and gone when kubeadm has read it.
# The kubelet writes a file for logind, so that a shutdown waits for pods.
_CALL = """
save /etc/systemd/logind.conf.d/99-kubelet.conf
rm -f /run/longboat-kubeadm.yaml
(umask 077; cat > /run/longboat-kubeadm.yaml)
trap 'rm -f /run/longboat-kubeadm.yaml' EXIT
"""

MEMBER = "/var/lib/longboat/done/kubernetes"
"""Written last: the host is part of the cluster."""

STARTED = "/var/lib/longboat/joining"
"""There while kubeadm works: what it leaves when it is cut off is ours to reset."""

# Whatever made us come here: what is part of a cluster is never reset by `up`.
_UNLESS_MEMBER = f"""if [ -e {MEMBER} ]; then
    [ -e {KUBELET} ] || fail "error: part of the cluster, but {KUBELET} is missing: bring it back, or take it down"
    say "part of the cluster already"
    exit 0
fi
reset_host() {{ timeout 180 kubeadm reset -f --cri-socket {SOCKET} >/dev/null 2>&1 || true; }}
if [ -e {STARTED} ]; then
    reset_host
elif [ -e {KUBELET} ] || [ -e /etc/kubernetes/manifests/kube-apiserver.yaml ]; then
    fail "error: there is a cluster on this host that is not ours"
fi
: > {STARTED}
sync {STARTED} 2>/dev/null || sync
"""


def init(host: HostSpec, vip: str = "") -> Step:
    """`vip`: shell functions that bring the virtual IP, and its undo (`_virtual_ip`)."""
    call = "kubeadm init --config /run/longboat-kubeadm.yaml --skip-token-print"
    if vip:
        call = f"put_vip {virtual_ip.FIRST_KUBECONFIG} && {call} && put_vip {virtual_ip.KUBECONFIG} && vip_answers"
    script = vip + undo("kubernetes", RESET) + _UNLESS_MEMBER + ("vip_is_free\n" if vip else "") + _CALL
    script += f"initialize() {{ {call}; }}\n"
    script += """# A slow machine misses one of kubeadm's time limits; the second time its images and caches are warm.
initialize || {
    say "kubeadm init failed, once more"
    reset_host
    initialize
}
"""
    script += "keep_vip\n" if vip else ""
    script += f"done_with kubernetes member\nrm -f {STARTED}\n"
    title = "make the control plane (kubeadm init)"
    return Step(host=host.name, name="init", title=title, script=script, kind="init", timeout_s=900.0)


def join(host: HostSpec, after: str, vip: str = "") -> Step:
    script = (
        vip + undo("kubernetes", RESET) + _UNLESS_MEMBER + _CALL + "kubeadm join --config /run/longboat-kubeadm.yaml\n"
    )
    script += f"put_vip {virtual_ip.KUBECONFIG}\nkeep_vip\n" if vip else ""
    script += f"done_with kubernetes member\nrm -f {STARTED}\n"
    title = f"join {'as a control plane' if host.role == 'control-plane' else 'as a worker'} (kubeadm join)"
    return Step(host=host.name, name="join", title=title, script=script, kind="join", needs=(after,), timeout_s=900.0)


def has_begun(facts: HostFacts) -> bool:
    """Whether kubeadm was ever called here: then what it made is the host's own."""
    return any(entry.partition("-")[2] == "kubernetes" for entry in facts.journal)


def member(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | Kept:
    """The init or join step, unless the host is a member."""
    first = spec.control_planes[0].name
    vip = _virtual_ip(spec, host, facts)
    if facts.file(KUBELET) and "kubernetes" in dict(facts.done):
        return Kept(host=host.name, name="join" if host.name != first else "init", reason="part of the cluster")
    if host.name == first:
        return init(host, vip)
    # Members of etcd join one after the other: it refuses a second one while the first is catching up.
    planes = [plane.name for plane in spec.control_planes]
    earlier = planes[planes.index(host.name) - 1] if host.name in planes else first
    return join(host, f"{earlier}/{'init' if earlier == first else 'join'}", vip)


def _virtual_ip(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> str:
    """What a control plane needs for a virtual IP. The address goes last on the way back, after kube-vip."""
    if not spec.vip or host.role != "control-plane":
        return ""
    functions = virtual_ip.functions(spec, host.name, address_of(host, facts))
    return functions + undo("vip", virtual_ip.undo_script(spec.vip))
