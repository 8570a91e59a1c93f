"""What probe pods report, as values."""

from __future__ import annotations

from longboat.core.jobs import Value


class Interface(Value, frozen=True):
    name: str
    mtu: int = 0
    is_up: bool = True
    speed: int = 0
    """Mbit/s; 0: not told, as of interfaces that are not real."""


class PodReport(Value, frozen=True):
    """What a pod sees of its surroundings; texts of errors are empty where all is well."""

    python: str = ""
    interfaces: tuple[Interface, ...] = ()
    infiniband: tuple[str, ...] = ()
    dns_error: str = ""
    dns_s: float = 0.0
    service_error: str = ""
    peer_error: str = ""
    peer_s: float = 0.0
    mtu: int = 0
    """Bytes of the largest packet that reached the other pod unbroken."""
    mtu_wanted: int = 0
    shm: int = 0
    memlock: int = -1
    """Bytes that may be locked; -1: no limit."""
    files: int = 0
    clock: float = 0.0
    bits_per_s: float = 0.0
    streams: int = 0


class PodOutcome(Value, frozen=True):
    """One probe pod: where it ran and what it said, or why it did not."""

    node: str = ""
    problem: str = ""
    kind: str = ""
    """Of the problem: admission, scheduling, image, start, end."""
    started_s: float = 0.0
    log_error: str = ""
    """Why its log could not be read; empty: it could, or was not tried."""
    log_is_forbidden: bool = False
    report: PodReport | None = None
    asked: float = 0.0
    """Our clock, by the server's, when its report was there."""


class NetworkProbe(Value, frozen=True):
    """Two pods, on two nodes where there are two."""

    server: PodOutcome
    client: PodOutcome
    image: str
    interface_wanted: str = ""
    """NCCL_SOCKET_IFNAME of the settings."""

    @property
    def is_between_nodes(self) -> bool:
        return bool(self.server.node and self.client.node and self.server.node != self.client.node)


class StorageProbe(Value, frozen=True):
    title: str = ""
    problem: str = ""
    hint: str | None = None
    skipped: str = ""
    took_s: float = 0.0


class TrainProbe(Value, frozen=True):
    """A pod that trains for one step, with a GPU where there are any."""

    gpus: int = 0
    """That it asked for."""
    node: str = ""
    problem: str = ""
    kind: str = ""
    devices: int = 0
    has_driver: bool = False
    module: str = ""
    library: str = ""
    smi_error: str = ""
    framework: str = ""
    loss_before: float = 0.0
    loss_after: float = 0.0
    error: str = ""
    """Why the step failed."""
    took_s: float = 0.0
    bits_per_s: float = 0.0
    """Of an all-reduce over the GPUs of the pod; 0: not measured."""
