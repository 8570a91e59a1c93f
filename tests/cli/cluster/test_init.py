"""`longboat cluster init` and `check`, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longboat.cli.main import enter


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host gpu-1 gpu-2\nHost cpu-1\nHost *\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert enter(["cluster", *words]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_hosts_and_patterns_of_the_ssh_config(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed(capsys, "init", "cpu-1", "root@gpu-*", "--name", "lab")
    out, _ = typed(capsys, "check", "-o", "json")
    spec = json.loads(out)
    assert [(host["name"], host["user"], host["role"]) for host in spec["hosts"]] == [
        ("cpu-1", None, "control-plane"), ("gpu-1", "root", "worker"), ("gpu-2", "root", "worker"),
    ]  # fmt: skip
    _, error = typed(capsys, "init", "x", code=201)
    assert "cluster.yaml exists already" in error and "--force" in error
    typed(capsys, "init", "x", "--force")
    assert "- x\n" in (folder / "cluster.yaml").read_text()


def test_mistakes_of_the_pools_file_are_told_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "name: lab\nhosts: [cpu-1]\naddons: [autoscaler]\nimage: r.example.org/l:1\npools: pools.yaml\n"
    (folder / "cluster.yaml").write_text(text)
    (folder / "pools.yaml").write_text("pols: {}\n")
    _, error = typed(capsys, "check", code=201)
    assert "pools.yaml:1:1: pols: unknown field" in error
    pools = "pools:\n- {name: a, provider: kwok, machine: {cpus: 1, memory: 1Gi}, max: 1}\n"
    (folder / "pools.yaml").write_text(f"{pools}providers: {{kwok: {{kind: kwok}}}}\n")
    assert "add-ons:    autoscaler" in typed(capsys, "check")[0]


def test_what_is_not_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "which hosts?" in typed(capsys, "init", code=201)[1]
    assert "one of them" in typed(capsys, "init", "x", "--local", code=201)[1]
    assert "hosts.1: found the text" in typed(capsys, "init", "x", "a;b", code=201)[1]
    _, error = typed(capsys, "init", "x", "-o", "/proc/no/cluster.yaml", code=205)
    assert "cannot write /proc/no/cluster.yaml" in error and "hint: -o names another file" in error
    assert "no host in ~/.ssh/config matches tpu-*" in typed(capsys, "init", "tpu-*", code=202)[1]
    assert not (folder / "cluster.yaml").exists()
    out, _ = typed(capsys, "init", "--local", "-o", "-")
    assert "kind: local" in out and not (folder / "cluster.yaml").exists()


def test_which_cluster(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from longboat.clusters.cluster_file import cluster_of_hosts
    from longboat.clusters.spec_store import forget_spec, save_spec
    from longboat.engines.shared.home import Home

    assert "longboat cluster init writes one" in typed(capsys, "check", code=202)[1]
    assert "this machine" in typed(capsys, "check", "--local")[0]
    assert "cluster:    x" in typed(capsys, "check", "--hosts", "a, b", "--name", "x")[0]
    assert "one of them" in typed(capsys, "check", "--hosts", "a", "--local", code=201)[1]
    assert "without a file" in typed(capsys, "check", "--name", "x", code=201)[1]
    assert "clusters made from here: none" in typed(capsys, "check", "lab", code=202)[1]
    save_spec(cluster_of_hosts(["a"], name="lab"), Home())
    assert "cluster:    lab" in typed(capsys, "check", "lab")[0]
    forget_spec("lab", Home())
    forget_spec("lab", Home())
    typed(capsys, "check", "lab", code=202)
    assert "did you mean longboat cluster check?" in typed(capsys, "chek", code=201)[1]


def test_questions_on_a_terminal(folder: Path) -> None:
    """A terminal of its own: the answers are typed one after the other."""
    import os
    import pty
    import subprocess
    import sys

    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "longboat", "cluster", "init"], stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    os.write(leader, b"lab\ny\ncpu-1 gpu-*\nn\n")
    shown = b""
    try:
        while chunk := os.read(leader, 4096):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    assert process.wait() == 0, shown
    os.close(leader)
    assert b"in ~/.ssh/config: gpu-1, gpu-2, cpu-1" in shown
    text = (folder / "cluster.yaml").read_text()
    assert "name: lab\n" in text and "- cpu-1\n- gpu-1\n- gpu-2\n" in text
    assert "network: flannel" in text and "addons: [controller, gpu]" in text
