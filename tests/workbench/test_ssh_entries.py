"""The entry of ssh_config: what a pod says becomes no line of it, and it works from any folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from longboat.cli.commands.workbench import ssh_config
from longboat.core.errors import EngineError, NotFound, Refused
from longboat.core.runs import RunStatus
from longboat.workbench.ssh import host_block
from tests.workbench.test_sessions import OWN


@pytest.mark.parametrize("user", ["root", "_apt", "jo.van-der_3"])
def test_a_user(user: str) -> None:
    assert f"\n    User {user}\n" in host_block("shell", user, "longboat", "/k")


@pytest.mark.parametrize("user", ["", "u\n    ProxyCommand touch /tmp/x", "root\n", "a b", "-l", "%h", "ä", "a" * 33])
def test_a_user_that_is_none(user: str) -> None:
    with pytest.raises(EngineError, match="has no name in its image"):
        host_block("shell", user, "longboat", "/k")


def test_percent_signs_are_no_tokens() -> None:
    block = host_block("shell", "root", "/home/50%h/longboat", "/home/50%h/key")
    assert "ProxyCommand /home/50%%h/longboat\n" in block
    assert 'IdentityFile "/home/50%%h/key"\n' in block


def test_the_program_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ssh_config.program("bin/longboat") == [str(tmp_path / "bin" / "longboat")]
    assert ssh_config.program("sh") == [shutil.which("sh")]
    assert ssh_config.program("/x/longboat/__main__.py") == [sys.executable, "-m", "longboat"]


def test_an_editor_that_was_started_elsewhere_finds_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"LONGBOAT_HOME": "my home", "KUBECONFIG": f"a:{tmp_path}/b:", "LONGBOAT_ENGINE": "local"}
    assert ssh_config.kept_variables(given) == [
        "env",
        f"LONGBOAT_HOME={tmp_path}/my home",
        "LONGBOAT_ENGINE=local",
        f"KUBECONFIG={tmp_path}/a:{tmp_path}/b:",
    ]
    assert ssh_config.kept_variables({}) == []


class Foreign:
    """An engine with a run that somebody else submitted."""

    def status(self, run: str) -> RunStatus:
        return OWN

    def resubmission(self, run: str) -> None:
        raise NotFound(f"{run} was not submitted from here")


@pytest.mark.parametrize("words", [["own"], ["own", "--connect"]])
def test_no_entry_for_a_run_of_another_home(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = Foreign()
    monkeypatch.setattr(ssh_config, "open_engine", lambda **_: engine)
    result = CliRunner().invoke(ssh_config.command, words)
    assert isinstance(result.exception, Refused), result.output
