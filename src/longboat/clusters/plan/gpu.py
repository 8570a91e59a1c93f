"""Steps for hosts with NVIDIA GPUs: driver, restart, fabric manager, container toolkit with its CDI description. Pure.

The first of a host's steps, so that a restart meets nothing of the cluster. Pods get devices by CDI, which containerd
has switched on: there is no other runtime that a pod could name to see GPUs which it has not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.observe.gpu_checks import wants_gpus
from longboat.clusters.plan.journal_shell import put, undo
from longboat.clusters.plan.packages import install_script
from longboat.clusters.plan.steps import RESTART_HELPS, Kept, Step
from longboat.clusters.spec import GPU_LABEL, ClusterSpec, HostSpec, PackageRepository
from longboat.core.errors import Refused

Items = list[Step | Kept | None]
CDI = "/run/cdi/nvidia.yaml"
NOUVEAU_FILE = "/etc/modprobe.d/longboat-nouveau.conf"
NOUVEAU = "blacklist nouveau\noptions nouveau modeset=0\n"
PIN_FILE = "/etc/apt/preferences.d/longboat-nvidia"
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
FIRST_TURING = 0x1E00
"""PCI devices from here on are of the architecture Turing or later, which the open kernel modules need."""
FIRST_BLACKWELL = 0x2900
"""From here on only the open kernel modules work. Debian's security updates leave these behind the driver's other
packages, which want their very version, so its own modules are taken for all earlier GPUs.
"""
INSTALL_S = 1800.0  # the driver is half a gigabyte, and its kernel modules are compiled
RESTART_S = 120.0  # of the check afterwards: modprobe and nvidia-smi take a minute with eight GPUs at most
_FEW = r"[A-Za-z0-9._+~-]{1,128}"

_INITRAMFS = """
if command -v update-initramfs >/dev/null; then update-initramfs -u
elif command -v dracut >/dev/null; then dracut -f
fi
"""
_HOLD = """
for name in $fresh; do
    case $name in *nvidia*|*cuda*) apt-mark hold "$name" >/dev/null ;; esac
done
"""
# Before the packages go: what is in memory goes with what is on the disk. Files of devices that were there before stay.
_UNLOAD = """
systemctl stop nvidia-persistenced nvidia-fabricmanager 2>/dev/null || true
for name in nvidia_uvm nvidia_drm nvidia_modeset nvidia; do
    [ ! -d "/sys/module/$name" ] || modprobe -r "$name" 2>/dev/null || true
done
if [ -d /sys/module/nvidia ]; then
    echo "the driver is in use: it leaves the memory with the next restart"
else
    grep -q '^device' /var/lib/longboat/before || rm -rf /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-*
