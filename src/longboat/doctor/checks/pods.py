"""Checks of what pods see: image, DNS, the way to services and to other nodes, MTU, shared memory, NCCL. Pure."""

from __future__ import annotations

from longboat.core.resources import show_quantity
from longboat.core.words import listing
from longboat.doctor.facts import NETWORK_PROBE, TRAIN_PROBE, NotSeen, Seen
from longboat.doctor.findings import Check, Judgement, broken, ok, skipped, warning
from longboat.doctor.probes.outcomes import PodOutcome, PodReport

OLDEST_PYTHON = (3, 8)  # that the launcher runs on
SLOW_START_S = 30.0  # the image is small: a second, some more where it is pulled
SLOW_DNS_S = 1.0
"""One lost packet: resolvers ask again after a second or more."""
LEAST_SHM = 32 << 20
"""The probe asks for 64 MiB; a run asks for what its job needs, in the same way."""
CLOCK_S = 5.0  # a busy API server's answer may be a second or two old
LEAST_FILES = 4096  # loaders' workers and NCCL's peers hold some each: the usual 1,024 are too few
LEAST_MEMLOCK = 64 << 20
"""RDMA registers memory: with less, NCCL over InfiniBand fails with `ibv_reg_mr`."""
_HINTS = {
    "admission": "a policy, a quota or a webhook refuses pods like those of runs; the message names it",
    "scheduling": "kubectl describe nodes: what is free? taints are tolerated by `kubernetes.pod` of the settings",
    "image": "`longboat config set kubernetes.image IMAGE` takes another one; pull secrets: `kubernetes.pull_secrets`",
    "start": "kubectl get events --sort-by=.lastTimestamp in the namespace says more",
    "end": "does the image have python3 (3.8 or newer)? `longboat config set kubernetes.image IMAGE`",
}


def _outcome(seen: Seen) -> PodOutcome:
    probe = seen[NETWORK_PROBE]
    return probe.server if probe.server.problem else probe.client


def _report(seen: Seen) -> PodReport:
    """What the pod saw; NotSeen where it did not run, which is another check's finding."""
    report = seen[NETWORK_PROBE].client.report
    if report is None or report == PodReport():
        raise NotSeen(skipped(f"no pod could look: {_outcome(seen).problem or 'it said nothing'}"))
    return report


def start(seen: Seen) -> Judgement:
    outcome = _outcome(seen)
    if outcome.problem and outcome.kind not in ("image", "end"):
        return broken(f"a small pod does not start: {outcome.problem}", _HINTS[outcome.kind or "start"])
    if outcome.kind == "image":
        return skipped("a pod was taken by a node; its image is another check")
    if not outcome.node:
        return skipped("no node has taken a pod")
    slow_s = seen[NETWORK_PROBE].server.started_s
    if slow_s > SLOW_START_S:
        hint = "slow pulls: a registry nearby, or the image on the nodes beforehand"
        return warning(f"a small pod took {slow_s:.0f} s to start", hint)
    return ok(f"a small pod started in {slow_s:.1f} s")


def image(seen: Seen) -> Judgement:
    outcome = _outcome(seen)
    if outcome.kind == "image":
        return broken(outcome.problem, _HINTS["image"])
    if not outcome.node or (outcome.problem and outcome.kind != "end"):
        return skipped("no node has tried to pull it")
    return ok(f"{seen[NETWORK_PROBE].image} is there on {outcome.node}")


def image_python(seen: Seen) -> Judgement:
    outcome = _outcome(seen)
    if outcome.kind == "end":
        return broken(f"the image cannot run Python: {outcome.problem}", _HINTS["end"])
    report = _report(seen)
    version = tuple(int(part) for part in report.python.split(".")[:2] if part.isdecimal())
    if version < OLDEST_PYTHON:
        return broken(f"python3 of the image is {report.python or 'unknown'}", "use an image with Python 3.8 or newer")
    return ok(f"{report.python} in {seen[NETWORK_PROBE].image}")


