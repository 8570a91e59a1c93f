"""Values of what the doctor observes. How they are read is in the modules beside this one."""

from __future__ import annotations

from longboat.clusters.observe.facts import HostFacts, HostProblem
from longboat.core.jobs import Value
from longboat.engines.local.queue.gpu_isolation import IsolationProblem
from longboat.engines.local.queue.machine import LocalMachine


class ContainerProgram(Value, frozen=True):
    """What runs a job's image on this machine."""

    program: str = ""
    version: str = ""
    why_not: str = ""
    """Why there is none, which is fine."""
    error: str = ""
    """Why the one that is set does not work."""
    hint: str | None = None
    unnamed_gpus: int = 0
    """GPUs that no CDI specification names."""


class MachineFacts(Value, frozen=True):
    """This machine, as the embedded engine needs it."""

    machine: LocalMachine
    python: str
    executable: str
    home: str
    home_error: str = ""
    home_hint: str | None = None
    runs: int = 0
    trainer_python: str | None = None
    git: str | None = None
    has_loopbacks: bool = True
    has_processes: bool = True
    gpu_devices: int = 0
    isolation: str = "auto"
    isolation_problem: IsolationProblem | None = None
    containers: ContainerProgram = ContainerProgram()


class Validity(Value, frozen=True):
    """Of a certificate, in seconds since the epoch."""

    begins: float
    ends: float


class ClientFacts(Value, frozen=True):
    """The kubeconfig, without any secret of it."""

    context: str
    namespace: str
    server: str
    files: tuple[tuple[str, int], ...] = ()
    """Path and mode."""
    login: str = "none"
    """certificate, token, exec, password, service account, none."""
    certificate: Validity | None = None
    token_ends: float | None = None
    is_token_unread: bool = False
    """The file of the token could not be read."""
    plugin: str | None = None
    plugin_path: str | None = None
    """Where the program that logs in is; None: not found."""
    skips_verification: bool = False
    proxy: str = ""
    """Host of the proxy on the way to the server."""
    now: float = 0.0


class ApiAnswer(Value, frozen=True):
    """How the API server answers."""

    server: str
    context: str
    took_s: float
    """The median of a few requests."""
    skew_s: float = 0.0
    """How far its clock is ahead of ours."""
    certificate: Validity | None = None
    now: float = 0.0


class LeaseTimes(Value, frozen=True):
    """When kubelets renewed their Leases, by their own clocks."""

    now: float
    renewed: tuple[tuple[str, float], ...]
    """Node and time."""
    lasts_s: float = 40.0  # the kubelet's own default


class AdmissionWebhook(Value, frozen=True):
    """An admission webhook and who answers it."""

    name: str
    kind: str
    service: str = ""
    """namespace/name; empty: it is called by an address."""
    is_required: bool = True
    """`failurePolicy: Fail`."""
    ready: int | None = None
    """Endpoints that answer; None: not known."""


class Rollout(Value, frozen=True):
    """A DaemonSet or Deployment: how many pods it wants and has ready."""

    name: str
    namespace: str
    wanted: int
    ready: int


class AutoscalerReport(Value, frozen=True):
    """What Longboat's own autoscaler last wrote about itself."""

    age_s: float
    warnings: tuple[str, ...] = ()
    """What its last turn failed with, and what a person should look at."""


class Leftovers(Value, frozen=True):
    """What nobody needs any more."""

    helper_pods: tuple[str, ...] = ()
    """Ended helper pods and pods of the doctor."""
    claims: tuple[str, ...] = ()
    """Claims of the doctor whose command was killed."""
    orphans: tuple[str, ...] = ()
    """Jobs and pods of runs that have no record."""


class HostReport(Value, frozen=True):
    """One host of a cluster file."""

    name: str
    facts: HostFacts | None = None
    error: str = ""
    hint: str | None = None
    problems: tuple[HostProblem, ...] = ()
    is_member: bool = False
    """It is part of the cluster that the file describes."""
    look_error: str = "not looked at"
    """Why what follows is not known; empty: it was read to its end."""
    certificates: tuple[tuple[str, float], ...] = ()
    """Name and seconds since the epoch at which it ends."""
    members: tuple[str, ...] | None = None
    """Of etcd, as this control plane lists them; None: not known, or it is none."""
    xids: tuple[tuple[str, int], ...] = ()
    """PCI address and Xid of errors in the kernel's log, each pair once."""
    has_kernel_log: bool = False
    """The kernel's log could be read."""
    smi_gpus: int | None = None
    """GPUs that nvidia-smi lists; None: there is no nvidia-smi, or it fails."""
    smi_error: str = ""
    library: str = ""
    """Version of libnvidia-ml on the disk."""
    module: str = ""
    """Version of the loaded kernel module."""
    has_cdi: bool = False
    """A CDI specification, or a runtime of containerd, hands GPUs to containers."""
    synchronized: bool | None = None
    """The clock, by NTP; None: not known."""
    is_ntp_off: bool = False
    """It could be synchronized, and nobody switched that on."""
    inodes_free: float | None = None
    """Share of the inodes of /var/lib that are free; None: not known."""
    now: float = 0.0
