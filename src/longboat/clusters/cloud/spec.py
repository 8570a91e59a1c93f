"""What a cluster file of a cloud asks for, as values: region, network, pools of machines, storage, tags."""

from __future__ import annotations

from longboat.core.jobs import Value
from longboat.fitting.model.nodes import Taint

DEFAULT_VERSION = "1.35"
"""Of Kubernetes; the cloud's own list is asked before anything is made."""
NEW_GROUP = "new"
"""As `placement_group`: one of the pool's own is made."""


class CloudNetwork(Value, frozen=True):
    """The network of the machines: a new one, or subnets that exist."""

    cidr: str = "10.0.0.0/16"
    """Of a new network."""
    nodes: str = "private"
    """Of a new network. `private`: nodes have no public address and reach the internet through a NAT gateway."""
    zones: tuple[str, ...] = ()
    """Of a new network; none: chosen by what the cloud offers."""
    vpc: str | None = None
    """Of an existing network."""
    subnets: tuple[tuple[str, str], ...] = ()
    """Of an existing network of AWS: zone to subnet."""
    name: str | None = None
    """Of an existing network of Google Cloud."""
    subnet: str | None = None
    """Of an existing network of Azure (its id) or Google Cloud (its name)."""
    access: tuple[str, ...] = ("0.0.0.0/0",)
    """Networks from which the API server is reached."""

    @property
    def is_new(self) -> bool:
        return self.vpc is None


class CloudPool(Value, frozen=True):
    """Machines of one type that grow and shrink together."""

    name: str
    type: str
    count: int = 1
    """As many as it starts with. A pool with a range keeps the number that it has."""
    min: int = 1
    max: int = 1
    gpus: int = 0
    """Of each machine, offered to pods; 0 also where they are left unused."""
    architecture: str = "x86_64"
    spot: bool = False
    zones: tuple[str, ...] = ()
    """None: all zones of the network."""
    disk_gib: int = 100
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    placement_group: str | None = None
    """`new`, or the name of a group that exists."""
    reservation: str | None = None
    """A capacity reservation that the machines are taken from."""
    flex_start: bool = False
    """All machines of an order at once, when there is room; for a week at most. Google's."""


class CloudStorage(Value, frozen=True):
    """A file system that all nodes can mount."""

    efs: str = "new"
    """`new`, or the id of a file system that exists."""

    @property
    def is_new(self) -> bool:
        return self.efs == "new"


class CloudSpec(Value, frozen=True):
    """The part of a cluster that is a cloud's."""

    region: str
    pools: tuple[CloudPool, ...]
    version: str = DEFAULT_VERSION
    network: CloudNetwork = CloudNetwork()
    storage: CloudStorage | None = None
    tags: tuple[tuple[str, str], ...] = ()
    autoscaler: bool = False
    """Whether Longboat's autoscaler is installed, and gets the rights that it needs."""
    machines: str | None = None
    """A file with machine types and prices besides those that ship."""
    account: str = ""
    """Account, subscription or project that it was made in; empty: in none yet, or by an older version."""
