"""A stand-in for NVIDIA's driver, for nodes and hosts without a GPU: libraries, nvidia-smi, device files. Not NVIDIA's.

What is written in C is in `standin`, compiled when first asked for and kept in the cache. The device files are the one
source of truth: whoever sees /dev/nvidia0 and /dev/nvidia3 has these two GPUs, in a container too. They have numbers
that no driver has, also where there is a real one. NVIDIA's own device plugin and toolkit work over it (`node`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from testbed import binaries
from testbed.errors import Missing, TestbedError

SOURCES = Path(__file__).parent / "standin"
MODEL = "NVIDIA H200"
MEMORY_MIB = 143771
VERSION = "580.95.05"
CUDA = 13000
MOST_GPUS = 64
MAJOR = 120
"""Of the numbers for local and experimental use: neither a driver's nor handed out by the kernel."""
CONTROL_FILES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
FIRST_BUS = 0x41
VENDOR, DEVICE, CLASS = 0x10DE, 0x2335, 0x030200
ERRORS = "run/nvidia-standin/xid"
HOST_FOLDER = "usr/local/lib/nvidia-standin"
# Bound over what the kernel shows; a device on the machine's own bus is a link that leads to the same place from there.
HOST_SCRIPT = f"""#!/bin/sh
set -e
here=/{HOST_FOLDER}
room=/run/nvidia-standin
mkdir -p "$room/pci"
cp -a /sys/bus/pci/devices/. "$here/pci/." "$room/pci/"
mount --bind "$room/pci" /sys/bus/pci/devices
# Devices for which no driver was there at first: it may have been installed since.
if [ ! -e "$here/devices" ] && [ -e /usr/bin/nvidia-smi ]; then here=$here/dormant; fi
[ -e "$here/devices" ] || exit 0
while read -r name minor; do mknod -m 666 "/dev/$name" c {MAJOR} "$minor"; done < "$here/devices"
mount --bind "$here/proc" /proc/driver
# Of /sys a host has a few folders only, and what lies between them is its own.
mkdir -p /sys/module && cp -r "$here/module" /sys/module/nvidia
ldconfig
"""
HOST_UNIT = f"""[Unit]
Description=Stand-in for the NVIDIA driver
DefaultDependencies=no
After=testbed.service systemd-tmpfiles-setup.service
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /{HOST_FOLDER}/boot
"""


def library_folder() -> str:
    """Where Debian has libraries of this machine's kind."""
    return f"usr/lib/{os.uname().machine}-linux-gnu"


def uuid(machine: int, gpu: int) -> str:
    """As the library makes it of the device file's number."""
    return f"GPU-{machine:08x}-0000-4000-8000-{gpu:012x}"


def bus_address(gpu: int) -> str:
    return f"0000:{FIRST_BUS + gpu:02x}:00.0"


def device_minors(count: int, machine: int) -> dict[str, int]:
    """Device files by name. `machine` is a number of its own for every node or host of a cluster, from 1 on."""
    if not 1 <= count <= MOST_GPUS or not 1 <= machine < 1 << 12:
        raise TestbedError(
            f"a machine has 1 to {MOST_GPUS} GPUs and a number from 1 to 4095, not {count} and {machine}"
        )
    controls = {name: 0xFF - position for position, name in enumerate(CONTROL_FILES)}
    return {name: machine << 8 | low for name, low in {**controls, **gpu_files(count)}.items()}


def gpu_files(count: int) -> dict[str, int]:
    return {f"nvidia{number}": number for number in range(count)}


def missing() -> str | None:
    """What this machine lacks to compile it, unless that is done."""
    if compiled_folder().exists() or shutil.which("gcc"):
        return None
    return "the stand-in for NVIDIA's driver must be compiled: install gcc and libc6-dev"


def commands() -> dict[str, list[str]]:
    """Files of the driver, below its root, and how each is compiled."""
    settings = [f'-DMODEL="{MODEL}"', f"-DMEMORY_MIB={MEMORY_MIB}", f'-DDRIVER="{VERSION}"', f"-DCUDA={CUDA}"]
    compiler = ["gcc", "-std=gnu11", "-O1", "-s", "-Wall", "-Werror", "-fvisibility=hidden", *settings]
    compilations = {}
    for library, source in (("libnvidia-ml", "nvml.c"), ("libcuda", "cuda.c")):
        linked = ["-shared", "-fPIC", f"-Wl,-soname,{library}.so.1"]
        compilations[f"{library_folder()}/{library}.so.{VERSION}"] = [*compiler, *linked, str(SOURCES / source)]
    beside = f"-Wl,-rpath,$ORIGIN/../{library_folder().removeprefix('usr/')}"
    compilations["usr/bin/nvidia-smi"] = [*compiler, beside, str(SOURCES / "nvidia-smi.c")]
    return compilations


def compiled_folder() -> Path:
    parts = [word for path, command in commands().items() for word in (path, *command[:-1])]
    texts = [source.read_text() for source in sorted(SOURCES.glob("*.c"))]
    key = hashlib.sha256("\0".join([*parts, *texts]).encode()).hexdigest()[:16]
    return binaries.cache_folder() / "drivers" / key


