"""Clusters come up, once, several at a time, and after whatever happened to the one before. Real control planes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from testbed import api, binaries, cleanup, clusters, processes, profiles
from testbed.errors import TestbedError
from testbed.up import up

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("needs_cluster")]
API = profiles.combine(["api"])


def read_version(cluster: clusters.Cluster) -> str:
    with_api = api.Api(cluster)
    try:
        return str(with_api.call("GET", "/version")["gitVersion"])
    finally:
        with_api.close()


def test_up_twice_is_one_cluster_and_down_twice_is_none(state: Path) -> None:
    before = cleanup.inventory()
    first = up("one", API)
    assert read_version(first) == f"v{binaries.KUBERNETES_VERSION}"
    pids = {process.pid for process in processes.recorded(first.processes).values()}
    assert up("one", API) == first
    assert {process.pid for process in processes.recorded(first.processes).values()} == pids
    assert cleanup.down("one")
    assert not cleanup.down("one")
    assert cleanup.left_behind(before, cleanup.inventory(), first) == []
    assert not state.exists()


def test_two_clusters_do_not_know_each_other(state: Path) -> None:
    first, second = up("one", API), up("two", API)
    assert not set(first.ports.values()) & set(second.ports.values())
    for cluster, name in ((first, "only-in-one"), (second, "only-in-two")):
        with_api = api.Api(cluster)
        with_api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        names = {item["metadata"]["name"] for item in with_api.items("/api/v1/namespaces")}
        with_api.close()
        assert {one for one in names if one.startswith("only-in")} == {name}
    cleanup.down("one")
    assert read_version(second)


def test_a_cluster_whose_part_died_is_started_anew(state: Path) -> None:
    first = up("one", API)
    os.kill(processes.recorded(first.processes)["etcd"].pid, signal.SIGKILL)
    assert processes.wait_until(lambda: bool(processes.ended(processes.recorded(first.processes).values())), 10)
    second = up("one", API)
    assert second.id != first.id
    assert read_version(second)
    assert processes.marked(first.id) == []


def test_more_than_it_was_started_with_is_refused(state: Path) -> None:
    up("one", API)
    with pytest.raises(TestbedError, match="take it down first"):
        up("one", profiles.with_empty_fleet(API))


def test_a_component_that_ends_at_once_is_told_with_its_log(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed import controlplane

    monkeypatch.setattr(controlplane, "apiserver_arguments", lambda _: ["--no-such-flag"])
    with pytest.raises(TestbedError, match="unknown flag: --no-such-flag"):
        up("one", API)
    assert not clusters.folder_of("one").exists()
