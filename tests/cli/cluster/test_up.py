"""What `cluster up` refuses before it touches a host: changes of a file that would reset a machine that stays."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from longboat.cli.cluster.down import with_left_behind
from longboat.cli.cluster.session import ClusterSession, alone
from longboat.cli.cluster.up import check_machines, leaving_hosts, lost_problems
from longboat.clusters.hosts.pool import Hosts
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.core.errors import EngineError, Refused
from longboat.engines.shared.home import Home
from tests.clusters.worlds import bare, cluster


def without(spec: ClusterSpec, *names: str) -> ClusterSpec:
    return msgspec.structs.replace(spec, hosts=tuple(host for host in spec.hosts if host.name not in names))


def test_a_host_that_is_not_in_the_file_any_more_leaves() -> None:
    before = cluster()
    assert [host.name for host in leaving_hosts(before, without(before, "w-1"))] == ["w-1"]
    assert leaving_hosts(None, before) == [] and leaving_hosts(before, before) == []


def test_another_first_control_plane_is_refused() -> None:
    """A host on top of a file without roles would become a second cluster's."""
    before = cluster()
    on_top = HostSpec(name="new", address="new", role="control-plane")
    after = msgspec.structs.replace(before, hosts=(on_top, *before.hosts[1:]))
    with pytest.raises(Refused, match="the first control plane of lab is cp-0, and the file now has new"):
        leaving_hosts(before, after)


def test_a_change_of_role_is_refused() -> None:
    before = cluster()
    hosts = [msgspec.structs.replace(host, role="control-plane") for host in before.hosts]
    with pytest.raises(Refused, match="w-0, w-1: a role cannot change"):
        leaving_hosts(before, msgspec.structs.replace(before, hosts=tuple(hosts)))


def test_a_machine_with_a_new_name_is_not_reset(tmp_path: Path) -> None:
    facts = {"gpu-3": bare("gpu-3", machine_id="m"), "node-3": bare("node-3", machine_id="m")}
    hosts: Hosts = None  # type: ignore[assignment]
    session = ClusterSession(cluster(), hosts, facts, {}, Home(tmp_path))
    with pytest.raises(Refused, match="gpu-3 and node-3 are the same machine"):
        check_machines(session, [HostSpec(name="gpu-3", address="gpu-3")])
    check_machines(session, [])


def test_down_takes_hosts_along_that_left_the_file_and_not_the_cluster() -> None:
    before = cluster()
    assert with_left_behind(without(before, "w-1"), before).hosts == before.hosts
    assert with_left_behind(before, None) is before


def test_down_of_other_hosts_takes_no_cluster_of_the_same_name_along() -> None:
    """`--hosts` without `--name` calls every cluster the same."""
    before = cluster()
    other = msgspec.structs.replace(before, hosts=(HostSpec(name="other", address="other", role="control-plane"),))
    with pytest.raises(Refused, match="the cluster lab that was made from here has other hosts: cp-0, w-0, w-1"):
        with_left_behind(other, before)


def test_a_second_command_that_changes_the_cluster_waits_for_nothing_and_changes_nothing(tmp_path: Path) -> None:
    """Of two that begin a cluster each gave it an id, and the one that was kept here was not that of the hosts."""
    home = Home(tmp_path)
    with alone(cluster(), home):
        with pytest.raises(EngineError, match="another longboat cluster command works on lab"), alone(cluster(), home):
            raise AssertionError
        with alone(msgspec.structs.replace(cluster(), name="other"), home):
            pass
    with alone(cluster(), home):
        pass


def test_who_takes_a_lost_host_out_of_the_file_is_told_how_to_go_on(tmp_path: Path) -> None:
    hosts: Hosts = None  # type: ignore[assignment]
    lost = {"w-8": EngineError("w-8: no answer"), "w-0": EngineError("w-0: no answer")}
    session = ClusterSession(cluster(), hosts, {}, lost, Home(tmp_path))
    leaving = [HostSpec(name=name, address=name) for name in ("w-8", "w-9")]
    (problem,) = lost_problems(session, leaving)
    assert (problem.host, problem.severity) == ("w-8", "warning") and "--forget w-8" in problem.remedy
