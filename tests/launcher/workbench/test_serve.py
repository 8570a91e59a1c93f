"""The server of a workbench run: programs that are missing, ports, holding a node, being inside, ssh without sshd."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longboat.launcher.workbench import serve, ssh
from longboat.launcher.workbench.first_notebook import notebook, provide
from longboat.launcher.workbench.words import told_duration
from tests.launcher.nodes import LAUNCHER

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKeyOfATest longboat"


def bench(folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    env = {**os.environ, "LONGBOAT_NODE_DIR": str(folder), "LONGBOAT_ARTIFACTS_DIR": str(folder), **variables}
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "--workbench", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=env, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.mark.parametrize(("kind", "package"), [("board", "tensorboard"), ("lab", "jupyterlab")])
def test_a_program_that_is_missing_is_named_with_its_package(tmp_path: Path, kind: str, package: str) -> None:
    (tmp_path / "bin").mkdir()
    extra = ["--runs", str(tmp_path)] if kind == "board" else []
    _, errors = (server := bench(tmp_path, kind, *extra, PATH=str(tmp_path / "bin"))).communicate(timeout=60)
    assert server.returncode == 127
    assert f"the package is `{package}`" in errors
    assert f"--setup 'pip install {package}'" in errors


def test_a_port_that_is_taken_and_must_not_be() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert serve.free_port(port) != port
        with pytest.raises(OSError):
            serve.free_port(port, is_exact=True)


def test_a_held_node_ends_when_nobody_is_inside_any_more(tmp_path: Path) -> None:
    (tmp_path / "workbench").mkdir()
    inside = bench(tmp_path, "enter", str(tmp_path), "--", "sh", "-c", "echo in; read line; echo out")
    assert inside.stdout is not None and inside.stdout.readline() == "in\n"
    holder = bench(tmp_path, "hold", "--idle", "1")
    session = tmp_path / "workbench" / "session.json"
    while not session.exists():
        assert holder.poll() is None
        time.sleep(0.02)
    assert session.stat().st_mode & 0o077 == 0
    assert json.loads(session.read_text())["kind"] == "hold"
    with pytest.raises(subprocess.TimeoutExpired):
        holder.wait(timeout=2.5)  # longer than it may be idle
    inside.communicate("leave\n", timeout=60)
    _, errors = holder.communicate(timeout=60)
    assert holder.returncode == 0
    assert "nobody used it for 1 s" in errors
    assert not session.exists()


def test_a_stop_ends_it_and_takes_the_session_along(tmp_path: Path) -> None:
    holder = bench(tmp_path, "hold")
    session = tmp_path / "workbench" / "session.json"
    while not session.exists():
        time.sleep(0.02)
    holder.terminate()
    holder.communicate(timeout=60)
    assert holder.returncode == 143
    assert not session.exists()


def test_the_first_notebook_is_written_once_and_only_where_there_is_none(tmp_path: Path) -> None:
    assert provide(str(tmp_path)) == "first-steps.ipynb"
    written = (tmp_path / "first-steps.ipynb").read_text()
    assert json.loads(written) == notebook()
    (tmp_path / "first-steps.ipynb").write_text("mine")
    assert provide(str(tmp_path)) == "first-steps.ipynb"
    assert (tmp_path / "first-steps.ipynb").read_text() == "mine"
    (tmp_path / "own.ipynb").touch()
    assert provide(str(tmp_path)) == ""


def test_the_first_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for cell in notebook()["cells"]:  # type: ignore[attr-defined]
        if cell["cell_type"] == "code":
            exec(compile(cell["source"], cell["id"], "exec"), {})
    assert "loss" in capsys.readouterr().out


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen on this machine")
def test_sshd_gets_one_key_and_a_host_key_that_stays(tmp_path: Path) -> None:
    place = str(tmp_path / "ssh")
    config = Path(ssh.write_config(place, shutil.which("ssh-keygen") or "", KEY))
    host_key = (tmp_path / "ssh" / "host_key").read_text()
    ssh.write_config(place, shutil.which("ssh-keygen") or "", KEY)
    assert (tmp_path / "ssh" / "host_key").read_text() == host_key
    assert (tmp_path / "ssh" / "authorized_keys").read_text() == f"{KEY}\n"
    assert "AuthenticationMethods publickey\n" in config.read_text()
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "ssh").iterdir()} == {0}
    assert sorted(path.name for path in (tmp_path / "ssh").iterdir()) == ["authorized_keys", "host_key", "sshd_config"]


def test_an_image_without_sshd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ssh, "PLACES", str(tmp_path))
    assert ssh.serve_ssh(str(tmp_path), KEY.split()) == 127
    assert "the package is `openssh-server`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "words"), [(3600, "1 h"), (7200, "2 h"), (600, "10 min"), (90, "90 s"), (1.5, "1.5 s")]
)
def test_durations(seconds: float, words: str) -> None:
    assert told_duration(seconds) == words
