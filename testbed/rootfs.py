"""The root file systems of hosts: Debian or Ubuntu with systemd, sshd and a user who may sudo. Made once, kept in the
cache.

Hosts never write to it: each has a layer of its own on top. Its name is a hash of everything that goes into it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from testbed import binaries, images, namespaces, releases
from testbed.errors import Missing, TestbedError

USER = "admin"
# Not libpam-systemd: with control groups of version 1 systemd does not see a user's last process end, and the next
# login would wait two minutes for that.
PACKAGES = (
    "ca-certificates", "conntrack", "curl", "dbus", "e2fsprogs", "ethtool", "iproute2", "iptables", "iputils-ping",
    "kmod", "libfaketime", "nftables", "openssh-server", "procps", "python3", "socat", "sudo",
    "systemd", "systemd-sysv",
)  # fmt: skip
# Units that would change settings of the kernel, which is the machine's, or wait for hardware that is not there.
MASKED = (
    "systemd-sysctl.service", "systemd-modules-load.service", "systemd-networkd.service", "systemd-binfmt.service",
    "proc-sys-fs-binfmt_misc.automount", "systemd-timesyncd.service", "console-getty.service", "apt-daily.timer",
    "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer",
    "ssh.socket",
)  # fmt: skip
BOOT = (
    """#!/bin/sh
set -e
. /etc/testbed/host
for group in /sys/fs/cgroup /sys/fs/cgroup/*; do
    if mountpoint -q "$group"; then mount -o remount,bind,rw "$group"; fi
done
room=/run/testbed
mkdir -p "$room"
"""
    + namespaces.KERNEL_SETTINGS
    + """
mount --make-rshared /
ip link set lo up
if [ -e /etc/testbed/link ]; then tc -batch /etc/testbed/link; fi
ip addr add "$ADDRESS/24" dev host0
ip link set host0 up
ip route add "$RANGE" via "$GATEWAY"
if [ "$ROUTE" = yes ]; then ip route add default via "$GATEWAY"; fi
"""
)
BOOT_UNIT = """[Unit]
Description=Network, control groups and kernel settings of a test host
DefaultDependencies=no
After=systemd-remount-fs.service
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/testbed-boot
"""
SSHD = "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\n"
FILES = {
    "usr/local/sbin/testbed-boot": BOOT,
    "etc/systemd/system/testbed.service": BOOT_UNIT,
    "etc/ssh/sshd_config.d/testbed.conf": SSHD,
    f"etc/sudoers.d/{USER}": f"{USER} ALL=(ALL) NOPASSWD: ALL\n",
    "etc/fstab": "",
    "etc/resolv.conf": "",
}
# Every host has keys and an identity of its own.
_CUSTOMIZE = f"""set -e
chroot "$1" useradd --create-home --shell /bin/bash {USER}
rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/machine-id "$1"/var/lib/dbus/machine-id
cp -r --no-preserve=ownership "$FILES/." "$1/"
chmod 755 "$1/usr/local/sbin/testbed-boot"
chmod 440 "$1/etc/sudoers.d/{USER}"
mkdir -p "$1/etc/systemd/system/sysinit.target.wants" "$1/etc/testbed" "$1/root/.ssh" "$1/home/{USER}/.ssh"
chmod 700 "$1/root/.ssh" "$1/home/{USER}/.ssh"
ln -sf ../testbed.service "$1/etc/systemd/system/sysinit.target.wants/testbed.service"
for unit in {" ".join(MASKED)}; do ln -sf /dev/null "$1/etc/systemd/system/$unit"; done
ln -sf /lib/systemd/system/multi-user.target "$1/etc/systemd/system/default.target"
"""


@dataclass(frozen=True)
class Distribution:
    suite: str
    sources: tuple[str, ...] = ()
    """Lines of apt; none: as this machine has them for the suite."""
    keyring: str = ""
    """A package with the keys that sign them, and its checksum: mmdebstrap knows Debian's alone."""
    keyring_sha256: str = ""
    customize: str = _CUSTOMIZE
    more: tuple[str, ...] = ()
    """Packages that mmdebstrap brings by itself elsewhere."""


# Ubuntu's sshd is started by a socket of systemd's, which is masked.
_SSHD_ALONE = """rm -r "$1/etc/systemd/system/ssh.service.requires"
ln -sf /lib/systemd/system/ssh.service "$1/etc/systemd/system/multi-user.target.wants/ssh.service"
"""
DEBIAN = Distribution(images.SUITE)
_UBUNTU = "http://archive.ubuntu.com/ubuntu"
UBUNTU = Distribution(
    "noble",
    (f"deb {_UBUNTU} noble main universe", f"deb {_UBUNTU} noble-updates main universe"),
    f"{_UBUNTU}/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
    "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
    _CUSTOMIZE + _SSHD_ALONE,
    ("apt",),
)
"""The last long-term release, for hosts with the trait `ubuntu`."""


def key(system: Distribution = DEBIAN) -> str:
    files = (f"{path}\n{FILES[path]}" for path in FILES)
    parts = [system.suite, *PACKAGES, *images.LEFT_OUT, system.customize, *files, *system.sources, *system.more]
    return hashlib.sha256("\0".join([*parts, os.uname().machine]).encode()).hexdigest()[:16]


def path(system: Distribution = DEBIAN) -> Path:
    return binaries.cache_folder() / "roots" / key(system)


def missing() -> str | None:
    """What this machine lacks to make it, unless it is there."""
    return None if path().exists() else images.missing_tool()


def get(system: Distribution = DEBIAN) -> Path:
    """Where it is; made first if it is not in the cache yet."""
    wanted = path(system)
    if wanted.exists():
        return wanted
    lacks = missing()
    if lacks:
        raise Missing(lacks)
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with open(wanted.parent / "roots.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in wanted.parent.glob(".making-*"):
            shutil.rmtree(left, ignore_errors=True)
        if not wanted.exists():
            print(f"testbed hosts: making their root file system, {system.suite}", file=sys.stderr, flush=True)
            make(wanted, system)
    return wanted


def make(wanted: Path, system: Distribution = DEBIAN) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=wanted.parent))
    try:
        for name, content in FILES.items():
            file = scratch / "files" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        hook = scratch / "customize"
        hook.write_text(f"#!/bin/sh\n{system.customize}")
        hook.chmod(0o755)
        command = [
            "mmdebstrap",
            "--quiet",
            "--mode=root",
            "--variant=minbase",
            f"--include={','.join((*PACKAGES, *system.more))}",
        ]
        command += [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in images.LEFT_OUT]
        command += [f"--customize-hook={hook}", *keyring_options(system, scratch)]
        command += [system.suite, str(scratch / "root"), *system.sources]
        environment = {**os.environ, "FILES": str(scratch / "files")}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise TestbedError(f"mmdebstrap failed for the hosts' root file system:\n{done.stderr[-2000:]}")
        (scratch / "root").rename(wanted)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(scratch)


def keyring_options(system: Distribution, scratch: Path) -> list[str]:
    if not system.keyring:
        return []
    try:
        content = releases.read(system.keyring)
    except OSError as error:
        raise Missing(f"the keys of {system.suite} cannot be fetched: {error}") from None
    if hashlib.sha256(content).hexdigest() != system.keyring_sha256:
        raise TestbedError(f"{system.keyring} is not what its checksum says")
    (scratch / "keyring.deb").write_bytes(content)
    subprocess.run(["dpkg-deb", "-x", str(scratch / "keyring.deb"), str(scratch / "keyring")], check=True)
    return [f"--keyring={scratch}/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg"]
