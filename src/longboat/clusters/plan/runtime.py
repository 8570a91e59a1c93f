"""Steps for containerd: its configuration for Kubernetes, its service, images from an archive. Pure."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.observe.gpu_checks import is_version_since, wants_gpus
from longboat.clusters.plan.journal_shell import put, undo
from longboat.clusters.plan.steps import Kept, Step
from longboat.clusters.spec import ClusterSpec, HostSpec

CONFIG = "/etc/containerd/config.toml"
SOCKET = "unix:///run/containerd/containerd.sock"
OLDEST = (2, 0)  # Kubernetes 1.36 asks for what containerd 1 does not have
IMAGES_S = 1800.0  # half a gigabyte over a slow line
_ANSWERS_S = 60  # a container runtime with many images on a slow disk

# Whatever containerd and Kubernetes keep on the disk of a host. A folder that was there before stays.
DATA = (
    "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/etcd", "/var/lib/cni", "/etc/kubernetes", "/etc/cni",
    "/etc/containerd", "/opt/cni", "/opt/containerd", "/run/containerd", "/run/flannel", "/var/log/pods",
    "/var/log/containers", "/usr/libexec/kubernetes", "/run/xtables.lock", "/run/calico", "/run/cni",
    "/run/nri", "/run/netns", "/run/cdi",
)  # fmt: skip


def data(host: HostSpec) -> Step:
    """Record which data folders existed. Comes before the packages: its undo then runs after they are removed."""
    script = f"""if entry data; then
for folder in {" ".join(DATA)}; do [ -e "$folder" ] || printf '%s\\n' "$folder"; done > "$new/folders"
cat > "$new/run" <<'UNDO'
while read -r folder; do
    awk -v top="$folder" 'index($2, top "/") == 1 || $2 == top {{print $2}}' /proc/mounts | sort -r |
        while read -r mounted; do timeout 20 umount "$mounted" || umount -l "$mounted"; done
    case $folder in
        /run/netns) rmdir "$folder" 2>/dev/null || true ;;
        *) rm -rf --one-file-system "$folder" ;;
    esac
done < "$HERE/folders"
UNDO
close_entry
fi
"""
    return Step(host=host.name, name="data", title="remember which folders were there", script=script)


def is_good(facts: HostFacts) -> bool:
    """Whether containerd is installed and new enough."""
    return is_version_since(facts.program("containerd"), OLDEST)


def uses_systemd_cgroups(facts: HostFacts) -> bool:
    """Whether to use systemd's cgroup driver: where systemd runs the host, except in a container with cgroup 1."""
    return facts.init == "systemd" and facts.cgroup_version == 2


def configuration(spec: ClusterSpec, facts: HostFacts) -> str:
    """The containerd 2 configuration: the settings that Kubernetes needs, defaults for the rest."""
    images, runtime = 'plugins."io.containerd.cri.v1.images"', 'plugins."io.containerd.cri.v1.runtime"'
    # A host that is a container itself may not lower scores of the out-of-memory killer.
    restricted = "true" if facts.container else "false"
    # Data that is there stays where it is: Docker's containers run from it.
    places = (("root", facts.containerd_root), ("state", facts.containerd_state))
    kept = "".join(f'{name} = "{path}"\n' for name, path in places if path)
    return f"""version = 3
{kept}
[{images}.pinned_images]
  sandbox = "registry.k8s.io/pause:{spec.versions.pause}"

[{runtime}]
  restrict_oom_score_adj = {restricted}
  enable_cdi = true

[{runtime}.cni]
  bin_dirs = ["/opt/cni/bin"]
  conf_dir = "/etc/cni/net.d"

[{runtime}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[{runtime}.containerd.runtimes.runc.options]
  SystemdCgroup = {"true" if uses_systemd_cgroups(facts) else "false"}
"""


def containerd(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | Kept:
    content = configuration(spec, facts)
    is_same = facts.file(CONFIG) == hashlib.sha256(content.encode()).hexdigest()
    if is_same and facts.unit("containerd") == "active":
        return Kept(host=host.name, name="containerd", reason=f"containerd {facts.program('containerd')} works")
    # Others' containers (Docker's) live on while their containerd restarts; on the way back it gets its own file again.
    restart = "if systemctl -q is-active containerd; then systemctl restart containerd; fi"
    script = undo("containerd-restart", restart)
    script += put(CONFIG, content)
    script += f"""systemctl daemon-reload
if ! systemctl -q is-enabled containerd; then
{undo("containerd-enabled", "systemctl disable --now containerd 2>/dev/null || true")}systemctl -q enable containerd
fi
systemctl restart containerd
tries=0
until ctr version >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt {_ANSWERS_S * 5} ] || fail "containerd does not answer: $(journalctl -u containerd -n 3 -o cat 2>&1)"
    sleep 0.2
done
"""
    return Step(host=host.name, name="containerd", title="configure and start containerd", script=script)


def images(spec: ClusterSpec, host: HostSpec, facts: HostFacts, references: Sequence[str] = ()) -> Step | Kept | None:
    """Import images from an archive instead of a registry, through stdin. `references`: those of a bundle, or of
    add-ons, which may come later than the rest.
    """
    archive, checksum = spec.source.image_archive
    source = spec.source.location if spec.source.kind == "files" else archive
    if not source:
        return None
    every_node_runs = [
        f"registry.k8s.io/pause:{spec.versions.pause}",
        f"registry.k8s.io/kube-proxy:v{spec.versions.kubernetes}",
        *([spec.versions.device_plugin_image] if wants_gpus(spec, host, facts) else ()),
        *([spec.versions.kube_vip_image] if spec.vip and host.role == "control-plane" else ()),
    ]
    wanted = [*every_node_runs, *references]
    if set(wanted) <= set(facts.images):
        return Kept(host=host.name, name="images", reason="the images of this version are there")
    title = f"import images from {source}"
    load = "ctr -n k8s.io images import -"
    named = f"# {shlex.join(wanted)}\n"  # other images are another step
    if "images" in dict(facts.done) and not set(every_node_runs) <= set(facts.images):
        named += "# they were there, and were removed\n"  # by the kubelet, as the disk was full
    if spec.source.kind == "packages" and is_url(source):  # a pipe hides the exit code of what comes first
        only = "--proto '=https' --proto-redir '=https' " if source.startswith("https://") else ""  # all the way
        script = f'{named}curl -fsSL {only}--retry 3 -o "$LB/images.tar" {shlex.quote(source)}\n'
        if checksum:
            script += f"""printf '%s  %s\\n' {checksum} "$LB/images.tar" | sha256sum -c --quiet - >/dev/null 2>&1 ||
    {{ rm "$LB/images.tar"; fail "error: {source} is not what the cluster file names: its checksum is another one"; }}
"""
        script += f'{load} < "$LB/images.tar" >/dev/null\nrm "$LB/images.tar"\n'
        return Step(host=host.name, name="images", title=title, script=script, timeout_s=IMAGES_S)
    script = f"{named}{load} >/dev/null\n"
    # Pinned: what nobody can pull again may not be removed when the disk fills.
    for name in references if spec.source.kind == "files" else ():
        script += f"ctr -n k8s.io images label {shlex.quote(name)} io.cri-containerd.pinned=pinned >/dev/null\n"
    return Step(host=host.name, name="images", title=title, script=script, kind="images", timeout_s=IMAGES_S)


def is_url(text: str) -> bool:
    return text.startswith(("https://", "http://"))
