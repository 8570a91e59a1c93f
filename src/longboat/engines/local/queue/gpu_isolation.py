"""GPU isolation: which device files of NVIDIA GPUs a node may not open, and whether this machine can enforce it.

How they are hidden is the launcher's affair. Containers are not concerned: they have the devices that CDI gives them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.engines.local.queue.machine import Gpu
from longboat.engines.local.runfiles import LAUNCHER
from longboat.engines.local.settings import Isolation

DEV = Path("/dev")
UVM = Path("/dev/nvidia-uvm")
PROBE_S = 20.0
"""A probe takes milliseconds; a machine under load some seconds."""
MODPROBE_S = 30.0
"""Loading a module of the driver takes a second or two."""
_PREFIX = "nvidia"
_SWITCHES = {
    "kernel/apparmor_restrict_unprivileged_userns": "1",  # Ubuntu from 24.04 on
    "kernel/unprivileged_userns_clone": "0",  # Debian
    "user/max_user_namespaces": "0",  # RHEL
}
"""Settings of the kernel below /proc/sys that keep users from user namespaces, and the value that does."""


class IsolationProblem(Value, frozen=True):
    reason: str
    hint: str


def device_files(folder: Path = DEV) -> dict[int, str]:
    """The device files of GPUs, by their minor number; none of the driver itself (nvidiactl, ...)."""
    if not (folder / "nvidiactl").exists():  # the usual case: nothing to list
        return {}
    numbers = (name[len(_PREFIX) :] for name in os.listdir(folder) if name.startswith(_PREFIX))
    return {int(number): f"{folder}/{_PREFIX}{number}" for number in numbers if number.isdecimal()}


def hidden_devices(files: Mapping[int, str], own: Sequence[Gpu], of_run: Iterable[Gpu]) -> list[str]:
    """What a node with the GPUs `own` may not open. Raises EngineError where a GPU's device file is not known.

    A node without GPUs opens none. Another may open all of its run: GPUs of one run talk to each other directly
    (NCCL's P2P), for which a process opens the device of its peer, though CUDA_VISIBLE_DEVICES names only its own.
    """
    given = list(of_run) if own else []
    unknown = [gpu.id for gpu in given if gpu.minor is None]
    if unknown and files:
        raise EngineError(
            f"the device file of GPU {unknown[0]} is not known, so the others cannot be hidden",
            hint="state GPUs in LONGBOAT_GPUS by UUID or index, or `longboat config set local.gpu_isolation auto`",
        )
    minors = {gpu.minor for gpu in given}
    return [path for minor, path in sorted(files.items()) if minor not in minors]


def node_devices(isolation: Isolation, own: Sequence[Gpu], of_run: Iterable[Gpu]) -> list[str]:
    """Device files that this node's launcher hides. Raises EngineError where isolation is required and cannot be."""
    files = device_files() if isolation != "off" else {}
    if not files:
        return []
    try:
        hidden = hidden_devices(files, own, of_run)
    except EngineError:
        if isolation == "required":
            raise
        return []
    if hidden and own and os.geteuid() != 0:
        _load_uvm()
    return hidden


def _load_uvm() -> None:
    """What CUDA does when it is first used after a start of the machine; in a user namespace it could not."""
    if not UVM.exists():
        import subprocess

        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["nvidia-modprobe", "-u", "-c=0"], capture_output=True, timeout=MODPROBE_S, check=False)


def isolated(devices: Sequence[str], command: Sequence[str], *, is_required: bool) -> list[str]:
    """The command, started so that it cannot open the devices."""
    if not devices:
        return list(command)
    mode = "required" if is_required else "auto"
    return [sys.executable, "-I", "-S", LAUNCHER, "--isolated", mode, ",".join(devices), *command]


def find_problem(devices: Sequence[str]) -> IsolationProblem | None:
    """Why these devices cannot be hidden on this machine; tried out, in a process of its own."""
    import subprocess

    opened = "import sys\nfor path in sys.argv[1:]:\n try: open(path); print(path)\n except OSError: pass"
    command = isolated(devices, [sys.executable, "-I", "-S", "-c", opened, *devices], is_required=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return IsolationProblem(reason=str(error), hint="`longboat doctor` again")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return why_not(lines[-1] if lines else f"exit code {done.returncode}", is_root=os.geteuid() == 0)
    if done.stdout.strip():
        return IsolationProblem(reason=f"{done.stdout.split()[0]} can be opened all the same", hint="report this")
    return None


def why_not(said: str, *, is_root: bool, sysctls: Path = Path("/proc/sys")) -> IsolationProblem:
    """What the kernel said, and the setting of this machine that may be behind it."""
    if is_root:
        hint = "run it with CAP_SYS_ADMIN, which containers lack by default"
        return IsolationProblem(reason=f"root may not make mounts here ({said})", hint=hint)
    for name, value in _SWITCHES.items():
        with contextlib.suppress(OSError):
            if (sysctls / name).read_text().strip() == value:
                key, allowed = name.replace("/", "."), "15000" if name.startswith("user") else str(1 - int(value))
                reason = f"this machine lets users make no user namespaces ({key} is {value})"
                return IsolationProblem(reason=reason, hint=f"`sudo sysctl {key}={allowed}`, or run Longboat as root")
    reason = f"no user namespace can be made here ({said})"
    return IsolationProblem(reason=reason, hint="run Longboat as root, or outside of the container it is in")
