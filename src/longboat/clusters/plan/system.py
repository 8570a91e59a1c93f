"""Steps that prepare the operating system: journal, kernel modules, sysctls, swap, firewall. Pure."""

from __future__ import annotations

import shlex

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.observe.network_checks import is_open
from longboat.clusters.plan.inventory_shell import INVENTORY
from longboat.clusters.plan.journal_shell import JOURNAL, put, undo
from longboat.clusters.plan.steps import Kept, Step
from longboat.clusters.ports import ports
from longboat.clusters.spec import ClusterSpec, HostSpec

MODULES_FILE, SYSCTL_FILE = "/etc/modules-load.d/longboat.conf", "/etc/sysctl.d/90-longboat.conf"
SYSCTLS = (("net.ipv4.ip_forward", "1"),)
COMMENT_SWAP = r"""
if [ -e /etc/fstab ]; then
    awk '$1 !~ /^#/ && $3 == "swap" {print "# longboat: " $0; next} {print}' /etc/fstab > /etc/fstab.longboat
    chmod --reference=/etc/fstab /etc/fstab.longboat
    mv -f /etc/fstab.longboat /etc/fstab
fi
"""


def journal(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | None:
    """Record the state of the host before any change."""
    if facts.journal_cluster == spec.name:
        return None
    is_another = f"""[ ! -s id ] || [ "$(cat id)" = {spec.id} ] ||
    fail "error: this host is part of another cluster called {spec.name}"
printf '%s\\n' {spec.id} > id.new
mv id.new id
"""
    script = f"""
mkdir -p -m 700 {JOURNAL}
cd {JOURNAL}
exec 9> lock
flock -w 120 9 || fail "error: another longboat cluster command works on this host"
[ ! -s cluster ] || [ "$(cat cluster)" = {spec.name} ] || fail "error: this host is part of $(cat cluster)"
{is_another if spec.id else ""}mkdir -p undo done
if [ ! -e before ]; then
inventory() {{
{INVENTORY}
}}
inventory > before.new
mv before.new before
fi
printf '%s\\n' {spec.name} > cluster.new
sync before cluster.new 2>/dev/null || sync
mv cluster.new cluster
sync . 2>/dev/null || sync
"""
    return Step(
        host=host.name, name="journal", title="write down what the host is like, for the way back", script=script
    )


def kernel_modules(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | Kept:
    wanted = ("overlay", "vxlan") if spec.network.kind == "flannel" else ("overlay",)
    missing = [name for name in wanted if name not in facts.modules]
    if not missing:
        return Kept(host=host.name, name="modules", reason=f"{', '.join(wanted)} loaded")
    script = put(MODULES_FILE, "".join(f"{name}\n" for name in wanted))
    for name in missing:
        script += undo(f"module-{name}", f"modprobe -r {name} 2>/dev/null || true")
        script += f'modprobe {name} || fail "the kernel has no module {name}"\n'
    return Step(host=host.name, name="modules", title=f"load kernel modules {', '.join(missing)}", script=script)


def sysctls(_spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | Kept:
    content = "".join(f"{name} = {value}\n" for name, value in SYSCTLS)
    now = dict(facts.sysctls)
    wrong = [(name, value) for name, value in SYSCTLS if now.get(name) != value]
    if not wrong:
        return Kept(host=host.name, name="sysctl", reason=", ".join(f"{name} is {value}" for name, value in SYSCTLS))
    script = ""
    for name, value in wrong:
        # The old value is asked for when the change is made: it may have changed since the host was looked at.
        script += f"before=$(sysctl -n {name})\n"
        script += (
            f'if entry sysctl-{name}; then printf "sysctl -q -w {name}=%s\\n" "$before" > "$new/run"; close_entry; fi\n'
        )
        script += f"sysctl -q -w {name}={value}\n"
    script += put(SYSCTL_FILE, content)
    title = "set " + ", ".join(f"{name}={value}" for name, value in wrong)
    return Step(host=host.name, name="sysctl", title=title, script=script)


def swap(_spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | Kept:
    if not facts.swaps and not facts.fstab_swaps:
        return Kept(host=host.name, name="swap", reason="no swap")
    # Only our own marks are taken out again: a disk that was added meanwhile stays in the table.
    script = undo("swap", "\n".join(f"swapon {shlex.quote(name)}" for name in facts.swaps) or "true")
    script += undo("fstab", "[ ! -e /etc/fstab ] || sed -i 's/^# longboat: //' /etc/fstab") + COMMENT_SWAP
    if facts.swaps:
        script += "swapoff -a\n"
    title = "switch swap off" if facts.swaps else "comment swap out of /etc/fstab"
    return Step(host=host.name, name="swap", title=title, script=script)


def firewall(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | Kept | None:
    if spec.firewall != "open" or facts.firewall not in ("ufw", "firewalld"):
        return None
    # A rule that was there before stays the user's own.
    wanted = [port for port in ports(spec, host) if not is_open(port, facts.open_ports)]
    if not wanted:
        return Kept(host=host.name, name="firewall", reason=f"{', '.join(ports(spec, host))} open in {facts.firewall}")
    # Of this machine alone nobody but its pods has to reach the API server.
    source = spec.network.pods if spec.kind == "local" else ""
    rules = _ufw if facts.firewall == "ufw" else _firewalld
    script = "".join(rules(port, source) for port in wanted)
    title = f"open {', '.join(wanted)} in {facts.firewall}{f' for pods, {source}' if source else ''}"
    return Step(host=host.name, name="firewall", title=title, script=script)


def _ufw(port: str, source: str) -> str:
    """`source`: a network; empty: everybody."""
    number, protocol = port.split("/")
    rule = f"allow from {source} to any port {number} proto {protocol}" if source else f"allow {number}/{protocol}"
    return undo(f"port-{number}-{protocol}".replace(":", "-"), f"ufw delete {rule} || true") + f"ufw {rule}\n"


def _firewalld(port: str, source: str) -> str:
    number, protocol = port.replace(":", "-").split("/")
    rule = f"port={number}/{protocol}"
    if source:
        words = f'rule family="ipv4" source address="{source}" port port="{number}" protocol="{protocol}" accept'
        rule = f"rich-rule='{words}'"
    both = f"firewall-cmd -q --{{0}}-{rule}; firewall-cmd -q --permanent --{{0}}-{rule}"
    return undo(f"port-{number}-{protocol}", f"{both.format('remove')} || true") + both.format("add") + "\n"
