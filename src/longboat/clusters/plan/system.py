"""Steps that prepare the operating system: journal, kernel modules, sysctls, swap, firewall. Pure."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Sequence

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.observe.firewall_rules import CLOSED_CHAINS, is_forwarded
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
# What no table names comes back with the next boot too, and the kubelet refuses to start: partitions that systemd finds
# by their type, and compressed memory (zram).
_MASK_SWAP = r"""
if entry swap-units; then
    systemctl list-units --plain --no-legend --type=swap 2>/dev/null | awk '{print $1}' > "$new/units" || true
    cat > "$new/run" <<'UNDO'
while read -r unit; do systemctl -q unmask -- "$unit"; done < "$HERE/units"
systemctl daemon-reload
UNDO
    close_entry
fi
# A unit that somebody wrote himself cannot be masked, and stays.
for list in "$LB"/undo/[0-9]*-swap-units/units; do
    while read -r unit; do systemctl -q mask -- "$unit" 2>/dev/null || true; done < "$list"
done
"""
# After a boot compressed memory is not there: its unit makes it.
_SWAP_BACK = """for name in NAMES; do
    ! sed 's/[[:space:]].*//' /proc/swaps | grep -qxF -- "$name" || continue
    swapon "$name" 2>/dev/null || systemctl start "$(systemd-escape --path --suffix=swap "$name")"
done"""
RULES_FILE, RULES_UNIT = "/etc/longboat/firewall", "/etc/systemd/system/longboat-firewall.service"
_FIREWALLD = "/etc/firewalld"
_PORT = '<port port="{}" protocol="{}"/>\n'
_POLICY = """<policy target="ACCEPT">
<ingress-zone name="{}"/>
<egress-zone name="{}"/>
{}</policy>
"""
RULE_LOADERS = ("nftables", "iptables", "netfilter-persistent")
# In one transaction: what was ours goes, and comes in front of everything in chains that deny by default.
_OPEN_RULES = r"""# Rules of Longboat in this host's packet filter, in front of its own: sh firewall open|close
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${PATH:-}
has() { command -v "$1" >/dev/null; }
deletions() {
    nft -a list ruleset | awk '
/^table / { family = $2; table = $3 }
/^[ \t]+chain / { chain = $2 }
/ comment "longboat" # handle [0-9]+$/ { print "delete rule " family " " table " " chain " handle " $NF }'
}
insertions() {
    nft list ruleset | awk 'CLOSED_CHAINS' | while read -r kind hook family table chain; do
        [ "$kind" = closed ] || continue
        case "$hook" in
        input) families="FAMILIES" rules="INPUT_RULES" ;;
        *) families="FORWARD_FAMILIES" rules="FORWARD_RULES" ;;
        esac
        case " $families " in *" $family "*) ;; *) continue ;; esac
        printf '%s\n' "$rules" | while read -r rule; do
            printf 'insert rule %s %s %s %s comment "longboat"\n' "$family" "$table" "$chain" "$rule"
        done
    done
}
# Its policy denies, or its last rule without conditions.
denies() {
    "$1" -w 30 -S INPUT 2>/dev/null | awk '
/^-P INPUT (DROP|REJECT)/ { denies = 1 }
/^-A / { last = $0 }
END { exit !(denies || last ~ /^-A INPUT -j (DROP|REJECT)/) }'
}
change_iptables() {
    for program in PROGRAMS; do
        # To ask the old iptables would switch it on.
        has "$program" && { grep -q -s . "/proc/net/${program%tables}_tables_names" ||
            "$program" --version | grep -q nf_tables; } || continue
        printf '%s\n' "IPTABLES_RULES" | while read -r rule; do
            # The words of a rule are to be split.
            while "$program" -w 30 -D INPUT $rule -m comment --comment longboat -j ACCEPT 2>/dev/null; do :; done
        done
        [ "$1" = open ] && denies "$program" || continue
        printf '%s\n' "IPTABLES_RULES" | while read -r rule; do
            "$program" -w 30 -I INPUT $rule -m comment --comment longboat -j ACCEPT
        done
    done
}
if has nft; then
    nft list ruleset >/dev/null
    changes=$(deletions; [ "$1" != open ] || insertions)
    [ -z "$changes" ] || printf '%s\n' "$changes" | nft -f -
fi
change_iptables "$1"
"""


def journal(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | None:
    """Record the state of the host before any change."""
    if facts.journal_cluster == spec.name:
        return None
    # An id without a name is of an `up` or a `down` that was cut off where there was nothing of it, or nothing left.
    is_another = f"""[ ! -s cluster ] || [ ! -s id ] || [ "$(cat id)" = {spec.id} ] ||
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
    script = undo("swap", _SWAP_BACK.replace("NAMES", shlex.join(facts.swaps)) if facts.swaps else "true")
    script += undo("fstab", "[ ! -e /etc/fstab ] || sed -i 's/^# longboat: //' /etc/fstab") + COMMENT_SWAP
    if facts.swaps:
        script += _MASK_SWAP + "swapoff -a\n"
    title = "switch swap off" if facts.swaps else "comment swap out of /etc/fstab"
    return Step(host=host.name, name="swap", title=title, script=script)


