"""Brings a cluster up: in which order its parts start, and what is waited for.

The record is written before the first process starts, so that whatever happens in between can be found and removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path

from testbed import (
    api,
    binaries,
    cleanup,
    clusters,
    controlplane,
    dns,
    images,
    kwok,
    manifests,
    namespaces,
    network,
    node,
    processes,
    settings,
)
from testbed.binaries import Binaries
from testbed.clusters import Cluster
from testbed.errors import TestbedError
from testbed.processes import Process
from testbed.profiles import Parts


def up(name: str, parts: Parts, *, lease: bool = False, quiet: bool = False) -> Cluster:
    """The cluster of this name, running and ready. One that already runs is left as it is.

    With a lease it belongs to those who hold one (`clusters.hold_lease`); once nobody does, `cleanup.clean` removes it.
    """
    if parts.real_nodes:
        namespaces.check()
    programs = binaries.find(parts.targets, quiet=quiet)
    store = images.store(parts.images, programs) if parts.real_nodes else None
    with clusters.folder_lock(name):
        running = clusters.load(name)
        if running and running.ready and is_healthy(running):
            if set(parts.profiles) <= set(running.profiles):
                return running
            raise TestbedError(f"{name!r} runs with {', '.join(running.profiles)}; take it down first, or use --name")
        cleanup.remove(clusters.folder_of(name))
        settings.raise_limit()
        try:
            cluster = start(name, parts, programs, store)
            if lease:
                (cluster.folder / "lease").touch(mode=0o600)
            return clusters.save(dataclasses.replace(cluster, ready=True))
        except BaseException:
            if not os.environ.get("LONGBOAT_TESTBED_KEEP"):
                cleanup.remove(clusters.folder_of(name))
                settings.restore_limit()
            raise


def is_healthy(cluster: Cluster) -> bool:
    recorded = processes.recorded(cluster.processes)
    return bool(recorded) and not processes.ended(recorded.values())


def start(name: str, parts: Parts, programs: Binaries, store: Path | None) -> Cluster:
    folder = clusters.folder_of(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.parent.stat().st_uid != os.geteuid():
        raise TestbedError(
            f"{folder.parent} belongs to somebody else; set LONGBOAT_TESTBED_STATE to a folder of your own"
        )
    folder.mkdir(mode=0o755)
    cluster = clusters.save(Cluster(name, clusters.new_id(), folder, parts.profiles))
    holders: list[int] = []
    if store is None:
        with clusters.machine_lock("ports"):
            ports = clusters.free_ports(controlplane.PORTS, clusters.taken_ports())
            cluster = clusters.save(dataclasses.replace(cluster, ports=ports))
    else:
        cluster = open_rooms(cluster, parts, programs, holders)
    certificates = [node.certificate_of(cluster, number) for number in range(parts.real_nodes)]
    controlplane.write_files(cluster, programs, certificates)
    if store is None:
        controlplane.start(cluster, programs)
    else:
        start_with_nodes(cluster, programs, holders, store)
    start_fleet(cluster, parts, programs, holders[0] if holders else None)
    start_controllers(cluster, parts, programs)
    return cluster


def open_rooms(cluster: Cluster, parts: Parts, programs: Binaries, holders: list[int]) -> Cluster:
    """Namespaces and cables of all real nodes; the control plane lives with the first of them."""
    for number in range(parts.real_nodes):
        holders.append(namespaces.open_room(cluster, programs, node.name_of(number)).pid)
    with clusters.machine_lock("addresses"):
        claimed = network.claim_range()
        address = f"10.{claimed}.255.2"
        ports = dict(controlplane.FIXED_PORTS)
        cluster = clusters.save(dataclasses.replace(cluster, range=claimed, address=address, ports=ports))
        network.connect(cluster, 0, holders)
    for number in range(1, parts.real_nodes):
        network.connect(cluster, number, holders)
    return cluster


def start_with_nodes(cluster: Cluster, programs: Binaries, holders: list[int], store: Path) -> None:
    """Runtimes start while the API does; kubelets when both are there."""
    runtimes: list[Process] = []

    def start_runtimes() -> None:
        for number, holder in enumerate(holders):
            runtimes.append(node.start_runtime(cluster, programs, number, holder, store))

    finish = in_background(start_runtimes)
    try:
        controlplane.start(cluster, programs, holders[0])
    finally:
        finish()
    running = list(runtimes)
    for number, holder in enumerate(holders):
        node.wait_runtime(programs, holder, runtimes[number])
        running += node.start_agents(cluster, programs, number, holder)
    wait_nodes(cluster, len(holders), running)
    if node.GPU_PROFILE in cluster.profiles:
        start_gpus(cluster, programs, holders)


def start_gpus(cluster: Cluster, programs: Binaries, holders: list[int]) -> None:
    """Device plugins, once the kubelets accept them."""
    numbers = range(len(holders))
    running = [node.start_component(cluster, programs, number, node.PLUGIN, holders[number]) for number in numbers]
    with contextlib.closing(api.Api(cluster)) as with_api:
        shown = lambda: all(node.shown_gpus(with_api, node.name_of(number)) == node.GPUS for number in numbers)  # noqa: E731
        controlplane.wait_running("the nodes show their GPUs", shown, running, node.READY_S)


def in_background(work: Callable[[], None]) -> Callable[[], None]:
    """Run it now in a thread; the returned function waits for it and raises what it raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def finish() -> None:
        thread.join()
        if errors:
            raise errors[0]

    return finish


def wait_nodes(cluster: Cluster, count: int, running: list[Process]) -> None:
    with_api = api.Api(cluster)
    try:
        dns.start(cluster, with_api)
        names = [node.name_of(number) for number in range(count)]
        everything = lambda: all(node.is_ready(with_api, name) for name in names)  # noqa: E731
        controlplane.wait_running("the nodes are ready", everything, running, node.READY_S)
        controlplane.wait_running("names are served", lambda: dns.is_ready(with_api), running, node.READY_S)
    finally:
        with_api.close()


def start_fleet(cluster: Cluster, parts: Parts, programs: Binaries, holder: int | None) -> None:
    if not parts.simulates:
        return
    running = kwok.start(cluster, programs, holder)
    with_api = api.Api(cluster)
    try:
        names = [name for group in parts.groups for name in kwok.add_nodes(with_api, group)]
        ready = lambda: kwok.ready_count(with_api) >= len(names)  # noqa: E731
        controlplane.wait_running(f"{len(names)} simulated nodes are ready", ready, [running], kwok.READY_S)
    finally:
        with_api.close()


def start_controllers(cluster: Cluster, parts: Parts, programs: Binaries) -> None:
    with_api = api.Api(cluster)
    try:
        for controller in parts.controllers:
            manifests.start(cluster, programs, with_api, controller)
            ready = functools.partial(manifests.is_ready, with_api, controller)
            api.wait_for(f"{controller.name} is ready", ready, manifests.READY_S)
    finally:
        with_api.close()
