"""Checks of one host's NVIDIA GPUs: device, driver, nouveau, Secure Boot, fabric manager, container toolkit. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from longboat.clusters.observe.facts import HostFacts, HostProblem
from longboat.clusters.spec import ClusterSpec, HostSpec

Problems = Iterator[HostProblem]
OLDEST_TOOLKIT = (1, 18)
"""From this one on its packages describe the GPUs anew (CDI) at every boot and after every change of the driver."""


def wants_gpus(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> bool:
    """Whether `up` sets up the host's GPUs: it has some, and the file asks for them."""
    is_wanted = host.gpu == "yes" or (host.gpu == "auto" and "gpu" in spec.addons)
    return is_wanted and bool(facts.gpus or facts.driver)


def is_made(spec: ClusterSpec) -> bool:
    """Whether `up` installs drivers and toolkit on GPU hosts."""
    return spec.driver != "keep" and spec.source.kind == "packages"


def is_version_since(text: str, oldest: tuple[int, int]) -> bool:
    parts = text.split(".")
    return len(parts) > 1 and all(part.isdecimal() for part in parts[:2]) and (int(parts[0]), int(parts[1])) >= oldest


def gpu(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Problems:
    if host.gpu == "no":
        return
    if not facts.gpus and not facts.driver:
        if host.gpu == "yes":
            yield HostProblem(
                host=facts.name,
                check="gpu",
                message="`gpu: yes`, but there is no NVIDIA device on the PCI bus",
                remedy="`gpu: auto` takes what is there; of a virtual machine, pass the device through",
            )
        return
    # Without the add-on nobody asked for GPUs; they are there and would lie idle.
    severity = "warning"
    if wants_gpus(spec, host, facts):
        severity = "repair" if is_made(spec) else "error"
    if not facts.driver:
        yield from _no_driver(spec, facts, severity)
    elif facts.nvswitch and facts.unit("nvidia-fabricmanager") != "active":
        install = "up installs nvidia-fabricmanager" if severity == "repair" else "install nvidia-fabricmanager"
        yield HostProblem(
            host=facts.name,
            check="fabric",
            severity=severity,
            message="the GPUs are connected by NVSwitch, and the fabric manager does not run: CUDA will not start",
            remedy=f"{install} of version {facts.driver} and start{'s' if severity == 'repair' else ''} it",
        )
    if wants_gpus(spec, host, facts):
        yield from _toolkit(spec, facts)


def _no_driver(spec: ClusterSpec, facts: HostFacts, severity: str) -> Problems:
    count = len(facts.gpus)
    held = "; nouveau holds them" if "nouveau" in facts.modules else ""
    blacklist = "keep nouveau from being loaded (/etc/modprobe.d: blacklist nouveau), " if held else ""
    remedy = f"{blacklist}install the driver (nvidia-open, or your distribution's) and restart the host"
    if severity == "repair":
        source = "NVIDIA" if spec.driver == "nvidia" else "the distribution"
        remedy = f"up installs the driver of {source} and restarts the host if it must; down removes it"
    yield HostProblem(
        host=facts.name,
        check="driver",
        severity=severity,
        message=f"{count} NVIDIA device{'s' if count != 1 else ''} without a driver{held}",
        remedy=remedy,
    )
    if severity == "repair" and spec.driver == "distribution" and facts.package_manager != "apt":
        yield HostProblem(
            host=facts.name,
            check="driver",
            message="`driver: distribution`, but only Debian and Ubuntu have NVIDIA's driver in their archives",
            remedy="`driver: nvidia` takes it from NVIDIA's repository",
        )
    if facts.secure_boot:
        yield HostProblem(
            host=facts.name,
            check="secure-boot",
            severity="warning",
            message="Secure Boot is on: the kernel takes only a driver that is signed with a key it knows",
            remedy="enrol a key of your own (mokutil --import), or take the distribution's signed driver",
        )


def _toolkit(spec: ClusterSpec, facts: HostFacts) -> Problems:
    has = facts.program("nvidia-ctk")
    if has and not is_version_since(has, OLDEST_TOOLKIT):
        oldest = ".".join(map(str, OLDEST_TOOLKIT))
        yield HostProblem(
            host=facts.name,
            check="toolkit",
            message=f"nvidia-container-toolkit {has} is too old ({oldest} will do); it is not ours to replace",
            remedy="upgrade it, or remove it",
        )
    elif not has and spec.source.kind != "packages":
        yield HostProblem(
            host=facts.name,
            check="toolkit",
            message="nvidia-container-toolkit is missing, and `source` brings programs of Kubernetes only",
            remedy=f"install nvidia-container-toolkit-base {spec.versions.toolkit} on the host",
        )


CHECKS = (gpu,)
