"""All checks of the doctor, by what is examined. docs/doctor.md lists the same ones; a test compares them."""

from __future__ import annotations

from longboat.doctor.checks import api, client, gpus, hosts, machine, network, nodes, pods, storage, workloads
from longboat.doctor.findings import Check

POD_CHECKS: tuple[Check, ...] = (
    *(check for check in storage.CHECKS if check.name == "claim"),
    *(check for check in gpus.CHECKS if check.name in ("gpu devices", "gpu toolkit", "gpu driver")),
    *pods.CHECKS,
)
"""Those that need pods of the doctor's own."""
MACHINE_CHECKS: tuple[Check, ...] = machine.CHECKS
HOST_CHECKS: tuple[Check, ...] = hosts.CHECKS
CLUSTER_CHECKS: tuple[Check, ...] = (
    *client.CHECKS,
    *api.CHECKS,
    *nodes.CHECKS,
    *network.CHECKS,
    *storage.CHECKS,
    *gpus.CHECKS,
    *workloads.CHECKS,
    *pods.CHECKS,
)
"""From the client to a training, in this order."""
UNREACHED = ("kubeconfig", "kubeconfig mode", "credentials", "api")
"""What is left to say of a cluster that does not answer."""
