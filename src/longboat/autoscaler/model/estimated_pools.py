"""Pools whose machine is an estimate of a cloud's description, corrected by what their nodes show. Pure.

Devices are the cloud's to tell: a node that lacks some is broken or boots, and says nothing about new machines.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from longboat.autoscaler.model.snapshot import POOL_LABEL, Pool, SeenNode
from longboat.fitting.model.nodes import HOSTNAME, ZONE
from longboat.fitting.model.quantities import is_scarce

_OWN_LABELS = ("hostname", "zone", "zone-id", "region-zone")
"""Ends of labels that tell one node from another of its pool."""


def corrected(pool: Pool, nodes: Sequence[SeenNode]) -> Pool:
    """The pool with the least that its nodes offer of each resource, and with labels that all of them carry."""
    if not pool.is_estimated:
        return pool
    devices = {name: count for name, count in pool.machine.allocatable if is_scarce(name)}
    shapes = [
        node.shape
        for node in nodes
        if node.is_ready
        and node.shape.labels.get(POOL_LABEL) == pool.name
        and all(node.shape.has(name) >= count for name, count in devices.items())
    ]
    if not shapes:
        return pool
    names = {name for name, _ in shapes[0].allocatable} if shapes else set()
    has = {name: min(shape.has(name) for shape in shapes) for name in names} | devices
    labels = dict(pool.machine.labels)
    for key, value in shapes[0].labels.items():
        own = key in (HOSTNAME, ZONE) or key.rpartition("/")[2] in _OWN_LABELS
        if not own and all(shape.labels.get(key) == value for shape in shapes):
            labels.setdefault(key, value)
    machine = msgspec.structs.replace(
        pool.machine, allocatable=tuple(sorted((name, count) for name, count in has.items() if count)), labels=labels
    )
    return msgspec.structs.replace(pool, machine=machine)
