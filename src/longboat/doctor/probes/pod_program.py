"""The program inside a probe pod: looks around and writes a report of JSON as the container's termination message.

Standard library only, Python 3.8: it travels as an argument and runs in any image. It changes nothing but files of
its own. `serve` answers the others until the pod is removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict

Report = Dict[str, Any]
PORT = 29455
TRY_S = 5.0  # for a connection inside of a cluster
WAIT_S = 0.5  # for an answer to a packet
MESSAGE = "/dev/termination-log"
SMALLEST = 1200  # the least that any network of pods carries
TEST_BYTES = 4 << 20  # written, synced and read: a slow disk shows, and a small claim has room
DONT_FRAGMENT = {socket.AF_INET: (socket.IPPROTO_IP, 10), socket.AF_INET6: (socket.IPPROTO_IPV6, 23)}
HEADERS = {socket.AF_INET: 28, socket.AF_INET6: 48}
SWALLOW = b"s"  # first byte of a connection whose bytes are only counted


def serve() -> None:
    """Answer packets with their length, and connections with what they send."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.create_server(("", PORT), family=family, dualstack_ipv6=family == socket.AF_INET6) as listener:
        packets = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6:
            packets.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        packets.bind(("", PORT))
        threading.Thread(target=answer_packets, args=(packets,), daemon=True).start()
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer_packets(packets: socket.socket) -> None:
    while True:
        data, sender = packets.recvfrom(1 << 16)
        with contextlib.suppress(OSError):
            packets.sendto(str(len(data)).encode(), sender)


def answer(connection: socket.socket) -> None:
    with contextlib.suppress(OSError), connection:
        first = connection.recv(1)
        while first == SWALLOW:
            if not connection.recv(1 << 20):
                return
        connection.sendall(first)


