"""Parser of what the probe printed about a host. Pure, and never an exception: a host may print anything."""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from longboat.clusters.observe.facts import Disk, GpuDevice, HostFacts, Listener
from longboat.clusters.observe.firewall_rules import firewall, forwarded, open_ports

T = TypeVar("T")
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
Lines = dict[str, list[str]]
LONGEST = 4096  # of one value
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MANAGERS = {"apt-get": "apt"}
_VERSION = re.compile(r"\bv?([0-9]+\.[0-9]+[0-9A-Za-z.+~-]*)")
_CONTAINER_LINKS = re.compile(
    r"lo$|docker|br-[0-9a-f]{6,}|veth|cni|flannel|cali|cilium|lxc|virbr|podman|kube-|longboat|tunl"
)
_IDENTITY = re.compile(r"[0-9a-f]{8,32}")
_FOLDER = re.compile(r"/[A-Za-z0-9._/-]{1,200}")
_GPU_CLASSES = ("0x0300", "0x0302")
_SWITCH_CLASS = "0x0680"
_SOFT_STATES = {"activating": "active", "reloading": "active", "deactivating": "inactive"}


def parse(name: str, text: str, *, sent_s: float = 0.0, received_s: float = 0.0) -> HostFacts:
    """Parse the probe's output. `sent_s` and `received_s`: local time before the script was sent and after it ended."""
    lines = split(text)
    last = {key: values[-1].strip() for key, values in lines.items()}
    system = dict(pair(line, "=") for line in lines["os"])
    addresses = attempt(lines["address"], read_address)
    start_s, end_s = clocks(lines["clock"])
    return HostFacts(
        name=name,
        hostname=last.get("hostname", ""),
        os_id=system.get("ID", "").lower(),
        os_like=tuple(system.get("ID_LIKE", "").lower().split()),
        os_version=system.get("VERSION_ID", ""),
        os_codename=system.get("VERSION_CODENAME", ""),
        architecture=ARCHITECTURES.get(last.get("architecture", ""), last.get("architecture", "")),
        kernel=last.get("kernel", ""),
        package_manager=next((MANAGERS.get(value, value) for value in lines["package_manager"]), ""),
        init=last.get("init", ""),
        container="" if last.get("container") == "none" else last.get("container", ""),
        cgroup_version=cgroup_version(lines["cgroup"]),
        cpus=number(last.get("cpus", "")),
        memory=number(last.get("memory", "").removeprefix("MemTotal:").removesuffix("kB")) << 10,
        disks=disks(lines["disk"]),
        swaps=tuple(line.split()[0] for line in lines["swap"] if line.strip()),
        fstab_swaps=tuple(attempt(lines["fstab"], read_fstab_swap)),
        listeners=listeners(lines),
        addresses=tuple(addresses),
        routes=routes(lines["route"]),
        source_address=source_address(lines["source"], addresses),
        has_route_out=any(line.split()[:1] == ["default"] for line in lines["route"]),
        machine_id=last.get("machine_id", ""),
        product_uuid=last.get("product_uuid", "").lower(),
        clock_s=(start_s + end_s) / 2,
        skew_s=skew(start_s, end_s, sent_s, received_s) if start_s else 0.0,
        firewall=firewall(lines, last),
        open_ports=open_ports(lines),
        forwarded=forwarded(lines),
        proxies=tuple(unique(attempt(lines["proxy"], read_proxy))),
        programs=tuple(unique(attempt(lines["program"], read_program))),
        packages=tuple(attempt(lines["package"], read_package)),
        units=units(lines["unit"]),
        sysctls=tuple((name.replace("/", "."), value) for name, value in (pair(line, " ") for line in lines["sysctl"])),
        modules=tuple(line.strip() for line in lines["module"]),
        loadable=tuple(line.strip() for line in lines["loadable"]),
        files=tuple((path.strip(), digest) for digest, path in (pair(line, " ") for line in lines["file"])),
        images=tuple(line.strip() for line in lines["image"] if not line.startswith("sha256:")),
        cri_disabled=last.get("cri_disabled") == "yes",
        containerd_root=folder(lines["containerd"], "root"),
        containerd_state=folder(lines["containerd"], "state"),
        cluster=cluster(lines),
        cluster_server=last.get("server", "").removeprefix("server:").strip(" \"'"),
        journal_cluster=last.get("journal_cluster", ""),
        journal_id=last.get("journal_id", "") if _IDENTITY.fullmatch(last.get("journal_id", "")) else "",
        journal=tuple(line.strip() for line in lines["journal"]),
        done=tuple(pair(line, " ") for line in lines["done"]),
        gpus=tuple(GpuDevice(bus=bus, device=device) for bus, device, kind in pci(lines) if kind[:6] in _GPU_CLASSES),
        nvswitch=any(kind[:6] == _SWITCH_CLASS for _, _, kind in pci(lines)),
        driver=last.get("driver", "") or driver_version(lines["program"]),
        secure_boot=last.get("secure_boot") == "1",
    )