def logs(seen: Seen) -> Judgement:
    outcome = _outcome(seen)
    if outcome.log_is_forbidden:
        return skipped("no right to get pods/log")
    if outcome.log_error:
        hint = "the API server must reach port 10250 of every node; are certificate requests of kubelets approved?"
        return broken(f"logs cannot be read: {outcome.log_error}", hint)
    _report(seen)
    return ok(f"the API server reaches the kubelet of {seen[NETWORK_PROBE].server.node}")


def dns_lookup(seen: Seen) -> Judgement:
    report = _report(seen)
    hint = "kubectl -n kube-system logs -l k8s-app=kube-dns; is the way from pods to the DNS service open?"
    if report.dns_error:
        return broken(f"kubernetes.default.svc is not found in a pod: {report.dns_error}", hint)
    if report.dns_s > SLOW_DNS_S:
        return warning(f"a name takes {report.dns_s:.1f} s to be found", hint)
    return ok(f"names of services are found in {report.dns_s * 1000:.0f} ms")


def services(seen: Seen) -> Judgement:
    error = _report(seen).service_error
    if error:
        hint = "kube-proxy, or what stands for it, does not work on that node: kubectl -n kube-system get pods -o wide"
        return broken(f"a pod on {_outcome(seen).node} does not reach the service of the API server: {error}", hint)
    return ok("a pod reaches services by their address")


def pod_to_pod(seen: Seen) -> Judgement:
    report, probe = _report(seen), seen[NETWORK_PROBE]
    way = f"{probe.client.node} to {probe.server.node}"
    if report.peer_error:
        hint = "firewalls between nodes (VXLAN 8472/udp, BGP), the network plugin's pods, routes; NetworkPolicies"
        return broken(f"a pod does not reach another, {way}: {report.peer_error}", hint)
    if not probe.is_between_nodes:
        return ok(f"pods reach each other on {probe.server.node}; only one node took them")
    return ok(f"{way} in {report.peer_s * 1000:.1f} ms")


def mtu(seen: Seen) -> Judgement:
    report = _report(seen)
    if report.peer_error or not report.mtu_wanted:
        return skipped("pods do not reach each other")
    if report.mtu < report.mtu_wanted:
        hint = f"set the MTU of the network plugin to {report.mtu} or less: large messages of NCCL hang else"
        return broken(f"packets of {report.mtu_wanted} bytes are lost, the largest that arrives has {report.mtu}", hint)
    return ok(f"packets of {report.mtu_wanted} bytes arrive whole")


def shared_memory(seen: Seen) -> Judgement:
    size = _report(seen).shm
    if size < LEAST_SHM:
        hint = "an emptyDir in memory at /dev/shm is refused or cut; data loaders of PyTorch need it"
        return broken(f"/dev/shm of a pod has {show_quantity(size)}, 64 MiB were asked for", hint)
    return ok("/dev/shm is as large as a pod asks for")


def nccl_interfaces(seen: Seen) -> Judgement:
    report, wanted = _report(seen), seen[NETWORK_PROBE].interface_wanted
    names = [interface.name for interface in report.interfaces if interface.is_up]
    if wanted and not matches(wanted, names):
        hint = f"interfaces of a pod: {', '.join(names) or 'none'}; correct NCCL_SOCKET_IFNAME in `kubernetes.pod`"
        return broken(f"NCCL_SOCKET_IFNAME={wanted} names no interface of a pod", hint)
    if len(names) > 1 and not wanted:
        hint = "set NCCL_SOCKET_IFNAME in `kubernetes.pod` of the settings to the fast one"
        return warning(f"NCCL has a choice of {listing(names, 5)} and may take the slow one", hint)
    if not names:
        return skipped("a pod sees no interface that is up")
    return ok(f"NCCL uses {wanted or ', '.join(names)}")


def matches(wanted: str, names: list[str]) -> bool:
    """NCCL's own rules: a list of beginnings; `=` asks for whole names, `^` leaves them out."""
    is_excluded = wanted.startswith("^")
    text = wanted.lstrip("^")
    is_whole = text.startswith("=")
    parts = [part for part in text.lstrip("=").split(",") if part]
    hits = [name for name in names if any(name == part if is_whole else name.startswith(part) for part in parts)]
    return len(hits) < len(names) if is_excluded else bool(hits)


