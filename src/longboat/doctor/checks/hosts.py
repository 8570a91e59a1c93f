"""Checks of the hosts of a cluster file, over SSH: what stands against them, and whether nodes still work. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from longboat.clusters.observe.facts import HostFacts
from longboat.core.times import show_age
from longboat.core.words import listing
from longboat.doctor.facts import HOSTS, NotSeen, Seen
from longboat.doctor.findings import Check, Judgement, broken, ok, skipped, warning
from longboat.doctor.values import HostReport

SOON_S = 30 * 86400.0
"""kubeadm makes certificates for a year, and renews them with an upgrade only."""
LEAST_INODES = 0.05  # a share: an image has tens of thousands of files, and a full table looks like a full disk
_SHOWN = 3  # names: a finding is one line
HARDWARE_XIDS = {
    48: "double bit ECC error",
    63: "row remapping",
    64: "row remapping failed",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many single bit ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "the GPU's processor does not answer",
    120: "error of the GPU's processor",
    140: "unrecovered ECC error",
}
"""Xids that speak of the hardware; most others are errors of programs, as 13, 31 and 43."""
START = "starts the service (systemctl start)"


def reached(seen: Seen) -> Judgement:
    lost = [report for report in seen[HOSTS] if report.error]
    if lost:
        names = [f"{report.name}: {report.error}" for report in lost]
        return broken(listing(names, _SHOWN), lost[0].hint or f"ssh {lost[0].name}: does it work by hand?")
    return ok(f"{len(_hosts(seen))} answer")


def _hosts(seen: Seen) -> list[tuple[HostReport, HostFacts]]:
    """Those that answered; NotSeen where none did."""
    reports = [(report, report.facts) for report in seen[HOSTS] if report.facts is not None]
    if not reports:
        raise NotSeen(skipped("no host answers"))
    return reports


def _nodes(seen: Seen) -> list[tuple[HostReport, HostFacts]]:
    """Those that are part of the cluster; NotSeen where none is."""
    nodes = [(report, facts) for report, facts in _hosts(seen) if report.is_member]
    if not nodes:
        raise NotSeen(skipped("no host is part of the cluster"))
    return nodes


def _drivers(seen: Seen) -> list[tuple[HostReport, HostFacts]]:
    return [(report, facts) for report, facts in _hosts(seen) if facts.driver]


def _fine(
    reports: Sequence[tuple[HostReport, HostFacts]], is_known: Callable[[HostReport], bool], fine: str
) -> Judgement:
    """Ok, if of each of these hosts is known what was asked."""
    unread = [
        f"{report.name} ({report.look_error})" if report.look_error else report.name
        for report, _ in reports
        if report.look_error or not is_known(report)
    ]
    return skipped(f"could not be read: {listing(unread, _SHOWN)}") if unread else ok(fine)


def _is_root(facts: HostFacts) -> bool:
    return facts.sudo not in ("asks", "none")


def problem(kind: str, fine: str) -> Callable[[Seen], Judgement]:
    """A check of `longboat cluster up`, which is as true afterwards."""

    def judge(seen: Seen) -> Judgement:
        problems = [each for report in seen[HOSTS] for each in report.problems if each.check == kind]
        if not problems:
            closed = [facts.name for _, facts in _hosts(seen) if kind in FOR_ROOT and not _is_root(facts)]
            return skipped(f"could not be read without root: {listing(closed, _SHOWN)}") if closed else ok(fine)
        texts = [f"{each.host}: {each.message}" for each in problems]
        hint = problems[0].remedy or "longboat cluster up"
        is_broken = any(each.severity == "error" for each in problems)
        return (broken if is_broken else warning)(listing(texts, _SHOWN), hint)

    return judge


def of_those_that_answer(judge: Callable[[Seen], Judgement]) -> Callable[[Seen], Judgement]:
    """What is well with the others is not said of hosts that do not answer."""

    def judge_others(seen: Seen) -> Judgement:
        judgement = judge(seen)
        lost = [report.name for report in seen[HOSTS] if report.facts is None]
        if judgement.status != "ok" or not lost:
            return judgement
        return ok(f"{judgement.detail}; not known of {listing(lost, _SHOWN)}")

    return judge_others


def membership(seen: Seen) -> Judgement:
    outside = [report.name for report, facts in _hosts(seen) if not report.is_member and _is_root(facts)]
    if outside:
        return warning(f"not part of the cluster (yet): {listing(outside, _SHOWN)}", "longboat cluster up")
    closed = [report.name for report, facts in _hosts(seen) if not _is_root(facts)]
    if closed:  # the journal is root's
        return skipped(f"could not be read without root: {listing(closed, _SHOWN)}")
    return ok("every host is part of the cluster")


def service(unit: str) -> Callable[[Seen], Judgement]:
    def judge(seen: Seen) -> Judgement:
        nodes = _nodes(seen)
        down = [
            f"{facts.name} ({facts.unit(unit) or 'not there'})" for _, facts in nodes if facts.unit(unit) != "active"
        ]
        if down:
            return broken(f"{unit} does not run: {listing(down, _SHOWN)}", f"on the host: journalctl -u {unit} -n 50")
        return ok(f"runs on {len(nodes)} nodes")

    return judge


def certificates(seen: Seen) -> Judgement:
    ending = []
    is_over = False
    nodes = _nodes(seen)
    for report, _ in nodes:
        for name, ends in report.certificates:
            left_s = ends - report.now
            if left_s < SOON_S:
                ending.append(f"{report.name}: {name} {'ended' if left_s <= 0 else 'ends in ' + show_age(left_s)}")
                is_over = is_over or left_s <= 0
    if ending:
        hint = "on each control plane: kubeadm certs renew all, then restart its pods; kubelets renew their own"
        return (broken if is_over else warning)(listing(ending, _SHOWN), hint)
    count = sum(len(report.certificates) for report, _ in nodes)
    fine = f"{count} certificates, all valid for more than {show_age(SOON_S)}"
    return _fine(nodes, lambda report: bool(report.certificates), fine)


def etcd(seen: Seen) -> Judgement:
    """A member that is gone for good counts for the majority all the same, and no control plane can join."""
    planes = [(report, facts) for report, facts in _nodes(seen) if facts.file("/etc/kubernetes/admin.conf")]
    if not planes:
        return skipped("no control plane answers")
    hosts = {report.name for report in seen[HOSTS]}
    lost = sorted({name for report, _ in planes for name in report.members or () if name not in hosts})
    if lost:
        hint = f"longboat cluster up --forget {lost[0]} takes it out"
        return broken(f"it waits for what is no host of the file: {listing(lost, _SHOWN)}", hint)
    return _fine(planes, lambda report: report.members is not None, "every member is a host of the file")


def xid(seen: Seen) -> Judgement:
    hard: list[str] = []
    soft: list[str] = []
    for report, _ in _hosts(seen):
        for bus, number in report.xids:
            meaning = HARDWARE_XIDS.get(number)
            text = f"{report.name}: GPU {bus} Xid {number}" + (f" ({meaning})" if meaning else "")
            (hard if meaning else soft).append(text)
    if hard:
        hint = "drain the node, nvidia-smi -r or restart it; if it comes again, the GPU is faulty: replace it"
        return broken(listing(list(dict.fromkeys(hard)), _SHOWN), hint)
    if soft:
        hint = "mostly errors of a program: `longboat explain` of the run at that time; dmesg | grep Xid says when"
        return warning(listing(list(dict.fromkeys(soft)), _SHOWN), hint)
    return _fine(_hosts(seen), lambda report: report.has_kernel_log, "none in the kernels' logs")


def driver_match(seen: Seen) -> Judgement:
    wrong = [
        f"{report.name}: kernel module {report.module}, library {report.library}"
        for report, _ in _hosts(seen)
        if report.module and report.library and report.module != report.library
    ]
    if wrong:
        hint = "the driver was upgraded and not loaded again: drain the node and restart it"
        return broken(listing(wrong, _SHOWN), hint)
    fine = "kernel module and library of the driver match, where there are any"
    return _fine(_drivers(seen), lambda report: bool(report.module and report.library), fine)


def smi(seen: Seen) -> Judgement:
    wrong = []
    gpu_hosts = [(report, facts) for report, facts in _drivers(seen) if facts.gpus]
    for report, facts in gpu_hosts:
        devices = len(facts.gpus)
        if report.smi_error:
            wrong.append(f"{report.name}: {report.smi_error}")
        elif report.smi_gpus is not None and report.smi_gpus != devices:
            wrong.append(f"{report.name}: nvidia-smi lists {report.smi_gpus} of {devices} GPUs")
    if wrong:
        return broken(
            listing(wrong, _SHOWN), "dmesg | grep NVRM on the host; is a GPU lost? a cold restart brings it back"
        )
    fine = "nvidia-smi lists every GPU of the PCI bus" if gpu_hosts else "no host has a GPU with a driver"
    return _fine(gpu_hosts, lambda report: report.smi_gpus is not None, fine)


def cdi(seen: Seen) -> Judgement:
    gpu_hosts = _drivers(seen)
    without = [report.name for report, _ in gpu_hosts if not report.has_cdi and not report.look_error]
    if without:
        hint = "install nvidia-container-toolkit; nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        return warning(f"containers get no GPU there: {listing(without, _SHOWN)}", hint)
    fine = f"GPUs are handed to containers on {len(gpu_hosts)} hosts" if gpu_hosts else "no host has a driver"
    return _fine(gpu_hosts, lambda report: report.has_cdi, fine)


def ntp(seen: Seen) -> Judgement:
    loose = [report.name for report, _ in _hosts(seen) if report.synchronized is False]
    if loose:
        return warning(
            f"clocks that nobody synchronizes: {listing(loose, _SHOWN)}", "timedatectl set-ntp true, or chrony"
        )
    return _fine(_hosts(seen), lambda report: report.synchronized is not None, "every clock is synchronized")


def inodes(seen: Seen) -> Judgement:
    full = [
        f"{report.name} ({report.inodes_free:.0%} free)"
        for report, _ in _hosts(seen)
        if report.inodes_free is not None and report.inodes_free < LEAST_INODES
    ]
    if full:
        return broken(
            f"few inodes are left: {listing(full, _SHOWN)}", "crictl rmi --prune; many small files below /var/lib?"
        )
    fine = "enough inodes for images and pods"
    return _fine(_hosts(seen), lambda report: report.inodes_free is not None, fine)


def forwarding(seen: Seen) -> Judgement:
    settings = {facts.name: dict(facts.sysctls).get("net.ipv4.ip_forward") for _, facts in _nodes(seen)}
    closed = [name for name, value in settings.items() if value == "0"]
    if closed:
        hint = "sysctl -w net.ipv4.ip_forward=1; what has switched it off? `longboat cluster up` sets it for good"
        return broken(f"packets of pods are not forwarded: {listing(closed, _SHOWN)}", hint)
    unread = [name for name, value in settings.items() if value is None]
    if unread:
        return skipped(f"could not be read: {listing(unread, _SHOWN)}")
    return ok("nodes forward packets of pods")


PROBLEMS = {
    "sudo": ("the account may become root", "root on every host"),
    "systemd": ("systemd runs", "systemd on every host"),
    "packages": ("programs can be installed", "apt or dnf, or a source of files"),
    "architecture": ("the processor is one that programs are built for", "amd64 or arm64"),
    "kernel": ("the kernel is new enough", "new enough on every host"),
    "cgroup": ("control groups are of version 2", "version 2 on every host"),
    "swap": ("swap is off", "off on every host"),
    "disk": ("the disk has room for images", "room on every host"),
    "memory": ("there is enough memory", "enough on every host"),
    "cpu": ("a control plane has enough processors", "enough on every control plane"),
    "cluster": ("no other cluster is there", "no other cluster is in the way"),
    "containerd": ("containerd serves the kubelet", "containerd serves the kubelet"),
    "port": ("ports of a cluster are free", "no other program has a port of the cluster"),
    "firewall": ("firewalls let the cluster through", "open for the cluster"),
    "proxy": ("proxies leave the cluster's addresses alone", "no proxy is in the way"),
    "route": ("programs and images can be fetched", "every host has a way out, or needs none"),
    "range": ("address ranges do not overlap", "ranges of pods and services are free"),
    "link": ("hosts are on one subnet, where routes need it", "one subnet, or a network that needs none"),
    "vip": ("the virtual IP is one of the control planes' subnet", "free, where there is one"),
    "vxlan": ("the network flannel finds vxlan and nftables", "there, where the network needs them"),
    "gpu": ("hosts with `gpu: yes` have one", "as the file says"),
    "driver": ("GPUs have a driver", "every GPU has a driver, where there are any"),
    "secure-boot": ("Secure Boot does not keep the driver out", "not in the way"),
    "fabric": ("the fabric manager runs where GPUs hang on NVSwitch", "runs where it is needed"),
    "toolkit": ("the container toolkit is new enough", "new enough, where there is one"),
    "clock": ("clocks agree", "clocks agree"),
    "twin": ("no host is a copy of another", "every host is itself"),
    "name": ("names of hosts can be names of nodes", "all can be names of nodes"),
}
"""Checks of `longboat cluster up`: title, and what is said where all is well."""
FOR_ROOT = ("firewall", "cluster")
"""Of these, those that root alone can look at: rules of firewalls, the journal of clusters."""
_CHECKS = (
    *(Check(f"host {kind}", "hosts", title, problem(kind, fine)) for kind, (title, fine) in PROBLEMS.items()),
    Check("host membership", "hosts", "every host is part of the cluster", membership),
    Check("host kubelet", "hosts", "the kubelet runs on every node", service("kubelet"), fix=START),
    Check("host runtime", "hosts", "containerd runs on every node", service("containerd"), fix=START),
    Check("host certificates", "hosts", "no certificate of the cluster ends soon", certificates),
    Check("host etcd", "hosts", "etcd counts control planes of the file, and no other", etcd),
    Check("host xid", "hosts", "no GPU had an Xid error since the last boot", xid),
    Check("host driver match", "hosts", "kernel module and library of the driver match", driver_match),
    Check("host nvidia-smi", "hosts", "nvidia-smi lists every GPU of the PCI bus", smi),
    Check("host cdi", "hosts", "GPUs are handed to containers (CDI, or a runtime of containerd)", cdi),
    Check("host ntp", "hosts", "clocks are synchronized", ntp, fix="switches it on (timedatectl set-ntp true)"),
    Check("host inodes", "hosts", "there are inodes left for images", inodes),
    Check("host forwarding", "hosts", "nodes forward packets of pods", forwarding),
)
CHECKS = (
    Check("host login", "hosts", "every host is reached over SSH", reached),
    *(check._replace(judge=of_those_that_answer(check.judge)) for check in _CHECKS),
)