def firewall(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step | Kept | None:
    if spec.firewall != "open" or not facts.firewall:
        return None
    # A rule that was there before stays the user's own.
    needed = ports(spec, host)
    wanted = [port for port in needed if not is_open(port, facts.open_ports)]
    forwards = is_forwarded(spec.network.pods, facts.forwarded)
    if not wanted and forwards:
        return Kept(host=host.name, name="firewall", reason=f"{', '.join(needed)} open in {facts.firewall}")
    # Of this machine alone nobody but its pods has to reach the API server.
    source = spec.network.pods if spec.kind == "local" else ""
    if facts.firewall in ("ufw", "firewalld"):
        rules = _ufw if facts.firewall == "ufw" else _firewalld
        script = "".join(rules(port, source) for port in wanted)
        if not forwards:
            script += _firewalld_zone(needed, spec.network.pods)
    else:
        # All ports, not only those that are closed now: some may be open because an earlier `up` opened them.
        script = _own_rules(needed, source, spec.network.pods, [name for name in RULE_LOADERS if facts.unit(name)])
    title = f"open {', '.join(wanted)} in {facts.firewall}{f' for pods, {source}' if source else ''}" if wanted else ""
    forward = "" if forwards else f"forward packets of pods, {spec.network.pods}, in {facts.firewall}"
    title = "; ".join(part for part in (title, forward) if part)
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
    # Whoever stopped firewalld since, or removed it, is not kept from the way back.
    close = f"""if firewall-cmd -q --state 2>/dev/null; then
    firewall-cmd -q --remove-{rule}
    firewall-cmd -q --permanent --remove-{rule}
else
    firewall-offline-cmd -q --remove-{rule} 2>/dev/null || true
fi"""
    opens = f"firewall-cmd -q --add-{rule}\nfirewall-cmd -q --permanent --add-{rule}\n"
    return undo(f"port-{number}-{protocol}", close) + opens


def _firewalld_zone(needed: Sequence[str], pods: str) -> str:
    """firewalld rejects what no zone forwards, whatever iptables has accepted, and flushes iptables with every reload.
    So it gets a zone of pods' addresses, which every zone may send to and which may send everywhere.
    """
    ports = "".join(_PORT.format(*port.replace(":", "-").split("/")) for port in needed)
    hidden = f'<rule family="ipv4"><destination address="{pods}" invert="True"/><masquerade/></rule>\n'
    script = undo("firewalld-reload", "if firewall-cmd -q --state; then firewall-cmd -q --reload; fi")
    script += put(
        f"{_FIREWALLD}/zones/longboat.xml", f'<zone>\n<source address="{pods}"/>\n{ports}<forward/>\n</zone>\n'
    )
    script += put(f"{_FIREWALLD}/policies/longboat-in.xml", _POLICY.format("ANY", "longboat", ""))
    script += put(f"{_FIREWALLD}/policies/longboat-out.xml", _POLICY.format("longboat", "ANY", hidden))
    return f"{script}firewall-cmd -q --reload\n"


def _own_rules(needed: Sequence[str], source: str, pods: str, loaders: Sequence[str]) -> str:
    """Rules of the user's own, in nftables or iptables, have no command that opens a port for good. So a unit puts ours
    in front of them, and again whenever what loads theirs has begun anew.
    """
    version = ipaddress.ip_network(pods).version
    saddr = f"{'ip6' if version == 6 else 'ip'} saddr"
    limit = f"{saddr} {source} " if source else ""
    incoming = [f"{limit}{port.split('/')[1]} dport {port.split('/')[0].replace(':', '-')} accept" for port in needed]
    words = [
        f"{f'-s {source} ' if source else ''}-p {port.split('/')[1]} --dport {port.split('/')[0]}" for port in needed
    ]
    values = {
        "CLOSED_CHAINS": CLOSED_CHAINS,
        "INPUT_RULES": "\n".join(incoming),
        "FORWARD_RULES": "\n".join(f"{way} {pods} accept" for way in (saddr, saddr.replace("saddr", "daddr"))),
        "IPTABLES_RULES": "\n".join(words),
        # Rules that name an address are of its family.
        "FAMILIES": ("inet ip6" if version == 6 else "inet ip") if source else "inet ip ip6",
        "FORWARD_FAMILIES": "inet ip6" if version == 6 else "inet ip",
        "PROGRAMS": ("ip6tables" if version == 6 else "iptables") if source else "iptables ip6tables",
    }
    text = re.sub(r"\b(" + "|".join(values) + r")\b", lambda match: values[match[1]], _OPEN_RULES)
    script = put(RULES_FILE, text) + put(RULES_UNIT, _rules_unit(loaders))
    # `close` once more: a unit that failed, or was stopped by hand, has not run it.
    close = (
        f"systemctl disable --now longboat-firewall 2>/dev/null || true\n[ ! -e {RULES_FILE} ] || sh {RULES_FILE} close"
    )
    script += undo("firewall", close)
    script += "systemctl daemon-reload\nsystemctl -q enable longboat-firewall\nsystemctl restart longboat-firewall\n"
    return script


def _rules_unit(loaders: Sequence[str]) -> str:
    """`loaders`: units that load the user's rules, and so throw ours away."""
    units = " ".join(f"{name}.service" for name in loaders)
    follows = [f"After={units}", f"PartOf={units}", f"ReloadPropagatedFrom={units}"] if units else []
    return "\n".join(
        [
            "[Unit]",
            "Description=Ports of the cluster in this host's own rules (Longboat)",
            *follows,
            "[Service]",
            "Type=oneshot",
            "RemainAfterExit=yes",
            f"ExecStart=/bin/sh {RULES_FILE} open",
            f"ExecReload=/bin/sh {RULES_FILE} open",
            f"ExecStop=/bin/sh {RULES_FILE} close",
            "[Install]",
            f"WantedBy=multi-user.target {units}".rstrip(),
            "",
        ]
    )
