"""The script that reads a host: POSIX sh, prints `key<TAB>value`, mostly raw, and passes over what is not there.

Meaning is `parse`'s affair; here is only what must be asked on the host itself. It changes nothing.
"""

from __future__ import annotations

from longboat.clusters.observe import facts, firewall_rules

END = "end\tall"
"""The last line. Without it the script was cut off, and what was not read would look as if it were not there."""
LINES = 400  # of one source: more listeners, routes or images than that say nothing new
MOST_BYTES = 800_000  # below what a connection keeps of an output, so that nothing is lost in the middle

_START = """
has() { command -v "$1" >/dev/null 2>&1; }
say() { printf '%s\\t%s\\n' "$1" "$2"; }
# Lines of stdin, each with the key in front.
lines() { sed -n "1,LINESs/^/$1	/p"; }
# The first line of a file, after the key and perhaps a name; without a process of its own, since there are many.
first() {
    line=
    if [ -r "$2" ] && { read -r line || [ -n "$line" ]; } < "$2"; then say "$1" "${3:-}$line"; fi
}
# Programs that ask a daemon or a driver may wait for ever.
soon() { timeout 15 "$@" 2>/dev/null </dev/null; }
version() { if has "$1"; then say program "$1 $(timeout 10 "$@" 2>&1 </dev/null | head -n 3 | tr '\\n' ' ')"; fi; }
probe() {
say clock "$(date +%s.%N)"
"""

_SYSTEM = """
say hostname "$(uname -n)"
say kernel "$(uname -r)"
say architecture "$(uname -m)"
for file in /etc/os-release /usr/lib/os-release; do
    if [ -r "$file" ]; then grep -E '^(ID|ID_LIKE|VERSION_ID|VERSION_CODENAME)=' "$file" | lines os; break; fi
done
for name in apt-get dnf zypper pacman apk; do if has "$name"; then say package_manager "$name"; fi; done
if [ -d /run/systemd/system ]; then say init systemd; else first init /proc/1/comm; fi
if has systemd-detect-virt; then say container "$(soon systemd-detect-virt --container)"; fi
grep -E ' /sys/fs/cgroup (cgroup2|tmpfs) ' /proc/mounts | lines cgroup
say cpus "$(getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c ^processor /proc/cpuinfo)"
grep MemTotal: /proc/meminfo | lines memory
for path in / /var /var/lib; do
    if [ -d "$path" ]; then say disk "$path $(soon df -P -k "$path" | tail -n 1)"; fi
done
sed 1d /proc/swaps 2>/dev/null | lines swap
lines fstab < /etc/fstab
first machine_id /etc/machine-id
first product_uuid /sys/class/dmi/id/product_uuid
for file in /sys/firmware/efi/efivars/SecureBoot-*; do
    if [ -r "$file" ]; then say secure_boot "$(od -An -t u1 -j 4 -N 1 "$file" 2>/dev/null)"; fi
done
"""

_NETWORK = """
if has ss; then soon ss -l -t -n -p | lines listener; else
    for file in /proc/net/tcp /proc/net/tcp6; do lines socket < "$file"; done
fi
soon ip -o addr show | lines address
soon ip -4 route show | lines route
soon ip -6 route show | lines route
soon ip -4 route get 198.51.100.1 | lines source
{ env; cat /etc/environment; soon systemctl show-environment; } 2>/dev/null |
    grep -i -E '^(export +)?(http|https|no|all)_proxy=' | sed 's#//[^/@]*@#//#' | lines proxy
if has ufw && soon ufw status | grep -q '^Status: active'; then
    say firewall ufw
    soon ufw status | lines opened
elif has firewall-cmd && [ "$(soon firewall-cmd --state)" = running ]; then
    say firewall firewalld
    soon firewall-cmd --list-ports | tr ' ' '\\n' | lines opened
    soon firewall-cmd --list-services | tr ' ' '\\n' | lines opened
    soon firewall-cmd --list-rich-rules | lines opened
    say zone "default $(soon firewall-cmd --get-default-zone)"
    soon firewall-cmd --get-active-zones | lines zone
    soon firewall-cmd --list-all-policies | lines policy
else
    if has nft; then soon nft list ruleset | awk 'CLOSED_CHAINS' | lines nft; fi
    # To ask the old iptables would switch it on.
    if has iptables && { grep -q -s . /proc/net/ip_tables_names || soon iptables --version | grep -q nf_tables; }; then
        soon iptables -S INPUT | lines iptables
    fi
fi
"""

