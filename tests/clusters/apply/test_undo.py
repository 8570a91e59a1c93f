"""The audit after `down`: which differences of a host are ours, and which are other people's. What of volumes stays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from longboat.clusters.apply.undo import clear_volumes, is_ours, judge
from longboat.clusters.hosts.connection import CommandResult, Line

PODS = "10.244.0.0/16"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("package kubelet 1.36.4-1.1 installed", True),
        ("package containerd.io 2.4.2 installed", True),
        ("file /etc/cni/net.d/10-longboat.conflist 0a1b", True),
        ("folder /etc/cni", True),
        ("unit longboat-routes.service enabled", True),
        ("chain iptables-nft KUBE-FIREWALL", True),
        ("interface cni0", True),
        ("interface flannel.1", True),
        ("route 10.244.3.0/24 via 10.0.0.3 dev eth0", True),
        ("route 10.200.3.0/24 via 10.0.0.3 dev eth0", False),
        ("route default via 10.0.0.1 dev eth0", False),
        ("package vim 9.1 installed", False),
        ("file /etc/communication.conf 0a1b", False),
        ("mount /mnt/data ext4", False),
        ("interface docker0", False),
        ("file /root/longboat-experiments", False),
    ],
)
def test_whose_it_is(text: str, expected: bool) -> None:
    assert is_ours(text, PODS) is expected


def test_differences_are_told_with_their_sign() -> None:
    report = judge("w-0", ["+\tpackage\tkubelet 1.36.4 installed", "-\tfile\t/etc/hosts 0a", "", "noise"], PODS)
    assert (report.ours, report.others) == (("+ package kubelet 1.36.4 installed",), ("- file /etc/hosts 0a",))


class ShellHost:
    """This machine, as whoever runs the tests."""

    name = "w-0"

    def run(
        self, script: str, *, stdin: bytes | Path = b"", as_root: bool = True, timeout_s: float = 60.0,
        on_line: Line | None = None,
    ) -> CommandResult:  # fmt: skip
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=timeout_s, check=False)
        return CommandResult(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def close(self) -> None: ...


VOLUME = "pvc-0f8fad5b-d9cb-469f-a165-70867728950e"


def test_volumes_of_users_are_kept_and_told(tmp_path: Path) -> None:
    folder = tmp_path / "my volumes"
    assert not clear_volumes(ShellHost(), str(folder), purges=False)  # there was never one
    (folder / VOLUME).mkdir(parents=True)
    (folder / VOLUME / "model.pt").write_text("x")
    assert clear_volumes(ShellHost(), str(folder), purges=False)
    assert (folder / VOLUME / "model.pt").exists()


def test_an_empty_folder_of_volumes_goes(tmp_path: Path) -> None:
    (tmp_path / "volumes").mkdir()
    assert not clear_volumes(ShellHost(), str(tmp_path / "volumes"), purges=False)
    assert not (tmp_path / "volumes").exists()


def test_a_purge_takes_volumes_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "my volumes"
    (folder / VOLUME / "deep").mkdir(parents=True)
    (folder / "pvc-notes").mkdir()
    assert not clear_volumes(ShellHost(), str(folder), purges=True)
    assert [path.name for path in folder.iterdir()] == ["pvc-notes"]
