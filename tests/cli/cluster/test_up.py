"""What `cluster up` refuses before it touches a host: changes of a file that would reset a machine that stays."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.cli.cluster import down
from longboat.cli.cluster.down import audit_lines, finish, take_lost_out, with_left_behind
from longboat.cli.cluster.progress import ProgressTable
from longboat.cli.cluster.session import ClusterSession, alone
from longboat.cli.cluster.status import stranger_lines
from longboat.cli.cluster.up import (
    check_context,
    check_forgotten,
    check_machines,
    forget_host,
    leaving_hosts,
    lost_problems,
    print_plan,
    take_away,
)
from longboat.cli.main import enter
from longboat.clusters.apply.undo import HostAudit
from longboat.clusters.cluster_file import cluster_of_hosts
from longboat.clusters.down import DownResult
from longboat.clusters.hosts.connection import CommandResult
from longboat.clusters.hosts.pool import Connector, Hosts
from longboat.clusters.hosts.settings import LoginSettings
from longboat.clusters.plan.steps import ClusterPlan, HostPlan, Kept
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.clusters.spec_store import forget_spec, load_spec, save_spec
from longboat.core.errors import EngineError, Refused, UsageError
from longboat.engines.shared.home import Home
from tests.clusters.worlds import bare, cluster, packed


def without(spec: ClusterSpec, *names: str) -> ClusterSpec:
    return msgspec.structs.replace(spec, hosts=tuple(host for host in spec.hosts if host.name not in names))


def test_a_host_that_is_not_in_the_file_any_more_leaves() -> None:
    before = cluster()
    assert [host.name for host in leaving_hosts(before, without(before, "w-1"))] == ["w-1"]
    assert leaving_hosts(None, before) == [] and leaving_hosts(before, before) == []


def test_a_dry_run_shows_hosts_that_leave_in_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    gone, kept = [HostSpec(name="w-9", address="w-9")], Kept(host="cp-0", name="init", reason="part of the cluster")
    plan = ClusterPlan(hosts=(HostPlan(host="cp-0", kept=(kept,)),))
    print_plan(plan, gone, "text", ())
    text = capsys.readouterr().out
    assert text.startswith("w-9\n  - leaves the cluster") and "nothing to do" not in text
    print_plan(plan, gone, "json", ())
    records = json.loads(capsys.readouterr().out)
    assert [(record["host"], [step["name"] for step in record["steps"]]) for record in records] == [
        ("cp-0", []), ("w-9", ["leave"]),
    ]  # fmt: skip
    print_plan(plan, [], "text", ())
    assert capsys.readouterr().out.endswith("nothing to do\n")


def test_another_first_control_plane_is_refused() -> None:
    """A host on top of a file without roles would become a second cluster's."""
    before = cluster()
    on_top = HostSpec(name="new", address="new", role="control-plane")
    after = msgspec.structs.replace(before, hosts=(on_top, *before.hosts[1:]))
    with pytest.raises(Refused, match="the first control plane of lab is cp-0, and the file now has new"):
        leaving_hosts(before, after)


def test_another_control_plane_may_come_first_so_that_a_lost_first_one_is_replaced() -> None:
    before = cluster(planes=3, endpoint="10.0.0.9")
    fresh = HostSpec(name="cp-3", address="cp-3", role="control-plane")
    after = msgspec.structs.replace(before, hosts=(*before.hosts[1:3], fresh, *before.hosts[3:]))
    assert [host.name for host in leaving_hosts(before, after)] == ["cp-0"]
    on_top = msgspec.structs.replace(before, hosts=(fresh, *before.hosts[1:]))
    with pytest.raises(Refused, match="the first control plane of lab is cp-0, and the file now has cp-3") as caught:
        leaving_hosts(before, on_top)
    assert "any other one may come first: cp-1, cp-2" in (caught.value.hint or "")


def test_a_change_of_role_is_refused() -> None:
    before = cluster()
    hosts = [msgspec.structs.replace(host, role="control-plane") for host in before.hosts]
    with pytest.raises(Refused, match="w-0, w-1: a role cannot change"):
        leaving_hosts(before, msgspec.structs.replace(before, hosts=tuple(hosts)))


class AskedHost:
    """Writes down what is done with etcd and nodes; etcd has the three control planes."""

    def __init__(self, name: str, log: list[str], *, has_majority: bool = True) -> None:
        self.name, self.log, self.has_majority = name, log, has_majority

    def run(self, script: str, *, stdin: bytes = b"", **rest: object) -> CommandResult:
        words = script.split()
        if "/member/" in script and not self.has_majority:
            return CommandResult(code=1, stdout="", stderr="Error from server (NotFound): no leader")
        if "/member/list" in script:
            members = [{"name": f"cp-{number}", "ID": str(number)} for number in range(3)]
            return CommandResult(code=0, stdout=json.dumps({"members": members}), stderr="")
        if "/member/remove" in script:
            self.log.append(f"{self.name}: member {json.loads(stdin)['ID']}")
        elif "get nodes" in script:
            return CommandResult(code=0, stdout=packed("w-7" + "\t" * 8 + "\n"), stderr="")
        elif "delete node" in script:
            self.log.append(f"{self.name}: node {words[words.index('node') + 1]}")
        return CommandResult(code=0, stdout="", stderr="")