def split(text: str) -> Lines:
    """Lines by key, without control characters: values are printed on terminals."""
    result: Lines = defaultdict(list)
    for line in text.split("\n"):
        key, tab, value = line.partition("\t")
        if tab:
            result[key].append("".join(sign if sign.isprintable() else " " for sign in value[:LONGEST]))
    return result


def attempt(lines: Iterable[str], read: Callable[[str], T | None]) -> list[T]:
    """Parse each line; invalid lines are skipped."""
    result = []
    for line in lines:
        try:
            value = read(line)
        except (ValueError, IndexError):
            continue
        if value is not None:
            result.append(value)
    return result


def unique(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return list(dict(pairs).items())


def pair(line: str, separator: str) -> tuple[str, str]:
    key, _, value = line.strip().partition(separator)
    return key, value.strip().strip("\"'")


def folder(lines: list[str], name: str) -> str:
    """Read a path from TOML lines; empty if it has characters that need quoting."""
    path = next(
        (value for key, value in (pair(line.partition("#")[0], "=") for line in lines) if key.strip() == name), ""
    )
    return path if _FOLDER.fullmatch(path) else ""


def number(text: str) -> int:
    """Parse a whole number; 0 for anything else, or for too many digits."""
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0


def clocks(lines: list[str]) -> tuple[float, float]:
    """The host's time at the beginning and the end of the script; whole seconds where `date` has no fractions."""
    times = [float(match[0]) for line in lines if (match := re.match(r"[0-9]{1,12}(\.[0-9]{1,9})?", line))]
    return (times[0], times[-1]) if times else (0.0, 0.0)


def skew(start_s: float, end_s: float, sent_s: float, received_s: float) -> float:
    """The least by which the host's clock differs: it was read at an unknown time between sending and receiving."""
    most, least = start_s - sent_s, end_s - received_s
    if most - least < 0:  # the clock was set meanwhile
        return (most + least) / 2
    return max(least, 0.0) + min(most, 0.0)


def cgroup_version(mounts: list[str]) -> int:
    kinds = {fields[2] for line in mounts if len(fields := line.split()) > 2}
    return 2 if "cgroup2" in kinds else 1 if "tmpfs" in kinds else 0


def disks(lines: list[str]) -> tuple[Disk, ...]:
    """Parse a path and its line of `df -P -k`: the last four columns are used, available, share, mount point."""
    by_mount: dict[str, Disk] = {}
    for line in lines:
        fields = line.split()
        if len(fields) >= 7:
            total, free, mount = number(fields[-5]) << 10, number(fields[-3]) << 10, fields[-1]
            by_mount.setdefault(mount, Disk(path=fields[0], total=total, free=free))
    return tuple(by_mount.values())


def read_fstab_swap(line: str) -> str | None:
    fields = line.split()
    is_swap = len(fields) > 2 and not fields[0].startswith("#") and fields[2] == "swap"
    return fields[0] if is_swap else None


def listeners(lines: Lines) -> tuple[Listener, ...]:
    seen = attempt(lines["listener"], read_ss) or attempt(lines["socket"], read_socket)
    return tuple({entry.port: entry for entry in seen}.values())


def read_ss(line: str) -> Listener | None:
    """Parse a line of `ss -ltnp`; sockets on loopback count too."""
    fields = line.split()
    if fields[0] != "LISTEN":
        return None
    program = re.search(r'\(\("([^"]*)"', line)
    return Listener(port=int(fields[3].rpartition(":")[2]), program=program[1] if program else "")


def read_socket(line: str) -> Listener | None:
    """Parse a line of /proc/net/tcp, `sl local_address rem_address st ...` in hexadecimal; state 0A is LISTEN."""
    fields = line.split()
    return Listener(port=int(fields[1].rpartition(":")[2], 16)) if fields[3] == "0A" else None


def read_address(line: str) -> str | None:
    """Parse a line of `ip -o addr`: `2: eth0    inet 10.0.0.5/24 brd ... scope global eth0`."""
    fields = line.split()
    link, family, address = fields[1].partition("@")[0], fields[2], fields[3]
    if family not in ("inet", "inet6") or _CONTAINER_LINKS.match(link) or "link" in fields[4:]:
        return None
    parsed = ipaddress.ip_interface(address)
    return None if parsed.is_loopback else str(parsed)


def routes(lines: list[str]) -> tuple[str, ...]:
    networks: list[IpNetwork] = attempt(lines, lambda line: ipaddress.ip_network(line.split()[0], strict=False))
    return tuple(dict.fromkeys(str(network) for network in networks if network.prefixlen and not network.is_link_local))


def source_address(lines: list[str], addresses: list[str]) -> str:
    match = re.search(r"\bsrc ([0-9a-fA-F.:]+)", " ".join(lines))
    by_kind = sorted(addresses, key=lambda address: ":" in address)
    return match[1] if match else next((address.partition("/")[0] for address in by_kind), "")


def read_proxy(line: str) -> tuple[str, str] | None:
    """The proxy without user name and password."""
    name, value = pair(line.removeprefix("export"), "=")
    return (name.lower(), re.sub(r"//[^/@]*@", "//", value)) if value else None


def read_program(line: str) -> tuple[str, str]:
    name, said = pair(line, " ")
    match = _VERSION.search(said)
    return name, match[1] if match else "unknown"


def driver_version(lines: list[str]) -> str:
    """The NVIDIA driver's version; from nvidia-smi where the module belongs to another kernel (WSL, containers)."""
    match = re.search(r"^nvidia-smi +([0-9]+\.[0-9.]+)", "\n".join(lines), re.MULTILINE)
    return match[1] if match else ""


def read_package(line: str) -> tuple[str, str] | None:
    name, version, state = line.split()
    return (name, version) if state == "installed" else None


def units(lines: list[str]) -> tuple[tuple[str, str], ...]:
    """Parse blocks of `systemctl show`; units that do not exist are left out."""
    result: list[tuple[str, str]] = []
    block: dict[str, str] = {}
    for line in (*lines, ""):
        if line.strip():
            key, value = pair(line, "=")
            block[key] = value
        elif block:
            if block.get("LoadState") in ("loaded", "masked"):
                state = block.get("ActiveState", "")
                result.append((block.get("Id", "").removesuffix(".service"), _SOFT_STATES.get(state, state)))
            block = {}
    return tuple(result)


def cluster(lines: Lines) -> str:
    return next(iter(lines["cluster"]), "leftovers" if lines["leftover"] else "").strip()


def pci(lines: Lines) -> list[tuple[str, str, str]]:
    return [(fields[0], fields[1], fields[2]) for line in lines["pci"] if len(fields := line.split()) == 3]
