"""The audit after `down`: what the journal has to do with is ours, the rest other people's. What of volumes stays."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from longboat.clusters.apply import undo
from longboat.clusters.apply.undo import clear_volumes, is_ours, judge, read_touched
from longboat.clusters.hosts.connection import CommandResult, Line
from longboat.clusters.plan.journal_shell import PRELUDE, put

PODS = "10.244.0.0/16"
TOUCHED = read_touched(
    [
        "entry sysctl-net.ipv4.ip_forward", "entry swap", "package kubelet", "package containerd.io",
        "path /usr/bin/kubelet", "path /usr/lib/systemd/system/kubelet.service", "path /etc/cni/net.d/10-x.conflist",
        "path /etc/my config", "tree /etc/cni", "tree /var/lib/containerd",
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("package kubelet 1.36.4-1.1 installed", True),
        ("hold kubelet", True),
        ("package kubelet-exporter 1.0 installed", False),  # a name like ours, and not ours
        ("package vim 9.1 installed", False),
        ("file /etc/cni/net.d/99-other.conf 0a1b", True),  # in a folder that we made
        ("file /etc/containerd/config.toml 0a1b", False),  # the journal knows nothing of it
        ("file /etc/my config 0a1b", True),
        ("file /etc/longboat.conf 0a1b", True),
        ("folder /etc/cni", True),
        ("folder /var/lib/containerd", True),
        ("folder /var/lib/containerd-other", False),
        ("program /usr/bin/kubelet", True),
        ("program /usr/bin/kubelet-tool", False),
        ("unit longboat-routes.service enabled", True),
        ("unit kubelet.service enabled", True),
        ("unit kubelet-watch.service enabled", False),
        (
            "link /etc/systemd/system/multi-user.target.wants/kubelet.service /usr/lib/systemd/system/kubelet.service",
            True,
        ),
        ("sysctl net.ipv4.ip_forward 1", True),
        ("sysctl net.bridge.bridge-nf-call-iptables 1", False),
        ("swap /dev/sdb", True),
        ("chain iptables-nft KUBE-FIREWALL", True),
        ("interface cni0", True),
        ("interface flannel.1", True),
        ("interface docker0", False),
        ("mount /var/lib/containerd/x overlay", True),
        ("mount /mnt/data ext4", False),
        ("route 10.244.3.0/24 via 10.0.0.3 dev eth0", True),
        ("route 10.200.3.0/24 via 10.0.0.3 dev eth0", False),
        ("route default via 10.0.0.1 dev eth0", False),
        ("file /etc/communication.conf 0a1b", False),
        ("file /root/longboat-experiments", False),
    ],
)
def test_whose_it_is(text: str, expected: bool) -> None:
    assert is_ours(text, PODS, TOUCHED) is expected


def test_differences_are_told_with_their_sign() -> None:
    lines = ["+\tpackage\tkubelet 1.36.4 installed", "-\tfile\t/etc/hosts 0a", "", "noise", "=\tpackage kubelet"]
    report = judge("w-0", lines, PODS)
    assert (report.ours, report.others) == (("+ package kubelet 1.36.4 installed",), ("- file /etc/hosts 0a",))


def test_what_the_journal_spoke_of_is_known_after_it_was_undone(tmp_path: Path) -> None:
    """Also when the way back was cut off in between."""
    journal, target = tmp_path / "journal", tmp_path / "etc" / "new" / "x.conf"
    (journal / "undo").mkdir(parents=True)
    folder = journal / "undo" / "0000-packages"
    folder.mkdir()
    (folder / "packages").write_text("coreutils\n")
    (folder / "run").write_text("exit 1\n")

    def run(script: str) -> int:
        text = (PRELUDE + "systemctl() { :; }\n" + script).replace("/var/lib/longboat", str(journal))
        return subprocess.run(["sh", "-c", text], capture_output=True, check=False).returncode

    assert run(put(str(target), "content")) == 0
    assert run(undo._UNDO) == 1 and not target.exists()
    (folder / "run").write_text("true\n")
    assert run(undo._UNDO) == 0 and not list((journal / "undo").iterdir())
    touched = read_touched((journal / "touched").read_text().splitlines())
    assert str(target) in touched.paths and touched.packages == {"coreutils"} and "/usr/bin/cat" in touched.paths
    assert touched.trees == (str(target.parent.parent), str(target.parent)) and "packages" in touched.entries


class ShellHost:
    """This machine, as whoever runs the tests."""

    name = "w-0"

    def run(
        self, script: str, *, stdin: Any = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        done = subprocess.run(["sh", "-c", script], input=stdin, capture_output=True, timeout=timeout_s, check=False)
        return CommandResult(code=done.returncode, stdout=done.stdout.decode(), stderr=done.stderr.decode())

    def close(self) -> None: ...


VOLUME = "pvc-0f8fad5b-d9cb-469f-a165-70867728950e"


def test_volumes_of_users_are_kept_and_told(tmp_path: Path) -> None:
    folder = tmp_path / "my volumes"
    assert clear_volumes(ShellHost(), str(folder), ()) == ()  # there was never one
    (folder / VOLUME).mkdir(parents=True)
    (folder / VOLUME / "model.pt").write_text("x")
    assert clear_volumes(ShellHost(), str(folder), ()) == (VOLUME,)
    assert (folder / VOLUME / "model.pt").exists()


def test_an_empty_folder_of_volumes_goes(tmp_path: Path) -> None:
    (tmp_path / "volumes").mkdir()
    assert clear_volumes(ShellHost(), str(tmp_path / "volumes"), ()) == ()
    assert not (tmp_path / "volumes").exists()


def test_a_purge_takes_the_volumes_of_its_cluster_and_nothing_else(tmp_path: Path) -> None:
    """Neither those of an earlier cluster, nor what only is in the list."""
    folder, earlier = tmp_path / "my volumes", VOLUME.replace("0", "1")
    (folder / VOLUME / "deep").mkdir(parents=True)
    (folder / earlier).mkdir()
    (folder / "pvc-notes").mkdir()
    (tmp_path / "other").mkdir()
    names = (VOLUME, "pvc-notes", "../other", "", "$(id)", VOLUME.replace("f", "a"))
    assert clear_volumes(ShellHost(), str(folder), names) == (earlier,)
    assert sorted(path.name for path in folder.iterdir()) == sorted([earlier, "pvc-notes"])
    assert (tmp_path / "other").is_dir()
