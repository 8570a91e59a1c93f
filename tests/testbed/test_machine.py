"""Where a cluster that shares the machine's network keeps its hands off, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import machine
from testbed.clusters import Cluster
from testbed.errors import Missing, TestbedError

PORTS = {name: 20000 + number for number, name in enumerate(machine.PORTS)}
CLUSTER = Cluster("machine", "0a1b2c3d", Path("/x"), ("machine",), ports=PORTS)


def test_the_machines_network_is_left_as_it_is() -> None:
    kubelet = machine.kubelet_configuration(CLUSTER, "172.17.0.1")
    assert kubelet["makeIPTablesUtilChains"] is False
    assert (kubelet["address"], kubelet["port"], kubelet["healthzPort"]) == (
        "172.17.0.1", PORTS["kubelet"], PORTS["kubelet-health"],
    )  # fmt: skip
    assert kubelet["cgroupRoot"] == "/longboat-0a1b2c3d/node-0"
    assert len(set(PORTS.values())) == len(machine.PORTS)


def test_images_are_unpacked_the_way_they_are_used() -> None:
    assert machine.unpacking("overlayfs") == ""
    assert 'snapshotter = "native"' in machine.unpacking("native")


def test_half_an_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="not unpacked whole: .*kubernetes is missing"):
        machine.programs_in(tmp_path)


def test_what_the_machine_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "geteuid", lambda: 0)  # type: ignore[attr-defined]
    monkeypatch.setattr(machine, "COMMANDS", ("sh", "no-such-command"))
    with pytest.raises(Missing, match="lacks the commands no-such-command"):
        machine.check()
    monkeypatch.setattr(machine.os, "geteuid", lambda: 1000)  # type: ignore[attr-defined]
    with pytest.raises(Missing, match="needs root"):
        machine.check()
