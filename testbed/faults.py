"""Faults of a cluster's own parts: pause, kill and restart a component, slow it down, give a node a small disk.

A fault outlives the process that caused it only where it was asked to (`kill`, `pause`): the others are contexts that
end it, and `down` removes a cluster in whatever state. Not here: faults between a client and the API (`proxy`), and of
image pulls (`registry`).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from testbed import api, binaries, controlplane, driver, kwok, namespaces, network, node, processes, profiles
from testbed.binaries import Binaries
from testbed.clusters import Cluster
from testbed.errors import TestbedError
from testbed.processes import Process

NODE_PART = re.compile(r"(node-(\d+))-(containerd|kubelet|kube-proxy|nvidia-device-plugin)")
NODE_PORTS = {"kubelet": 10250, "kube-proxy": 10256}
# Reading sees what is there already, writing goes to the small disk. What was written well is kept: containerd has
# noted that it has it.
_COVER = """
set -e
content=/var/lib/containerd/io.containerd.content.v1.content
mkdir "$1/upper" "$1/work"
mount -t overlay -o "lowerdir=$content,upperdir=$1/upper,workdir=$1/work" overlay "$content"
"""
_UNCOVER = """
set -e
content=/var/lib/containerd/io.containerd.content.v1.content
umount --lazy "$content"
[ ! -d "$1/upper/blobs" ] || cp -a "$1/upper/blobs/." "$content/blobs/"
"""
_CUT = """
table inet testbed_cut {
    chain coming { type filter hook prerouting priority -300; iifname "eth0" drop; }
    chain going { type filter hook postrouting priority 300; oifname "eth0" drop; }
}
"""
# Of what comes only: what goes out comes in at the other end, where it may be lost as well.
_LOSE = """
table inet testbed_loss {
    chain coming { type filter hook prerouting priority -300; iifname "eth0" numgen random mod 100 <= %d drop; }
}
"""
READY_S = 60.0
PERIOD_S = 0.1
# The kernel may have no delay of its own (netem). A queue before a narrow cable delays as well, the more the fuller it
# is, and 256 kB take up to two seconds through this one.
_NARROW = ("rate", "1mbit", "burst", "3000", "limit", "262144")


def proper_name(name: str) -> str:
    """The recorded name: `kube-apiserver` and `kubelet` are taken for `apiserver` and `node-0-kubelet`."""
    if name in ("containerd", "kubelet", "kube-proxy", node.PLUGIN):
        return f"{node.name_of(0)}-{name}"
    return name.removeprefix("kube-")


def component(cluster: Cluster, name: str) -> Process:
    """The component, whether it runs or not."""
    recorded = processes.recorded(cluster.processes)
    known = {own_name: process for own_name, process in recorded.items() if is_component(own_name)}
    component_process = known.get(proper_name(name))
    if component_process is None:
        raise TestbedError(f"{cluster.name!r} has no component {name!r}; there are {', '.join(sorted(known))}")
    return component_process


def is_component(name: str) -> bool:
    return name in (*controlplane.PORTS, "kwok") or NODE_PART.fullmatch(name) is not None


def signal_component(cluster: Cluster, name: str, number: signal.Signals) -> None:
    process = component(cluster, name)
    if not processes.send(process, number):
        raise TestbedError(f"{process.name} of {cluster.name!r} does not run")


def pause(cluster: Cluster, name: str) -> None:
    """It stays where it is and answers nobody, until `resume`."""
    signal_component(cluster, name, signal.SIGSTOP)


def resume(cluster: Cluster, name: str) -> None:
    signal_component(cluster, name, signal.SIGCONT)


def kill(cluster: Cluster, name: str) -> None:
    """Without a chance to say goodbye; returns when it is gone."""
    process = component(cluster, name)
    signal_component(cluster, name, signal.SIGKILL)
    if not processes.wait_until(lambda: not processes.is_alive(process), READY_S):
        raise TestbedError(f"{process.name} of {cluster.name!r} cannot be killed")


def start(cluster: Cluster, name: str) -> Process:
    """Start what was killed, and wait until it works."""
    process = component(cluster, name)
    if processes.is_alive(process):
        raise TestbedError(f"{process.name} of {cluster.name!r} runs already")
    programs = binaries.find(profiles.combine(cluster.profiles).targets)
    until_port_is_free(cluster, process.name)
    started = start_again(cluster, programs, process.name)
    controlplane.wait_running(f"{process.name} works", works(cluster, programs, started), [started], READY_S)
    return started


def until_port_is_free(cluster: Cluster, name: str) -> None:
    """The first thread of a process that was killed may be gone while others still hold its port."""
    port, holder = cluster.ports.get(name), holder_of(cluster, node.name_of(0))
    if port is not None:
        processes.wait_until(lambda: not processes.is_listening(holder or os.getpid(), port), READY_S)


def restart(cluster: Cluster, name: str) -> Process:
    """End it politely, then as `start`."""
    # One that is paused would not hear the request.
    processes.send(component(cluster, name), signal.SIGCONT)
    processes.stop(component(cluster, name))
    return start(cluster, name)


def switch_off(cluster: Cluster, number: int) -> None:
    """A real node loses its power: everything on it is gone at once, and it does not come back. Not for node 0."""
    if number == 0:
        raise TestbedError("node-0 has the control plane on it")
    holder = processes.recorded(cluster.processes).get(f"{node.name_of(number)}-holder")
    if holder is None or not processes.send(holder, signal.SIGKILL):
        raise TestbedError(f"{node.name_of(number)} of {cluster.name!r} does not run")
    if not processes.wait_until(lambda: not processes.is_alive(holder), READY_S):
        raise TestbedError(f"{node.name_of(number)} of {cluster.name!r} cannot be switched off")


@contextlib.contextmanager
def cut_off(cluster: Cluster, number: int) -> Iterator[None]:
    """A real node whose cable is out: it works on, and nobody hears of it until the end."""
    holder = real_holder_of(cluster, number)
    namespaces.run(holder, ["nft", "-f", "-"], _CUT)
    try:
        yield
    finally:
        namespaces.run(holder, ["nft", "delete", "table", "inet", "testbed_cut"])


@contextlib.contextmanager
def lossy(cluster: Cluster, number: int, percent: int = 30) -> Iterator[None]:
    """A real node whose cable is bad: so many of the packets that are for it get lost, until the end."""
    holder = real_holder_of(cluster, number)
    namespaces.run(holder, ["nft", "-f", "-"], _LOSE % (percent - 1))  # nft refuses `< 100`
    try:
        yield
    finally:
        namespaces.run(holder, ["nft", "delete", "table", "inet", "testbed_loss"])


@contextlib.contextmanager
def delayed(cluster: Cluster, number: int) -> Iterator[None]:
    """A real node whose cable is narrow: what it sends waits in a queue, up to two seconds, until the end."""
    holder = real_holder_of(cluster, number)
    namespaces.run(holder, ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *_NARROW])
    try:
        yield
    finally:
        namespaces.run(holder, ["tc", "qdisc", "del", "dev", "eth0", "root"])


def holder_of(cluster: Cluster, node_name: str) -> int | None:
    if cluster.range is None:
        return None
    holder = namespaces.holder_of(cluster, node_name)
    if holder is None:
        raise TestbedError(f"{node_name} of {cluster.name!r} does not run")
    return holder


def real_holder_of(cluster: Cluster, number: int) -> int:
    holder = holder_of(cluster, node.name_of(number))
    if holder is None:
        raise TestbedError(f"{cluster.name!r} has no real node")
    return holder


def start_again(cluster: Cluster, programs: Binaries, name: str) -> Process:
    part = NODE_PART.fullmatch(name)
    if part:
        number = int(part[2])
        return node.start_component(cluster, programs, number, part[3], real_holder_of(cluster, number))
    holder = holder_of(cluster, node.name_of(0))
    if name == "kwok":
        return kwok.start(cluster, programs, holder)
    return controlplane.start_component(cluster, programs, name, holder)


def works(cluster: Cluster, programs: Binaries, started: Process) -> Callable[[], bool]:
    """What says that a component does its work again."""
    part = NODE_PART.fullmatch(started.name)
    if started.name == "kwok":
        return lambda: processes.is_alive(started)
    if part and part[3] == "containerd":
        asked = [str(programs["ctr"]), "-a", node.SOCKET, "version"]
        return lambda: bool(namespaces.run(real_holder_of(cluster, int(part[2])), asked))
    if part and part[3] == node.PLUGIN:
        return lambda: shown_gpus(cluster, int(part[2])) > 0
    if part:
        place = (network.node_address(cluster, int(part[2])), NODE_PORTS[part[3]])
        return lambda: accepts(place)

    def answers() -> bool:
        if not processes.is_listening(started.pid, cluster.ports[started.name]):
            return False
        # etcd may well be the first to come back.
        if started.name not in ("apiserver", "etcd") or not processes.is_alive(component(cluster, "apiserver")):
            return True
        with contextlib.closing(api.Api(cluster, timeout_s=5.0)) as with_api:
            return with_api.is_ready()

    return answers


def accepts(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, timeout=1.0).close()
    except OSError:
        return False
    return True


def shown_gpus(cluster: Cluster, number: int) -> int:
    with contextlib.closing(api.Api(cluster, timeout_s=5.0)) as with_api:
        return node.shown_gpus(with_api, node.name_of(number))


@contextlib.contextmanager
def gpu_error(cluster: Cluster, gpu: int, xid: int = 79, *, number: int = 0) -> Iterator[None]:
    """A GPU of a real node reports an Xid error, until the end: then all are as new, for the device plugin too.

    One at a time for a node: tests that share it wait for each other.
    """
    root = node.driver_root(cluster, number)
    with driver.error_lock(root):
        driver.add_error(root, gpu, xid)
        try:
            yield
        finally:
            driver.repair(root)
            # It never takes a GPU back by itself. A SIGHUP would do, and kills one that has only just been started.
            restart(cluster, f"{node.name_of(number)}-{node.PLUGIN}")
            healed = lambda: shown_gpus(cluster, number) == node.GPUS  # noqa: E731
            api.wait_for("the GPUs are back", healed, READY_S)


ACTIONS: dict[str, Callable[[Cluster, str], object]] = {
    "pause": pause,
    "resume": resume,
    "kill": kill,
    "start": start,
    "restart": restart,
}


@contextlib.contextmanager
def slowed(cluster: Cluster, name: str, share: float = 0.8) -> Iterator[None]:
    """Let a component work only for the rest of the time: with 0.8 it is stopped for 80 ms of every 100."""
    if not 0 < share < 1:
        raise TestbedError(f"a share is between 0 and 1, not {share}")
    process = component(cluster, name)
    over = threading.Event()

    def pulse() -> None:
        while not over.is_set():
            processes.send(process, signal.SIGSTOP)
            over.wait(PERIOD_S * share)
            processes.send(process, signal.SIGCONT)
            over.wait(PERIOD_S * (1 - share))

    pulses = threading.Thread(target=pulse, daemon=True)
    pulses.start()
    try:
        yield
    finally:
        over.set()
        pulses.join()


@contextlib.contextmanager
def small_disk(cluster: Cluster, path: str, size: str, *, number: int = 0) -> Iterator[str]:
    """A file system of this size (`64k`, `10m`) at a path of a real node, below /run or /var: the node's own folders.

    Pods get to it by a hostPath volume.
    """
    place = PurePosixPath(path)
    if (
        place.parts[:2] not in (("/", "run"), ("/", "var"))
        or ".." in place.parts
        or not re.fullmatch(r"\d+[kmg]", size)
    ):
        raise TestbedError(f"no small disk of {size!r} at {path!r}: a size such as 10m, and a path below /run or /var")
    holder = real_holder_of(cluster, number)
    namespaces.run(holder, ["mkdir", "-p", path])
    namespaces.run(holder, ["mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "tmpfs", path])
    try:
        yield path
    finally:
        namespaces.run(holder, ["umount", "--lazy", path])


@contextlib.contextmanager
def small_image_disk(cluster: Cluster, size: str, *, number: int = 0) -> Iterator[None]:
    """A real node has only so much space for images that it pulls from now on; those it has go on working."""
    holder = real_holder_of(cluster, number)
    with small_disk(cluster, f"/run/small-{secrets.token_hex(4)}", size, number=number) as path:
        namespaces.run(holder, ["sh", "-c", _COVER, "sh", path])
        try:
            yield
        finally:
            namespaces.run(holder, ["sh", "-c", _UNCOVER, "sh", path])