_SOFTWARE = """
version containerd --version
version runc --version
version kubelet --version
version kubeadm version -o short
version kubectl version --client
version flanneld --version
version nvidia-smi --query-gpu=driver_version --format=csv,noheader
version nvidia-ctk --version
version docker --version
version k3s --version
if has dpkg-query; then
    soon dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' PACKAGES | lines package
elif has rpm; then
    soon rpm -q --qf '%{NAME} %{VERSION}-%{RELEASE} installed\\n' PACKAGES | lines package
fi
if has systemctl; then soon systemctl show -p Id,LoadState,ActiveState UNITS | lines unit; fi
# Not `first`: these files can only be read at once, and dash reads byte by byte.
for name in SYSCTLS; do if [ -r "/proc/sys/$name" ]; then say sysctl "$name $(cat "/proc/sys/$name")"; fi; done
built=/lib/modules/$(uname -r)/modules.builtin
# A container that plays a host has neither /sys/module nor that list.
in_kernel() { [ "$1" = vxlan ] && soon zcat /proc/config.gz | grep -q -x CONFIG_VXLAN=y; }
for name in MODULES; do
    if [ -d "/sys/module/$name" ] || grep -q "^nodev	$name\\$" /proc/filesystems ||
        { [ -r "$built" ] && grep -q "/$name\\.ko" "$built"; } || in_kernel "$name"; then say module "$name"
    elif has modprobe && soon modprobe -n -q "$name"; then say loadable "$name"; fi
done
for file in FILES; do if [ -f "$file" ]; then sha256sum "$file" 2>/dev/null | lines file; fi; done
# A list may go over several lines.
if sed 's/#.*//' /etc/containerd/config.toml 2>/dev/null | tr '\\n' ' ' | grep -q -E \\
    "disabled_plugins *= *[[][^]]*[\\"'](io[.]containerd[.](grpc[.]v1[.]cri|cri[.]v1[.](runtime|images))|cri)[\\"']"
then say cri_disabled yes; fi
awk '/^ *\\[/ {exit} /^ *(root|state) *=/ {print}' /etc/containerd/config.toml 2>/dev/null | lines containerd
if has ctr && [ -S /run/containerd/containerd.sock ]; then soon ctr -n k8s.io images ls -q | lines image; fi
"""

_CLUSTER = """
if [ -d /etc/rancher/k3s ] || [ -d /var/lib/rancher/k3s ]; then say cluster k3s; fi
if [ -d /etc/rancher/rke2 ] || [ -d /var/lib/rancher/rke2 ]; then say cluster rke2; fi
if [ -d /var/snap/microk8s ]; then say cluster microk8s; fi
if [ -d /var/lib/k0s ]; then say cluster k0s; fi
for file in /etc/kubernetes/kubelet.conf /etc/kubernetes/admin.conf; do
    if [ -f "$file" ]; then say cluster kubeadm; grep -E '^ *server:' "$file" | lines server; fi
done
for path in /etc/kubernetes/manifests /etc/kubernetes/pki /var/lib/etcd /var/lib/kubelet/pki; do
    if [ -n "$(ls -A "$path" 2>/dev/null)" ]; then say leftover "$path"; fi
done
first journal_cluster JOURNAL/cluster
first journal_id JOURNAL/id
ls JOURNAL/undo 2>/dev/null | lines journal
for file in JOURNAL/done/*; do first done "$file" "${file##*/} "; done
for folder in /sys/bus/pci/devices/*; do
    if read -r vendor < "$folder/vendor" && [ "$vendor" = 0x10de ]; then
        read -r device < "$folder/device" && read -r class < "$folder/class" && say pci "${folder##*/} $device $class"
    fi
done
first driver /sys/module/nvidia/version
say clock "$(date +%s.%N)"
say END
}
probe 2>/dev/null | head -c BYTES
"""


def script() -> str:
    """The probe's shell script. All names in it are constants without shell characters."""
    text = _START + _SYSTEM + _NETWORK + _SOFTWARE + _CLUSTER
    values = {
        "END": END.replace("\t", " "),
        "LINES": str(LINES),
        "BYTES": str(MOST_BYTES),
        "PACKAGES": " ".join(facts.PACKAGES),
        "UNITS": " ".join(f"{name}.service" for name in facts.UNITS),
        "SYSCTLS": " ".join(facts.SYSCTLS).replace(".", "/"),
        "MODULES": " ".join(facts.MODULES),
        "FILES": " ".join(facts.SYSTEM_FILES),
        "JOURNAL": facts.JOURNAL,
        "CLOSED_CHAINS": firewall_rules.CLOSED_CHAINS,
    }
    for name, value in values.items():
        text = text.replace(name, value)
    return text