def limits(seen: Seen) -> Judgement:
    report = _report(seen)
    if report.infiniband and 0 <= report.memlock < LEAST_MEMLOCK:
        hint = "containerd: LimitMEMLOCK=infinity in its systemd unit, then restart it; or the capability IPC_LOCK"
        return broken(f"RDMA devices, and only {show_quantity(report.memlock)} may be locked", hint)
    if 0 < report.files < LEAST_FILES:
        return warning(
            f"a process may open {report.files} files", "containerd: LimitNOFILE=1048576 in its systemd unit"
        )
    if not report.files:
        return skipped("how many files a process may open could not be read")
    rdma = f"; RDMA: {', '.join(report.infiniband)}" if report.infiniband else ""
    return ok(f"{report.files} files{rdma}")


def pod_clock(seen: Seen) -> Judgement:
    report, outcome = _report(seen), _outcome(seen)
    ahead_s = report.clock - outcome.asked
    if ahead_s > CLOCK_S or ahead_s < -CLOCK_S - 60.0:  # it looked before we asked, by as long as its other checks took
        side = "ahead of" if ahead_s > 0 else "behind"
        hint = "synchronize the node: timedatectl set-ntp true, or chrony"
        return warning(f"the clock of {outcome.node} is {abs(ahead_s):.0f} s {side} the API server's", hint)
    return ok(f"the clock of {outcome.node} agrees with the API server's")


def train_step(seen: Seen) -> Judgement:
    probe = seen[TRAIN_PROBE]
    device = f"{probe.gpus} GPU" if probe.gpus else "the CPU"
    if probe.kind == "scheduling" and "Insufficient" in probe.problem:
        return skipped(f"no room for a pod with {device} now: {probe.problem}", "try again when a run has ended")
    if probe.problem:
        title = "a pod with a GPU does not run" if probe.gpus else "a pod that trains does not run"
        return broken(f"{title}: {probe.problem}", _HINTS[probe.kind or "start"])
    if probe.error:
        hint = "nvidia-smi on the node; does the image's CUDA suit the driver?" if probe.gpus else _HINTS["end"]
        return broken(f"one step on {device} of {probe.node} fails: {probe.error}", hint)
    if not probe.loss_after < probe.loss_before:
        detail = (
            f"one step on {device} of {probe.node}: the loss went from {probe.loss_before:g} to {probe.loss_after:g}"
        )
        return broken(detail, "a GPU that computes wrong: dcgmi diag -r 3 on the node")
    return ok(f"one step on {device} of {probe.node} with {probe.framework} in {probe.took_s:.1f} s: the loss fell")


CHECKS = (
    Check("pod start", "pods", "a small pod is admitted, scheduled and started", start),
    Check("image pull", "pods", "the image of runs is pulled", image),
    Check("image python", "pods", "the image has Python 3.8 or newer", image_python),
    Check("pod logs", "pods", "the API server reaches kubelets, for `logs` and `exec`", logs),
    Check("dns lookup", "pods", "a pod finds names of services, fast", dns_lookup),
    Check("services", "pods", "a pod reaches a service by its address (kube-proxy)", services),
    Check("pod to pod", "pods", "pods on two nodes reach each other", pod_to_pod),
    Check("mtu", "pods", "packets as large as the interface promises arrive whole", mtu),
    Check("pod shared memory", "pods", "/dev/shm of a pod is as large as it asks for", shared_memory),
    Check("nccl interfaces", "pods", "NCCL has one interface to choose, or the one that is set", nccl_interfaces),
    Check("limits", "pods", "open files, and locked memory where there is RDMA", limits),
    Check("pod clock", "pods", "the clock of a node agrees with the API server's", pod_clock),
    Check("train step", "training", "a pod trains for one step, on a GPU where there is one", train_step),
)