def look(peer: str) -> Report:
    report: Report = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "interfaces": interfaces(),
        "clock": time.time(),
    }
    report["infiniband"] = sorted(os.listdir("/sys/class/infiniband")) if os.path.isdir("/sys/class/infiniband") else []
    with contextlib.suppress(OSError):
        room = os.statvfs("/dev/shm")
        report["shm"] = room.f_blocks * room.f_frsize
    report["memlock"] = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    report["files"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    report["dns_s"], report["dns_error"] = timed(lambda: socket.getaddrinfo("kubernetes.default.svc", 443))
    service = os.environ.get("KUBERNETES_SERVICE_HOST", ""), int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
    _, report["service_error"] = timed(lambda: socket.create_connection(service, TRY_S).close())
    report["peer_s"], report["peer_error"] = timed(lambda: echo(peer))
    if not report["peer_error"]:
        report["mtu_wanted"], report["mtu"] = packet_sizes(peer)
    return report


def interfaces() -> list[Report]:
    rows = []
    for name in sorted(os.listdir("/sys/class/net")):
        folder = os.path.join("/sys/class/net", name)
        if name == "lo" or not os.path.isdir(folder):
            continue
        speed = number(folder + "/speed")
        row = {"name": name, "mtu": number(folder + "/mtu"), "is_up": first_line(folder + "/operstate") != "down"}
        rows.append(dict(row, speed=max(0, speed)))
    return rows


def first_line(path: str) -> str:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""


def number(path: str) -> int:
    try:
        return int(first_line(path))
    except ValueError:
        return 0


def timed(act: Callable[[], Any]) -> tuple[float, str]:
    """Seconds, and why it failed."""
    began = time.monotonic()
    try:
        act()
    except (OSError, ValueError) as error:
        return time.monotonic() - began, str(error) or type(error).__name__
    return time.monotonic() - began, ""


def echo(peer: str) -> None:
    with socket.create_connection((peer, PORT), TRY_S) as connection:
        connection.sendall(b"e")
        if connection.recv(1) != b"e":
            raise OSError("the other pod closed the connection")


def packet_sizes(peer: str) -> tuple[int, int]:
    """The size of packets that the interface promises, and the largest that arrives unbroken."""
    family, kind, protocol, _, address = socket.getaddrinfo(peer, PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as packets:
        level, option = DONT_FRAGMENT[family]
        packets.setsockopt(level, option, 2)  # IP_PMTUDISC_DO
        packets.settimeout(WAIT_S)
        packets.connect(address)
        wanted = interface_mtu()
        low, high = SMALLEST, wanted
        if arrives(packets, wanted - HEADERS[family]):
            return wanted, wanted
        while high - low > 8:
            middle = (low + high) // 2
            low, high = (middle, high) if arrives(packets, middle - HEADERS[family]) else (low, middle)
    return wanted, low


def interface_mtu() -> int:
    """Of the default route, which is the way to other pods; pods have one interface, mostly."""
    names = [line.split()[0] for line in open("/proc/net/route").read().splitlines()[1:] if line.split()[1] == "0" * 8]
    return number(f"/sys/class/net/{(names or ['eth0'])[0]}/mtu") or 1500


def arrives(packets: socket.socket, size: int) -> bool:
    for _ in range(3):
        with contextlib.suppress(OSError):
            packets.send(b"\0" * size)
            if int(packets.recv(64)) == size:
                return True
    return False


def measure(peer: str, streams: int, seconds: float) -> Report:
    """Bits per second over several connections."""
    counts = [0] * streams
    until = time.monotonic() + seconds

    def send(index: int) -> None:
        with socket.create_connection((peer, PORT), TRY_S) as connection:
            connection.sendall(SWALLOW)
            block = b"\0" * (1 << 20)
            while time.monotonic() < until:
                connection.sendall(block)
                counts[index] += len(block)

    threads = [threading.Thread(target=send, args=(index,)) for index in range(streams)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"bits_per_s": 8 * sum(counts) / (time.monotonic() - began), "streams": streams, "interfaces": interfaces()}


def write(folder: str) -> Report:
    """A file that is safe on the disk, read back and removed."""
    path = os.path.join(folder, f".longboat-doctor-{os.getpid()}")
    block = os.urandom(TEST_BYTES)
    with open(path, "wb") as file:
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
    with open(path, "rb") as file:
        same = file.read() == block
    os.unlink(path)
    return {"problem": "" if same else "what was written is not what is read"}


def train(gpus: int) -> Report:
    report = gpu_report() if gpus else {}
    began = time.monotonic()
    try:
        report.update(torch_step(gpus) or plain_step(gpus))
    except Exception as error:  # whatever a framework raises is the finding
        report["error"] = f"{type(error).__name__}: {str(error).strip()[:500]}"
    report["took_s"] = time.monotonic() - began
    return report


def gpu_report() -> Report:
    report: Report = {
        "devices": len([path for path in glob.glob("/dev/nvidia*") if re.match(r"/dev/nvidia[0-9]+$", path)])
    }
    match = re.search(r"Kernel Module.*?\s([0-9]+\.[0-9.]+)\s", first_line("/proc/driver/nvidia/version") + " ")
    report["module"] = match.group(1) if match else ""
    report["has_driver"] = loaded("libcuda.so.1") is not None
    if loaded("libnvidia-ml.so.1") is not None:
        with open("/proc/self/maps") as file:
            match = re.search(r"(/\S*libnvidia-ml\.so\S*)", file.read())
        name = os.path.realpath(match.group(1)) if match else ""
        match = re.search(r"\.so\.([0-9]+\.[0-9.]+)$", name)
        report["library"] = match.group(1) if match else ""
    try:
        # Without its daemon the driver is loaded anew, which takes seconds for each GPU.
        done = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
        report["smi_error"] = (lines or [f"exit code {done.returncode}"])[-1][:300] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        report["smi_error"] = "" if isinstance(error, OSError) else "it hangs"
    return report


def loaded(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def torch_step(gpus: int) -> Report | None:
    """One step of gradient descent with PyTorch, where the image has it."""
    try:
        import torch  # type: ignore[import-not-found]  # of the image
    except ImportError:
        return None
    device = "cuda" if gpus else "cpu"
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 1).to(device)
    inputs, wanted = torch.randn(256, 64, device=device), torch.randn(256, 1, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        losses.append(float(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    report = {"framework": f"torch {torch.__version__} on {device}", "loss_before": losses[0]}
    report["loss_after"] = losses[1]
    if torch.cuda.device_count() > 1:
        report["bits_per_s"] = all_reduce_rate(torch)
    return report


def all_reduce_rate(torch: Any) -> float:
    """Bits per second on the bus of an all-reduce over all GPUs of the pod, as nccl-tests count it."""
    from torch.cuda import nccl  # type: ignore[import-not-found]

    count, size = torch.cuda.device_count(), 64 << 20
    tensors = [torch.ones(size // 4, device=f"cuda:{index}") for index in range(count)]
    for turns in (2, 10):  # the first ones make connections
        began = time.monotonic()
        for _ in range(turns):
            nccl.all_reduce(tensors)
        for index in range(count):
            torch.cuda.synchronize(index)
    return float(8 * turns * size * 2 * (count - 1) / count / (time.monotonic() - began))


def plain_step(gpus: int) -> Report:
    """One step without a framework. With a GPU the weights go through its memory, so that its driver has worked."""
    inputs = [[((row * 7 + column * 3) % 11) / 11.0 for column in range(8)] for row in range(32)]
    wanted = [sum(row) for row in inputs]
    weights = through_gpu([0.0] * 8) if gpus else [0.0] * 8

    def loss(weights: list[float]) -> tuple[list[float], float]:
        errors = [sum(w * x for w, x in zip(weights, row)) - y for row, y in zip(inputs, wanted)]
        return errors, sum(error * error for error in errors) / len(errors)

    errors, before = loss(weights)
    slopes = [2 * sum(e * row[i] for e, row in zip(errors, inputs)) / len(inputs) for i in range(8)]
    stepped = [w - 0.05 * slope for w, slope in zip(weights, slopes)]
    after = loss(through_gpu(stepped) if gpus else stepped)[1]
    return {"framework": "plain Python", "loss_before": before, "loss_after": after}


def through_gpu(values: list[float]) -> list[float]:
    """Copied to the first GPU and back, with the driver alone."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: Any) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} of the driver fails with error {code}")

    call("cuInit", 0)
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    sent = (ctypes.c_double * len(values))(*values)
    back = (ctypes.c_double * len(values))()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(ctypes.sizeof(sent)))
    call("cuMemcpyHtoD_v2", memory, sent, ctypes.c_size_t(ctypes.sizeof(sent)))
    call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(ctypes.sizeof(sent)))
    call("cuMemFree_v2", memory)
    return list(back)


def main(verb: str, *arguments: str) -> None:
    if verb == "serve":
        serve()
    acts: dict[str, Callable[..., Report]] = {
        "look": look,
        "write": write,
        "train": lambda gpus: train(int(gpus)),
        "measure": lambda peer, streams, seconds: measure(peer, int(streams), float(seconds)),
    }
    try:
        report = acts[verb](*arguments)
    except OSError as error:
        report = {"problem": str(error)}
    with open(MESSAGE, "w") as file:
        json.dump(report, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