def asked(
    spec: ClusterSpec, lost: Sequence[str], home: Path, *, has_majority: bool = True
) -> tuple[ClusterSession, list[str]]:
    """A session in which all but the lost hosts answer, and what they are asked for."""
    log: list[str] = []
    there = [host for host in spec.hosts if host.name not in lost]
    admin = (("/etc/kubernetes/admin.conf", "x"),)
    facts = {
        host.name: bare(host.name, journal_cluster="lab", files=admin if host.role == "control-plane" else ())
        for host in there
    }
    connections: Any = {host.name: AskedHost(host.name, log, has_majority=has_majority) for host in there}
    errors = {name: EngineError(f"{name}: no answer") for name in lost}
    hosts = Hosts(connections, {}, Connector(LoginSettings()))
    return ClusterSession(spec, hosts, facts, errors, Home(home)), log


def test_a_lost_control_plane_is_forgotten_by_etcd_too_and_a_worker_is_no_affair_of_its(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the next one to join waits for it in vain, and one more that dies ends the API."""
    before = cluster(planes=3, workers=1, endpoint="10.0.0.9")
    session, log = asked(without(before, "cp-0", "w-0"), (), tmp_path)
    forget_host(session, "cp-0", [before.hosts[0], before.hosts[3]])
    assert log == ["cp-1: member 0", "cp-1: node cp-0"]
    assert "when it is back: longboat cluster down --hosts cp-0 --name lab" in capsys.readouterr().err
    forget_host(session, "w-0", [before.hosts[0], before.hosts[3]])
    assert log[2:] == ["cp-1: node w-0"]
    assert "put it into the file, up, take it out" in capsys.readouterr().err


def test_a_host_of_an_up_from_elsewhere_is_forgotten_too_and_none_that_is_nowhere(tmp_path: Path) -> None:
    """On another laptop nobody knows which hosts there were: the cluster does."""
    session, log = asked(cluster(planes=3, workers=0, endpoint="10.0.0.9"), (), tmp_path)
    lost = dataclasses.replace(session, spec=without(session.spec, "cp-0"))
    forget_host(lost, "cp-0", [])
    assert log == ["cp-1: member 0", "cp-1: node cp-0"]
    forget_host(lost, "w-7", [])
    assert log[2:] == ["cp-1: node w-7"]
    with pytest.raises(UsageError, match="--forget w-8: lab has no such node"):
        forget_host(lost, "w-8", [])
    for name, reason in (("w-0", "take the host out of the file"), ("W 9; rm", "expected the name of a node")):
        with pytest.raises(UsageError, match=reason):
            check_forgotten(cluster(), [name])


def test_down_takes_a_lost_control_plane_out_of_etcd_and_another_speaks_for_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = cluster(planes=3, workers=1, endpoint="10.0.0.9")
    session, log = asked(spec, ("cp-0", "w-0"), tmp_path)
    after = take_lost_out(session, ("cp-0", "w-0"))
    assert log == ["cp-1: member 0"]
    assert [host.name for host in after.spec.hosts] == ["cp-1", "cp-2", "cp-0", "w-0"]
    # Who is not to be forgotten may come back and leave by itself.
    session, log = asked(spec, ("cp-0",), tmp_path)
    assert take_lost_out(session, ()).spec.hosts == spec.hosts and log == []
    # Of two that are lost etcd cannot take leave; the hosts that are there are undone all the same.
    session, log = asked(spec, ("cp-0", "cp-1"), tmp_path, has_majority=False)
    assert take_lost_out(session, ("cp-0", "cp-1")).spec.control_planes[0].name == "cp-2" and log == []
    assert capsys.readouterr().err.count("warning: cp-") == 2
    # One that never joined speaks for nobody, and one whose member of etcd never started cannot do it.
    session, log = asked(cluster(planes=4, workers=1, endpoint="10.0.0.9"), ("cp-0", "w-0"), tmp_path)
    facts = {**session.facts, "cp-1": bare("cp-1", journal_cluster="lab")}
    session.hosts.connections["cp-2"] = AskedHost("cp-2", log, has_majority=False)  # type: ignore[assignment]
    after = take_lost_out(dataclasses.replace(session, facts=facts), ("cp-0", "w-0"))
    assert log == ["cp-3: member 0"] and not capsys.readouterr().err
    assert [host.name for host in after.spec.hosts] == ["cp-2", "cp-3", "cp-1", "cp-0", "w-0"]
    # The only one is lost: nobody is asked.
    session, log = asked(cluster(), ("cp-0",), tmp_path)
    assert take_lost_out(session, ("cp-0",)).spec.control_planes[0].name == "cp-0" and log == []


def test_a_node_that_the_file_does_not_have_is_named() -> None:
    """A host that was forgotten registers as soon as it is back: pods start there that nobody reaches."""
    assert stranger_lines(cluster(), ["cp-0", "w-0", "w-1"]) == []
    (line,) = stranger_lines(cluster(), ["cp-0", "w-9\x1b[2J"])
    assert line.startswith("w-9") and "is a node, and not in the file" in line and "\x1b" not in line


def test_a_name_that_the_kubeconfig_has_is_told_before_a_host_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("contexts: [{name: lab, context: {cluster: work, user: me}}]\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    session, _ = asked(cluster(), (), tmp_path)
    with pytest.raises(UsageError, match="the kubeconfig has an entry lab in contexts that Longboat did not make"):
        check_context(session)
    made = {name: msgspec.structs.replace(facts, done=(("kubernetes", "x"),)) for name, facts in session.facts.items()}
    check_context(dataclasses.replace(session, facts=made))  # a cluster that is there may well have that name


def test_who_cannot_leave_is_told_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line, *others) = audit_lines([HostAudit(host="w-0", ours=("+ file /etc/x",), others=("- user a",))])
    assert line == "w-0: left: + file /etc/x" and others == ["w-0: changed by others since `up`: - user a"]

    class Left(AskedHost):
        def run(self, script: str, **rest: Any) -> CommandResult:
            left = "+\tinterface\tflannel.1\n" if "inventory" in script else ""
            return CommandResult(code=0, stdout=left, stderr="")

    session, log = asked(cluster(), (), tmp_path)
    session.hosts.connections.update({name: Left(name, log) for name in session.facts})  # type: ignore[misc]
    with pytest.raises(EngineError, match="w-0: could not leave the cluster"):
        take_away(session, [session.spec.hosts[1]], ProgressTable(["w-0"], "text", tmp_path), grace_s=1)
    assert "w-0: left: + interface flannel.1" in capsys.readouterr().err


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


def test_a_forgotten_host_is_taken_down_apart_and_the_cluster_stays_known(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name it would be the whole cluster; a file with other hosts only is refused as ever."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    (tmp_path / "config").write_text("current-context: other\n")
    before = cluster()
    save_spec(before, Home())
    assert enter(["cluster", "down", "--hosts", "root@127.0.0.1:1", "--name", "lab", "--yes"]) == 205
    assert "nothing answers at 127.0.0.1:1" in capsys.readouterr().err
    (tmp_path / "cluster.yaml").write_text("{name: lab, hosts: [root@127.0.0.1:1]}")
    assert enter(["cluster", "down", "--yes"]) == 203
    assert "the cluster lab that was made from here has other hosts" in capsys.readouterr().err
    session, _ = asked(cluster(workers=0), (), tmp_path)
    session = dataclasses.replace(session, home=Home())
    assert finish(session, DownResult(), (), is_apart=True) == 0
    assert "nothing of lab is left on 1 host" in capsys.readouterr().err
    kept = load_spec("lab", Home())
    assert kept is not None and kept.hosts == before.hosts
    assert finish(session, DownResult(), ()) == 0 and load_spec("lab", Home()) is None


def test_what_runs_in_the_cluster_is_no_affair_of_a_forgotten_host(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its admin.conf leads to the control planes that go on: their add-ons would be removed, and volumes of users."""
    before = cluster(planes=3, workers=0, endpoint="10.0.0.9")
    save_spec(before, Home())
    session, _ = asked(cluster_of_hosts(["old"], name="lab"), (), tmp_path)
    calls: list[str] = []
    monkeypatch.setattr(down, "open_session", lambda *given, **more: contextlib.nullcontext(session))
    monkeypatch.setattr(down, "remove_from", lambda *given, **more: calls.append("add-ons") or ())
    words = ["cluster", "down", "--hosts", "old", "--name", "lab", "--yes"]
    assert enter(words) == 0 and calls == []
    assert enter([*words, "--purge-data"]) == 201 and calls == []
    assert "--purge-data: the cluster lab goes on without these hosts" in capsys.readouterr().err
    forget_spec("lab", Home())
    assert enter(words) == 0 and calls == ["add-ons"]


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
    lost = {name: EngineError(f"{name}: no answer") for name in ("w-8", "w-0", "cp-0")}
    session = ClusterSession(cluster(), hosts, {}, lost, Home(tmp_path))
    leaving = [HostSpec(name=name, address=name) for name in ("w-8", "w-9")]
    (problem,) = lost_problems(session, leaving)
    assert (problem.host, problem.severity) == ("w-8", "warning") and "--forget w-8" in problem.remedy
    # One that was part of the cluster and is in the file: it is lost too, but nobody has said so.
    save_spec(session.spec, session.home)
    problems = lost_problems(session, leaving)
    assert [problem.host for problem in problems] == ["w-8", "w-0"]
    assert "take it out of the file: --forget w-0 goes on" in problems[1].remedy
