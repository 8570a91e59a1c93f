"""Checks of one host's NVIDIA GPUs: device, driver, nouveau, Secure Boot, fabric manager. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from longboat.clusters.observe.facts import HostFacts, HostProblem
from longboat.clusters.spec import ClusterSpec, HostSpec

Problems = Iterator[HostProblem]


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
    severity = "error" if host.gpu == "yes" or "gpu" in spec.addons else "warning"
    if not facts.driver:
        yield from _no_driver(facts, severity)
    elif facts.nvswitch and facts.unit("nvidia-fabricmanager") != "active":
        yield HostProblem(
            host=facts.name,
            check="fabric",
            severity=severity,
            message="the GPUs are connected by NVSwitch, and the fabric manager does not run: CUDA will not start",
            remedy=f"install nvidia-fabricmanager of version {facts.driver} and start it",
        )


def _no_driver(facts: HostFacts, severity: str) -> Problems:
    count = len(facts.gpus)
    held = "; nouveau holds them" if "nouveau" in facts.modules else ""
    blacklist = "keep nouveau from being loaded (/etc/modprobe.d: blacklist nouveau), " if held else ""
    yield HostProblem(
        host=facts.name,
        check="driver",
        severity=severity,
        message=f"{count} NVIDIA device{'s' if count != 1 else ''} without a driver{held}",
        remedy=f"{blacklist}install the driver (nvidia-open, or your distribution's) and restart the host",
    )
    if facts.secure_boot:
        yield HostProblem(
            host=facts.name,
            check="secure-boot",
            severity="warning",
            message="Secure Boot is on: the kernel takes only a driver that is signed with a key it knows",
            remedy="enrol a key of your own (mokutil --import), or take the distribution's signed driver",
        )


CHECKS = (gpu,)
