"""Hosts of a cluster file as the doctor sees them: their facts, and what only matters once they are nodes."""

from __future__ import annotations

import base64
import binascii
import re
import shlex
import time
from collections.abc import Mapping, Sequence

from longboat.clusters.apply.etcd_members import LIST_MEMBERS, members_of
from longboat.clusters.hosts.connection import HostConnection
from longboat.clusters.hosts.pool import Answers, Hosts
from longboat.clusters.observe.facts import HostFacts, HostProblem
from longboat.clusters.observe.identity import identify
from longboat.clusters.observe.parse import number, pair, split
from longboat.clusters.observe.probe import read_facts
from longboat.clusters.observe.problems import THIS_MACHINE, find_problems
from longboat.clusters.plan.journal_shell import PRELUDE
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import LongboatError
from longboat.doctor.observe.certificates import validity_of
from longboat.doctor.values import HostReport

LOOK_S = 60.0
"""For several programs of which each is cut off after 10 s."""
FIX_S = 180.0
"""Two minutes for the lock of another command, and one to start a service."""
UNITS = ("containerd", "kubelet", "nvidia-fabricmanager")
"""Services that `--fix` may start: they do nothing new on a node that has them."""
# A certificate's text is public, but only its dates are kept. `say` and `soon` are as in the probe of clusters.
SCRIPT = """
say() { printf '%s\\t%s\\n' "$1" "$2"; }
soon() { timeout 10 "$@" 2>/dev/null </dev/null; }
for file in /etc/kubernetes/pki/*.crt /etc/kubernetes/pki/etcd/*.crt /var/lib/kubelet/pki/kubelet-client-current.pem; do
    [ -r "$file" ] || continue
    text=$(sed -n '/BEGIN CERTIFICATE/,/END CERTIFICATE/p' "$file" | sed -n '2,/END/p' | sed '/END/,$d' | tr -d '\\n')
    say certificate "${file##*/} $text"
done
[ ! -r /etc/kubernetes/pki/apiserver-etcd-client.key ] || say etcd "$({ LIST_MEMBERS; } 2>/dev/null | tr '\\t\\n' '  ')"
# Both logs: the kernel's own ring forgets. One line for each GPU and Xid, so that many of one kind hide no other.
{ soon dmesg; soon journalctl -k -b -q --no-pager; } |
    sed -n -e '1{h;s/.*/kernel_log\\t1/p;g;}' -e 's/.*\\(NVRM: Xid ([^)]*): [0-9]*\\).*/xid\\t\\1/p' |
    sort -u | head -n 1000
if command -v nvidia-smi >/dev/null 2>&1; then
    output=$(timeout 20 nvidia-smi -L 2>&1 </dev/null) && code=0 || code=$?
    say smi "$code $(printf '%s\\n' "$output" | grep -c '^GPU ')"
    [ "$code" = 0 ] || say smi_error "$(printf '%s\\n' "$output" | grep . | tail -n 1)"
fi
path=$(soon ldconfig -p | sed -n 's/.*libnvidia-ml[.]so[.]1 .*=> //p' | head -n 1)
[ -z "$path" ] || say library "$(readlink -f "$path")"
[ ! -r /proc/driver/nvidia/version ] || say module "$(head -n 1 /proc/driver/nvidia/version)"
for file in /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml /var/run/cdi/*.json; do
    if [ -r "$file" ] && grep -q nvidia "$file"; then say cdi "$file"; fi
done
if grep -q nvidia-container-runtime /etc/containerd/config.toml 2>/dev/null; then say cdi containerd; fi
for name in CanNTP NTP NTPSynchronized; do say "$name" "$(soon timedatectl show -p "$name" --value)"; done
say inodes "$(soon df -P -i /var/lib | tail -n 1)"
say end 1
""".replace("LIST_MEMBERS", LIST_MEMBERS)


def host_reports(spec: ClusterSpec, hosts: Hosts, kept: ClusterSpec | None) -> list[HostReport]:
    """Of every host in the order of the file; one that cannot be reached has an error. `kept`: see `identify`."""
    facts = hosts.each(read_facts)
    return reports_of(spec, facts, hosts.each(look, list(facts.values)), kept)


def reports_of(
    spec: ClusterSpec, facts: Answers[HostFacts], looks: Answers[str], kept: ClusterSpec | None
) -> list[HostReport]:
    spec, judged = identify(spec, facts.values, kept)
    problems = find_problems(spec, list(judged.values()), facts.errors)
    by_host: dict[str, list[HostProblem]] = {}
    for problem in problems:  # what this machine is blamed for is told with the first host
        owner = spec.hosts[0].name if problem.host == THIS_MACHINE and spec.hosts else problem.host
        by_host.setdefault(owner, []).append(problem)
    return [
        report_of(spec, judged[host.name], looks.values.get(host.name, ""), by_host, looks.errors.get(host.name))
        if host.name in judged
        else _failed(host.name, facts.errors[host.name])
        for host in spec.hosts
    ]


