"""What `--fix` may touch: files of one's own, and hosts of this very cluster that nobody works on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.clusters.hosts.connection import CommandResult
from longboat.clusters.hosts.pool import Answers
from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.plan.journal_shell import JOURNAL
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.doctor import fixes
from longboat.doctor.facts import CLIENT, Seen
from longboat.doctor.observe.hosts import fix_host, repairs, reports_of
from longboat.doctor.values import ClientFacts, HostReport

MINE, OTHER = "aaaaaaaa", "bbbbbbbb"
SPEC = ClusterSpec(name="lab", hosts=(HostSpec(name="a", address="a"), HostSpec(name="b", address="b")))
IDLE = (("kubelet", "inactive"),)


@pytest.mark.parametrize(("mode", "wanted"), [(0o600, 0o600), (0o640, 0o640), (0o644, 0o640), (0o666, 0o660)])
def test_only_the_bits_of_others_are_taken(tmp_path: Path, mode: int, wanted: int) -> None:
    file = tmp_path / "config"
    file.touch()
    file.chmod(mode)
    seen = Seen({CLIENT: ClientFacts(context="lab", namespace="n", server="s", files=((str(file), mode),))})
    text = fixes.FIXES["kubeconfig mode"](None, seen)  # type: ignore[arg-type]
    assert file.stat().st_mode & 0o777 == wanted and bool(text) == (mode != wanted)


def test_files_of_the_whole_machine_and_of_others_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.touch()
    file.chmod(0o644)
    changed: list[Any] = []
    monkeypatch.setattr(os, "chmod", lambda *asked: changed.append(asked))
    files = (("/etc/hostname", 0o644), (str(file), 0o644))
    seen = Seen({CLIENT: ClientFacts(context="lab", namespace="n", server="s", files=files)})
    monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
    assert fixes.FIXES["kubeconfig mode"](None, seen) == "" and not changed  # type: ignore[arg-type]
    monkeypatch.setattr(os, "getuid", lambda: 0)
    fixes.FIXES["kubeconfig mode"](None, seen)  # type: ignore[arg-type]
    assert "/etc/hostname" not in [path for path, _ in changed]


def test_hosts_of_another_cluster_of_the_same_name_are_left_alone() -> None:
    facts, looks = Answers[HostFacts](), Answers[str]()
    for name, identity in (("a", MINE), ("b", OTHER)):
        facts.values[name] = HostFacts(name=name, journal_cluster="lab", journal_id=identity, units=IDLE)
    ours, other = reports_of(SPEC, facts, looks, msgspec.structs.replace(SPEC, id=MINE))
    assert ours.is_member and repairs(ours) == ["systemctl start kubelet"]
    assert not other.is_member and repairs(other) == []
    assert "cluster" in [problem.check for problem in other.problems]


class ShellHost:
    """This machine with its journal in a folder, and a systemctl that says whether the lock was held."""

    name, sudo, sudo_message = "a", "root", ""

    def __init__(self, folder: Path) -> None:
        self.journal, self.calls = folder / "journal", folder / "calls"
        self.journal.mkdir()
        self.systemctl = (
            f'systemctl() {{ flock -n "{self.journal}/lock" true && held=free || held=locked\n'
            f'echo "$held $*" >> "{self.calls}"; }}\n'
        )

    def run(self, script: str, **_: Any) -> CommandResult:
        text = self.systemctl + script.replace(JOURNAL, str(self.journal)).replace("flock -w 120", "flock -w 0")
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True)
        return CommandResult(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def close(self) -> None: ...


def test_nothing_is_started_while_another_command_has_the_host(tmp_path: Path) -> None:
    host = ShellHost(tmp_path)
    report = HostReport(
        name="a", facts=HostFacts(name="a", journal_cluster="lab", units=IDLE), is_member=True, look_error=""
    )
    assert fix_host(host, report) == ""  # `down` has been here meanwhile
    (host.journal / "cluster").write_text("lab\n")
    with (host.journal / "lock").open("w") as file:
        holder = subprocess.Popen(["flock", "-x", str(file.fileno())], pass_fds=[file.fileno()])
        assert holder.wait() == 0
        assert fix_host(host, report) == "" and not host.calls.exists()
    assert fix_host(host, report) == "a: systemctl start kubelet"
    assert host.calls.read_text() == "locked start kubelet\n"
