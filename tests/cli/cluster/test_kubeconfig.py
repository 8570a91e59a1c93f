"""`longboat cluster kubeconfig`, as it is typed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from longboat.cli.main import enter
from tests.clusters.test_kubeconfig_file import ADMIN, entries


def test_in_and_out(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(file))
    (tmp_path / "admin.conf").write_text(ADMIN)
    put = ["cluster", "kubeconfig", "lab", "--from", str(tmp_path / "admin.conf")]
    assert enter(put) == 0
    assert f"{file} has the context lab" in capsys.readouterr().err
    assert enter(put) == 0
    assert "is there already" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(ADMIN))
    assert enter(["cluster", "kubeconfig", "lab2", "--from", "-", "--use"]) == 0
    assert entries(file.read_text(), "contexts") == ["lab", "lab2"] and "current-context: lab2" in file.read_text()
    for name in ("lab", "lab2", "lab2"):
        assert enter(["cluster", "kubeconfig", name, "--remove"]) == 0
    assert entries(file.read_text(), "contexts") == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["Lab", "--remove"], 201, "is not the name of a cluster"),
        (["lab", "--from", "none"], 202, "none: No such file"),
        (["lab", "--from", "x", "--remove"], 201, "--remove stands alone"),
        (["lab", "--hosts", "a"], 201, "a file, --hosts and --local: one of them"),
        (["--name", "lab", "--remove"], 201, "--name is for a cluster without a file"),
        (["--hosts", "root@127.0.0.1:1"], 205, "nothing answers at 127.0.0.1:1"),
        (["lab", "--from", "text"], 201, "the cluster's kubeconfig: not a kubeconfig"),
        (["lab"], 202, "lab: no such file, and no cluster of this name"),
        ([], 202, "cluster.yaml: no such file"),
    ],
)
def test_mistakes(
    words: list[str],
    code: int,
    message: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("no mapping")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert enter(["cluster", "kubeconfig", *words]) == code
    assert message in capsys.readouterr().err


def test_from_this_machine(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read by the real transport, from another path than a real control plane has it."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("longboat.clusters.admin_kubeconfig.ADMIN", str(tmp_path / "admin.conf"))
    (tmp_path / "cluster.yaml").write_text("{name: desk, kind: local}")
    assert enter(["cluster", "kubeconfig"]) == 205
    error = capsys.readouterr().err
    assert "desk is no control plane yet" in error and "longboat cluster up" in error
    (tmp_path / "admin.conf").write_text(ADMIN)
    assert enter(["cluster", "kubeconfig"]) == 0
    assert entries((tmp_path / "config").read_text(), "contexts") == ["desk"]
    assert enter(["cluster", "kubeconfig", "--print"]) == 0
    printed = capsys.readouterr().out
    assert "server: https://10.0.0.5:6443" in printed and "client-key-data: aw==" in printed
    assert enter(["cluster", "kubeconfig", "--local", "--name", "here"]) == 0, "as every command takes it"
    assert entries((tmp_path / "config").read_text(), "contexts") == ["desk", "here"]
    assert enter(["cluster", "kubeconfig", "--local", "--name", "here", "--remove"]) == 0
    (tmp_path / "admin.conf").write_text(ADMIN.replace("client-key-data: aw==", "exec: {command: id}"))
    assert enter(["cluster", "kubeconfig"]) == 205
    assert "is not what kubeadm writes" in capsys.readouterr().err
    assert enter(["cluster", "kubeconfig", "cluster.yaml", "--remove"]) == 0
    assert entries((tmp_path / "config").read_text(), "contexts") == []
    (tmp_path / "cluster.yaml").write_text("{name: prod, kind: existing}")
    assert enter(["cluster", "kubeconfig"]) == 201
    assert "its context is in your kubeconfig" in capsys.readouterr().err