def look(host: HostConnection) -> str:
    is_root = host.sudo not in ("asks", "none")
    return host.run(SCRIPT, as_root=is_root, timeout_s=LOOK_S).stdout


def _failed(name: str, error: LongboatError) -> HostReport:
    return HostReport(name=name, error=str(getattr(error, "reason", error.message)), hint=error.hint)


def report_of(
    spec: ClusterSpec,
    facts: HostFacts,
    text: str,
    problems: Mapping[str, Sequence[HostProblem]],
    error: LongboatError | None = None,
) -> HostReport:
    """Out of what the script printed; a host may print anything. Pure but for the time."""
    lines = split(text)
    last = {key: values[-1].strip() for key, values in lines.items()}
    code, _, count = last.get("smi", "").partition(" ")
    return HostReport(
        name=facts.name,
        facts=facts,
        problems=tuple(problems.get(facts.name, ())),
        is_member=facts.journal_cluster == spec.name,
        look_error=error.message if error is not None else "" if last.get("end") == "1" else "its answer was cut off",
        certificates=tuple(_certificates(lines["certificate"])),
        members=_members(last.get("etcd", "")),
        xids=tuple(xids(lines["xid"])),
        smi_gpus=number(count) if code == "0" else None,
        has_kernel_log=bool(lines["kernel_log"]),
        smi_error=_smi_error(code, last.get("smi_error", "")),
        library=_version(r"[.]so[.]([0-9]+[.][0-9.]+)$", last.get("library", "")),
        module=_version(r"Kernel Module.*?\s([0-9]+\.[0-9.]+)", last.get("module", "")),
        has_cdi=bool(lines["cdi"]),
        synchronized={"yes": True, "no": False}.get(last.get("NTPSynchronized", "")),
        is_ntp_off=(last.get("CanNTP"), last.get("NTP")) == ("yes", "no"),
        inodes_free=_inodes(last.get("inodes", "")),
        now=time.time(),
    )


def _members(text: str) -> tuple[str, ...] | None:
    """Names of etcd's members; one that has never started has none."""
    try:
        return tuple(member["name"] for member in members_of(text) if member["name"])
    except ValueError:
        return None


def _smi_error(code: str, text: str) -> str:
    if code in ("", "0"):
        return ""
    return text or f"nvidia-smi {'hangs' if code == '124' else 'fails'} (exit code {code})"


def _version(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


def _certificates(lines: Sequence[str]) -> list[tuple[str, float]]:
    ends = []
    for line in lines:
        name, text = pair(line, " ")
        try:
            validity = validity_of(base64.b64decode(text, validate=True))
        except (ValueError, binascii.Error):
            continue
        if validity is not None:
            ends.append((name, validity.ends))
    return ends


def xids(lines: Sequence[str]) -> list[tuple[str, int]]:
    """Of lines such as `NVRM: Xid (PCI:0000:41:00): 79, pid=..., GPU has fallen off the bus.`"""
    matches = (re.search(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): ([0-9]{1,4})\b", line) for line in lines)
    return [(match[1], int(match[2])) for match in matches if match]


def _inodes(line: str) -> float | None:
    """Of `df -P -i`: file system, inodes, used, free, share, mount point. Some file systems count none: all free."""
    fields = line.split()
    if len(fields) < 6:
        return None
    total = number(fields[-5])
    return number(fields[-3]) / total if total else 1.0


def repairs(report: HostReport) -> list[str]:
    """Commands that are safe on a node: start its services that stand still, switch time synchronization on. Pure."""
    facts = report.facts
    if facts is None or not report.is_member:
        return []
    idle = [unit for unit in UNITS if facts.unit(unit) in ("inactive", "failed") and _is_wanted(unit, facts)]
    return [f"systemctl start {unit}" for unit in idle] + ["timedatectl set-ntp true"] * report.is_ntp_off


def fix_host(host: HostConnection, report: HostReport) -> str:
    """Do these, with the lock of commands that change hosts; what was done."""
    done = [line for line in repairs(report) if host.run(_repair(line, report), timeout_s=FIX_S).code == 0]
    return f"{report.name}: {'; '.join(done)}" if done else ""


def _repair(line: str, report: HostReport) -> str:
    """Nothing where the host has left the cluster since it was looked at, as after a `down` that had the lock."""
    cluster = shlex.quote(report.facts.journal_cluster if report.facts else "")
    return f"""{PRELUDE}
[ "$(head -n 1 "$LB/cluster" 2>/dev/null)" = {cluster} ] || fail 'it is not part of the cluster any more'
{line}
"""


def _is_wanted(unit: str, facts: HostFacts) -> bool:
    return unit != "nvidia-fabricmanager" or facts.nvswitch
