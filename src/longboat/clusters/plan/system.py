"""Steps that prepare the operating system: journal, kernel modules, sysctls, swap, firewall. Pure."""

from __future__ import annotations

import shlex

from longboat.clusters.observe.facts import HostFacts
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
    wanted = ("overlay", "br_netfilter", "vxlan") if spec.network.kind == "flannel" else ("overlay",)
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
    wanted = [port for port in ports(spec, host) if port not in facts.open_ports]
    if not wanted:
        return Kept(host=host.name, name="firewall", reason=f"{', '.join(ports(spec, host))} open in {facts.firewall}")
    script = ""
    for port in wanted:
        number, protocol = port.split("/")
        if facts.firewall == "ufw":
            script += undo(f"port-{number}-{protocol}".replace(":", "-"), f"ufw delete allow {port} || true")
            script += f"ufw allow {port}\n"
        else:
            opened = port.replace(":", "-")
            both = f"firewall-cmd -q --{{}}-port={opened}; firewall-cmd -q --permanent --{{}}-port={opened}"
            script += undo(f"port-{opened}".replace("/", "-"), f"{both.format('remove', 'remove')} || true")
            script += both.format("add", "add") + "\n"
    title = f"open {', '.join(wanted)} in {facts.firewall}"
    return Step(host=host.name, name="firewall", title=title, script=script)