fi
"""
_WORKS = f"""
command -v nvidia-smi >/dev/null || fail "error: the NVIDIA driver was installed without nvidia-smi"
reason=$(modprobe nvidia 2>&1) || true
listed=$(nvidia-smi -L 2>&1) || {{
    case "$reason" in *"Key was rejected"*)
        fail "error: Secure Boot refuses the driver: mokutil --import /var/lib/dkms/mok.pub, restart, enrol the key"
    esac
    say "error: the NVIDIA driver does not work: $(printf '%s' "$listed" | head -n 1)ADVICE" >&2
    exit {RESTART_HELPS}
}}
printf '%s\\n' "$listed"
"""
_FABRIC = """
version=$(cat /sys/module/nvidia/version)
case $version in ''|*[!0-9.]*) fail "error: no version of the driver: $version" ;; esac
name=nvidia-fabricmanager
if command -v apt-cache >/dev/null && ! apt-cache show "$name" >/dev/null 2>&1; then name=$name-${version%%.*}; fi
NAMES="$name=$version-*"
"""
_CDI = f"""
[ -e /dev/nvidia-uvm ] || nvidia-ctk --quiet system create-device-nodes --control-devices --load-kernel-modules || true
nvidia-ctk --quiet cdi generate --output={CDI}
nvidia-ctk cdi list | grep -q '^nvidia.com/gpu=' || fail "error: the CDI description in {CDI} has no GPU"
"""


def steps(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Items:
    if not wants_gpus(spec, host, facts):
        return []
    # One that was replaced on the disk and not yet in memory is no driver: nvidia-smi tells no version then.
    is_working = bool(facts.driver) and facts.program("nvidia-smi") != "unknown"
    return [
        driver(spec, host, facts),
        None if is_working else works(host, facts),
        fabric_manager(host, facts),
        toolkit(spec, host, facts),
    ]


def labelled(spec: ClusterSpec, facts: Mapping[str, HostFacts]) -> ClusterSpec:
    """Add the GPU label to hosts whose GPUs are set up."""
    hosts = tuple(
        msgspec.structs.replace(host, labels=((GPU_LABEL, "true"), *host.labels))
        if host.name in facts and wants_gpus(spec, host, facts[host.name]) and GPU_LABEL not in dict(host.labels)
        else host
        for host in spec.hosts
    )
    return msgspec.structs.replace(spec, hosts=hosts)


def driver(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | Kept:
    if facts.driver:
        return Kept(host=host.name, name="driver", reason=f"NVIDIA driver {facts.driver} is there")
    script = ""
    if "nouveau" in facts.modules:  # it may be in the initial file system, which is made again both ways
        script += undo("initramfs", _INITRAMFS)
    script += put(NOUVEAU_FILE, NOUVEAU)
    if "nouveau" in facts.modules:
        script += _INITRAMFS
    if spec.driver == "nvidia" and facts.package_manager == "apt":
        script += put(PIN_FILE, _pin(spec.versions.driver))
    names = driver_packages(spec, facts)
    script += install_script(facts, names)
    script += (_HOLD if facts.package_manager == "apt" else "") + undo("gpu-driver", _UNLOAD)
    title = f"install {', '.join(name.partition('=')[0] for name in names)}, keep nouveau away"
    return Step(host=host.name, name="driver", title=title, script=script, timeout_s=INSTALL_S)


def _pin(branch: str) -> str:
    names = "*nvidia* libnv* libcuda* cuda-drivers* libxnvctrl*"
    return f"Package: {names}\nPin: version {branch}.*\nPin-Priority: 990\n"


def driver_packages(spec: ClusterSpec, facts: HostFacts) -> list[str]:
    """Packages of the driver without a desktop, with headers of the running kernel to build its modules.

    A host that is a container gets its kernel modules from outside.
    """
    branch, is_apt = spec.versions.driver, facts.package_manager == "apt"
    is_open = not any(0 < _number(device.device) < FIRST_TURING for device in facts.gpus)
    headers = [] if facts.container else [_plain(f"{'linux-headers' if is_apt else 'kernel-devel'}-{facts.kernel}")]
    if spec.driver == "nvidia":
        name = "nvidia-open" if is_open else "cuda-drivers"
        return [*headers, name if is_apt else f"{name}={branch}*"]
    if facts.os_id == "ubuntu":
        flavour = "-open" if is_open else ""
        return [*headers, f"nvidia-headless-{branch}-server{flavour}", f"nvidia-utils-{branch}-server"]
    is_blackwell = any(_number(device.device) >= FIRST_BLACKWELL for device in facts.gpus)
    return [*headers, "nvidia-open-kernel-dkms" if is_blackwell else "nvidia-kernel-dkms", "nvidia-smi", "libcuda1"]


def _number(device: str) -> int:
    return int(device, 16) if re.fullmatch("0x[0-9a-f]{4}", device) else 0


def works(host: HostSpec, facts: HostFacts) -> Step:
    """Load the driver; restart the host if needed, but neither this machine nor a node with others' pods."""
    is_restarted = host.address != "" and "kubernetes" not in dict(facts.done)
    advice = "" if is_restarted else "; restart the machine when nobody needs it, then the same command goes on"
    return Step(
        host=host.name,
        name="restart",
        title="load the driver; restart the host, if it must be",
        script=_WORKS.replace("ADVICE", advice),
        kind="restart" if is_restarted else "script",
        timeout_s=RESTART_S,
    )


