"""The command that starts a node's container, and the one that enters it. Pure.

A container here is packaging, not a fence: it has the image's files, and the network, processes and shared memory of
this machine. So nodes of a gang reach each other on 127.x as without containers, data loaders have all of /dev/shm,
and the supervisor sees, signals and ends the ranks as it does everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.engines.local.containers.program import RUN_LABEL, UID_LABEL

LAUNCHER = "/longboat/launcher.pyz"


class Mount(Value, frozen=True):
    source: str
    target: str
    read_only: bool = False


class ContainerSpec(Value, frozen=True):
    """A node's container."""

    program: str  # podman or docker
    path: str
    image: str
    name: str
    run: str
    uid: str
    user: str  # uid:gid inside; outside it is always the user who runs Longboat
    mounts: tuple[Mount, ...]
    marks: Mapping[str, str]  # variables by which processes of the run are found; nothing secret
    devices: tuple[str, ...] = ()  # GPUs, by CDI
    has_ipc: bool = True  # the whole IPC namespace of this machine; else /dev/shm is among the mounts
    limits: tuple[str, ...] = ()  # ulimits


def start_command(spec: ContainerSpec, plan: str) -> list[str]:
    """`podman run` (docker's is the same) of the launcher; stdin tells it the secrets, and when we are gone."""
    command = [spec.path, "run", "--rm", "--interactive", "--pull=never", f"--name={spec.name}"]
    command += [f"--label={RUN_LABEL}={spec.run}", f"--label={UID_LABEL}={spec.uid}"]
    command += ["--network=host", "--pid=host", "--userns=host", f"--user={spec.user}", "--workdir=/"]
    command += ["--ipc=host"] if spec.has_ipc else []
    # The files of the user are not relabelled for SELinux; what is printed is in the run's own logs; no limit of
    # processes but the machine's; an image's own health check has no meaning for a training.
    command += ["--security-opt=label=disable", "--log-driver=none", "--pids-limit=-1", "--no-healthcheck"]
    command += [f"--ulimit={limit}" for limit in spec.limits]
    command += [f"--mount={mount_option(mount)}" for mount in spec.mounts]
    command += [f"--env={name}={value}" for name, value in spec.marks.items()]
    command += [f"--device={device}" for device in spec.devices]
    return [*command, "--entrypoint=python3", spec.image, "-I", "-S", LAUNCHER, "--container", plan]


def mount_option(mount: Mount) -> str:
    for path in (mount.source, mount.target):
        if "," in path or '"' in path:
            raise EngineError(f"{path}: a container cannot have a path with a comma or a quote", hint="rename it")
    return f"type=bind,source={mount.source},target={mount.target}" + (",readonly" if mount.read_only else "")


def exec_command(
    path: str, container: str, *, workdir: str, variables: Iterable[str], command: Sequence[str], is_terminal: bool
) -> list[str]:
    """Values of the variables come from the environment of the program itself: no list of processes shows them."""
    start = [path, "exec", "--interactive", *(["--tty"] if is_terminal else []), f"--workdir={workdir}"]
    return [*start, *(f"--env={name}" for name in variables), container, *command]


def container_name(run: str, uid: str, attempt: int, node: str) -> str:
    return f"{run}-{uid}-{attempt}-{node}"


def own_limits(limits: Mapping[str, int], most_processes: int) -> tuple[str, ...]:
    """Ours, and no more: a runtime without CAP_SYS_RESOURCE can start nothing with the higher ones podman would set.

    `limits` are hard ones, -1 for none. podman lowers its own number of processes to what the kernel has pids for.
    """
    files, processes = limits["nofile"], limits["nproc"]
    processes = most_processes if processes < 0 else min(processes, most_processes)
    return (f"nofile={files}:{files}", f"nproc={processes}:{processes}")