def compiled() -> Path:
    """The driver's root with libraries and nvidia-smi, no device files; compiled first if it is not in the cache."""
    wanted = compiled_folder()
    if wanted.exists():
        return wanted
    lacks = missing()
    if lacks:
        raise Missing(lacks)
    wanted.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=wanted.parent))
    try:
        for path, command in commands().items():
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            done = subprocess.run(
                [*command, "-o", str(scratch / path), "-ldl"], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise TestbedError(f"the stand-in for NVIDIA's driver does not compile:\n{done.stderr[-2000:]}")
        for file in (scratch / library_folder()).glob(f"*.so.{VERSION}"):
            file.with_name(file.name.replace(VERSION, "1")).symlink_to(file.name)
        scratch.chmod(0o755)
        with contextlib.suppress(FileExistsError, OSError):  # somebody else was quicker, with the same result
            scratch.rename(wanted)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return wanted


def make_root(folder: Path, count: int, machine: int) -> None:
    """The driver's root for a node: with device files, which need root."""
    shutil.copytree(compiled(), folder, symlinks=True)
    (folder / "dev").mkdir()
    (folder / ERRORS).parent.mkdir(parents=True)
    for name, minor in device_minors(count, machine).items():
        os.mknod(folder / "dev" / name, stat.S_IFCHR, os.makedev(MAJOR, minor))
        (folder / "dev" / name).chmod(0o666)


@contextlib.contextmanager
def error_lock(root: Path) -> Iterator[None]:
    with open((root / ERRORS).with_name("lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def add_error(root: Path, gpu: int, xid: int) -> None:
    """A GPU fails. It stays so, for whoever listens, until `repair`."""
    with open(root / ERRORS, "a") as file:
        file.write(f"{gpu} {xid}\n")


def repair(root: Path) -> None:
    (root / ERRORS).unlink(missing_ok=True)


def write_host_files(folder: Path, count: int, machine: int, *, has_driver: bool = True) -> None:
    """What a host gets into its root file system; at every start a unit shows it where a kernel would."""
    here = folder / HOST_FOLDER
    units = folder / "etc/systemd/system"
    texts = {here / "boot": HOST_SCRIPT, units / "nvidia-standin.service": HOST_UNIT}
    texts[units / "sysinit.target.d/nvidia-standin.conf"] = "[Unit]\nWants=nvidia-standin.service\n"
    for gpu in range(count):
        write_bus_files(here / "pci" / bus_address(gpu), has_driver)
    if has_driver:
        shutil.copytree(compiled(), folder, symlinks=True, dirs_exist_ok=True)
    # Without a driver: what a kernel shows once one is installed (`packages`) and the host was restarted.
    shown = here if has_driver else here / "dormant"
    lines = [f"{name} {minor}\n" for name, minor in device_minors(count, machine).items()]
    texts |= {shown / "devices": "".join(lines), shown / "module/version": f"{VERSION}\n"}
    texts |= {shown / "proc/nvidia" / path: text for path, text in proc_files(count, machine).items()}
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def proc_files(count: int, machine: int) -> dict[str, str]:
    """Below /proc/driver/nvidia."""
    texts = {"version": f"NVRM version: NVIDIA UNIX Kernel Module  {VERSION}  (stand-in of the testbed)\n"}
    for gpu in range(count):
        lines = {"Model": MODEL, "GPU UUID": uuid(machine, gpu), "Bus Location": bus_address(gpu), "Device Minor": gpu}
        text = "".join(f"{name + ':':<17}{value}\n" for name, value in lines.items())
        texts[f"gpus/{bus_address(gpu)}/information"] = text
    return texts


def write_bus_files(folder: Path, has_driver: bool) -> None:
    """One GPU below /sys/bus/pci/devices, as far as programs look there."""
    folder.mkdir(parents=True)
    numbers = {"vendor": VENDOR, "subsystem_vendor": VENDOR, "device": DEVICE, "subsystem_device": DEVICE}
    for name, number in numbers.items():
        (folder / name).write_text(f"0x{number:04x}\n")
    (folder / "class").write_text(f"0x{CLASS:06x}\n")
    (folder / "revision").write_text("0xa1\n")
    (folder / "numa_node").write_text("-1\n")
    (folder / "irq").write_text("0\n")
    (folder / "resource").write_text("0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 7)
    slot = f"PCI_CLASS={CLASS:05X}\nPCI_ID={VENDOR:04X}:{DEVICE:04X}\nPCI_SLOT_NAME={folder.name}\n"
    (folder / "uevent").write_text(("DRIVER=nvidia\n" if has_driver else "") + slot)
    head = struct.pack("<HHHHI", VENDOR, DEVICE, 0, 0, CLASS << 8 | 0xA1)
    (folder / "config").write_bytes(head.ljust(44, b"\0") + struct.pack("<HH", VENDOR, DEVICE) + bytes(16))
    if has_driver:
        (folder / "driver").symlink_to("../../../../bus/pci/drivers/nvidia")
