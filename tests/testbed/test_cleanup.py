"""What killed runs leave is removed; what is in use is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import cleanup, clusters, processes, profiles
from testbed.clusters import Cluster
from testbed.processes import Launch
from testbed.up import up
from tests.testbed.cleaning import cleaned

ROOT = Path(__file__).resolve().parents[2]
API = profiles.combine(["api"])


def new(name: str, *, ready: bool = True) -> Cluster:
    folder = clusters.folder_of(name)
    folder.mkdir(parents=True)
    cluster = clusters.save(Cluster(name, clusters.new_id(), folder, ("api",), ready=ready))
    sleep_marked(cluster.id, folder)
    return cluster


def sleep_marked(identity: str, folder: Path) -> processes.Process:
    environment = {"PATH": os.environ["PATH"], **processes.marks(identity, folder)}
    return processes.start(Launch("sleep", ["sleep", "600"], environment, folder / "log"))


def test_clean_leaves_clusters_in_use_alone(state: Path) -> None:
    by_hand, leased = new("by-hand"), new("leased")
    (leased.folder / "lease").touch()
    lease = clusters.hold_lease(leased.folder)
    assert lease is not None
    assert cleaned() == []
    assert len(processes.marked(by_hand.id)) == len(processes.marked(leased.id)) == 1
    os.close(lease)
    assert cleaned() == ["cluster leased"]
    assert clusters.folders() == [by_hand.folder]
    assert processes.marked(leased.id) == []
    assert len(processes.marked(by_hand.id)) == 1


def test_half_started_clusters_go(state: Path) -> None:
    half, broken = new("half", ready=False), new("broken")
    (broken.folder / "cluster.json").write_text("{")
    assert cleaned() == ["cluster broken", "cluster half"]
    assert processes.marked(half.id) == processes.marked(broken.id) == []


def test_a_cluster_of_which_nothing_runs_goes(state: Path) -> None:
    cluster = new("dead")
    processes.record(cluster.processes, sleep_marked(cluster.id, cluster.folder))
    assert cleaned() == []
    processes.kill_marked(cluster.id)
    assert cleaned() == ["cluster dead"]


def test_a_start_under_way_is_not_taken_for_a_leftover(state: Path) -> None:
    half = new("half", ready=False)
    code = "from testbed import cleanup; print(cleanup.clean())"
    with clusters.folder_lock("half"):
        other = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)
        assert other.poll() is None, "it waits for the start to end"
        assert processes.marked(half.id)
        clusters.save(Cluster("half", half.id, half.folder, ("api",), ready=True))
    assert other.communicate(timeout=60)[0] == "[]\n"
    assert processes.marked(half.id)


def test_processes_without_a_folder_go(state: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    left = sleep_marked(clusters.new_id(), gone)
    identity = next(one.cluster_id for one in processes.marked() if one.pid == left.pid)
    try:
        assert identity not in cleanup.orphans(), "its folder is there: perhaps a start under way elsewhere"
        (gone / "log").unlink()
        gone.rmdir()
        assert f"processes and groups of {identity}" in cleanup.clean()
        assert not processes.is_alive(left)
    finally:
        processes.kill_marked(identity)


def test_down_without_a_record_ends_what_is_marked_with_the_folder(state: Path) -> None:
    cluster = new("one")
    (cluster.folder / "cluster.json").unlink()
    assert cleanup.down("one")
    assert processes.marked(cluster.id) == []
    assert not cluster.folder.exists()


def test_left_behind_tells_what_is_new_and_not_anothers(state: Path) -> None:
    before = cleanup.inventory()
    mine, other = new("mine"), new("other")
    told = cleanup.left_behind(before, cleanup.inventory(), mine)
    assert any(mine.id in line for line in told)
    assert not any(other.id in line for line in told)
    cleanup.down("mine")
    cleanup.down("other")
    assert cleanup.left_behind(before, cleanup.inventory(), mine) == []


@pytest.mark.cluster
@pytest.mark.usefixtures("needs_cluster")
@pytest.mark.parametrize("moment", ["etcd", "controller-manager"])
def test_kill_in_the_middle_of_a_start(state: Path, moment: str) -> None:
    """The starter is killed when this component has just started: nothing it left is in the way of the next start."""
    code = "from testbed import profiles, up; up.up('one', profiles.combine(['api']))"
    starter = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True)
    try:
        wanted = clusters.folder_of("one") / "processes" / f"{moment}.json"
        assert processes.wait_until(wanted.exists, 60, every_s=0.005)
    finally:
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()
    half = clusters.load("one")
    assert half and not half.ready and processes.marked(half.id)
    second = up("one", API)
    assert second.ready and processes.marked(half.id) == []
    assert cleaned() == []
    cleanup.down("one")
    assert processes.marked(second.id) == []


@pytest.mark.pods
@pytest.mark.usefixtures("needs_pods")
def test_a_cluster_in_another_root_is_no_orphan(state: Path) -> None:
    """Its folder exists, but only where its processes look."""
    identity = "0badcafe"
    folder = "/mnt/of-another-root/one"
    environment = {**os.environ, **processes.marks(identity, Path(folder))}
    script = f"mount -t tmpfs tmpfs /mnt && mkdir -p {folder} && echo there && exec sleep 600"
    command = ["unshare", "--mount", "sh", "-c", script]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None and running.stdout.readline() == "there\n"
            assert not Path(folder).exists()
            assert identity not in cleanup.orphans()
        finally:
            running.kill()