def fabric_manager(host: HostSpec, facts: HostFacts) -> Step | Kept | None:
    """Install and start the fabric manager in the driver's version, on hosts with NVSwitch."""
    if not facts.nvswitch:
        return None
    if facts.unit("nvidia-fabricmanager") == "active":
        return Kept(host=host.name, name="fabric", reason="NVSwitch: the fabric manager runs")
    stop = "systemctl disable --now nvidia-fabricmanager 2>/dev/null || true"
    script = _FABRIC + install_script(facts, None) + undo("fabric", stop)
    script += "systemctl -q enable --now nvidia-fabricmanager\n"
    title = "install the fabric manager of NVSwitch, of the driver's version, and start it"
    return Step(host=host.name, name="fabric", title=title, script=script, timeout_s=INSTALL_S)


def toolkit(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | Kept:
    """Install the part of the container toolkit that CDI needs and describe the GPUs; its units renew that at every
    boot.
    """
    has, wanted = facts.program("nvidia-ctk"), spec.versions.toolkit
    if has and facts.file(CDI):
        return Kept(host=host.name, name="toolkit", reason=f"nvidia-container-toolkit {has} is installed, CDI is there")
    script = ""
    if not has:
        name = "nvidia-container-toolkit-base"
        script += f"save {TOOLKIT_CONFIG}\n" + install_script(facts, [f"{name}={wanted}-*"], held=(name,))
    # The plugin's description lies beside ours. The folder goes with them, if it was not there before.
    script += f"save {CDI}\n" + undo("cdi", "rm -f /run/cdi/k8s.device-plugin.nvidia.com-*") + _CDI
    title = f"install nvidia-container-toolkit {wanted}, " if not has else ""
    title += "describe the GPUs for containers (CDI)"
    return Step(host=host.name, name="toolkit", title=title, script=script, timeout_s=INSTALL_S)


def repositories(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> tuple[PackageRepository, ...]:
    """NVIDIA's package repositories for what the host lacks; none where the cluster file names repositories."""
    if spec.source.repositories or not wants_gpus(spec, host, facts):
        return ()
    wanted = []
    if spec.driver == "nvidia" and not facts.driver:
        wanted.append(_driver_repository(facts))
    if not facts.program("nvidia-ctk"):
        base, is_apt = "https://nvidia.github.io/libnvidia-container", facts.package_manager == "apt"
        place = f"{base}/stable/deb/{_plain(facts.architecture)}/" if is_apt else f"{base}/stable/rpm/$basearch"
        wanted.append(PackageRepository(url=place, key=f"{base}/gpgkey"))
    return tuple(wanted)


def _driver_repository(facts: HostFacts) -> PackageRepository:
    """NVIDIA's driver repository for the host's distribution and architecture."""
    version = facts.os_version if facts.os_id == "ubuntu" else facts.os_version.partition(".")[0]
    name = facts.os_id if facts.os_id in ("debian", "ubuntu", "fedora") else "rhel"
    system = _plain(name + version.replace(".", ""))
    machine = {"amd64": "x86_64", "arm64": "sbsa"}.get(facts.architecture, facts.architecture)
    url = f"https://developer.download.nvidia.com/compute/cuda/repos/{system}/{_plain(machine)}/"
    key = "cuda-archive-keyring.gpg" if facts.package_manager == "apt" else "D42D0685.pub"
    return PackageRepository(url=url, key=f"{url}{key}")


def _plain(text: str) -> str:
    """Validate a text from a host for use in scripts and URLs: no shell characters."""
    if not re.fullmatch(_FEW, text):
        raise Refused(f"{text!r} cannot be part of a package's name or address", hint="gpu: no leaves the GPUs alone")
    return text
