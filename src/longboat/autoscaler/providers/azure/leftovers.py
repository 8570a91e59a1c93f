"""Disks and network interfaces of deleted machines of a scale set: asked after until they are gone.

Azure deletes both with the machine. That is not taken on trust: a machine stays listed while anything of it is there. A
disk that outlives its machine makes it one that failed, so that it is deleted again, and then the disk is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from longboat.autoscaler.providers.azure.scale_sets import SetMachine
from longboat.autoscaler.providers.provider import Instance
from longboat.clouds.azure.session import DISKS, NETWORK, AzureSession
from longboat.clouds.rest import RestFault
from longboat.core.jobs import Value

PATIENCE_S = 300.0
"""So long a disk may outlive its machine; some minutes are usual."""


class _Leaving(Value, frozen=True):
    machine: SetMachine
    since: float  # that it is not listed any more


class DeletedMachines:
    """Raises RestFault where Azure cannot be asked."""

    def __init__(self, session: AzureSession) -> None:
        self._session = session
        self._leaving: dict[str, dict[str, _Leaving]] = {}

    def expect(self, scale_set: str, machines: Iterable[SetMachine]) -> None:
        """These are being deleted."""
        mine = self._leaving.setdefault(scale_set.lower(), {})
        mine |= {machine.number: _Leaving(machine=machine, since=0.0) for machine in machines}

    def look(self, scale_set: str, pool: str, present: set[str]) -> Iterator[Instance]:
        """Machines that are deleted and of which something is left."""
        mine = self._leaving.get(scale_set.lower(), {})
        gone = [each for each in mine.values() if each.machine.provider_id not in present]
        interfaces = self._interfaces(scale_set) if gone else set()
        for each in gone:
            machine = each.machine
            parts = ["its network interface"] if machine.path.lower() in interfaces else []
            if machine.disk and self._has_disk(machine.disk):
                parts.append(f"its disk {machine.disk.rpartition('/')[2]}")
            if not parts:
                del mine[machine.number]
                continue
            if not each.since:
                mine[machine.number] = each = _Leaving(machine=machine, since=time.monotonic())
            is_late = time.monotonic() - each.since >= PATIENCE_S
            yield Instance(
                id=machine.provider_id,
                pool=pool,
                state="failed" if is_late else "stopping",
                zone=machine.zone,
                node=machine.node,
                message=f"it is deleted, and {' and '.join(parts)} still there",
            )

    def delete(self, scale_set: str, numbers: Sequence[str]) -> None:
        """Disks that their machines have left behind."""
        mine = self._leaving.get(scale_set.lower(), {})
        for number in numbers:
            each = mine.get(number)
            if each is not None and each.since and each.machine.disk:
                try:
                    self._session.send("DELETE", each.machine.disk, DISKS)
                except RestFault as fault:
                    if fault.status != 404:
                        raise

    def _has_disk(self, path: str) -> bool:
        try:
            self._session.send("GET", path, DISKS)
        except RestFault as fault:
            if fault.status == 404:
                return False
            raise
        return True

    def _interfaces(self, scale_set: str) -> set[str]:
        """Machines that have one."""
        # Told under Microsoft.Compute, by the version of Microsoft.Network.
        bodies = self._session.items(f"{scale_set}/networkInterfaces", NETWORK)
        owners = ((body.get("properties") or {}).get("virtualMachine") or {} for body in bodies)
        return {str(owner.get("id", "")).lower() for owner in owners}
