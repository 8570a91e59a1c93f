"""The archive's own command: what it takes, and what it says where there is no cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed import packed


def test_everything_after_the_dashes_is_the_command(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["manifest", "--gpus", "0", "--env", "A=b=c", "--", "python3", "-c", "print(1)", "--gpus", "9"]
    assert packed.main(tmp_path, arguments) == 0
    container = json.loads(capsys.readouterr().out)["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["python3", "-c", "print(1)", "--gpus", "9"]
    assert {"name": "A", "value": "b=c"} in container["env"]


def test_errors_are_one_line(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert packed.main(tmp_path, ["kubeconfig"]) == 1
    assert capsys.readouterr().err == f"start: there is no cluster 'machine' in {state}: start up\n"
    assert packed.main(tmp_path, ["manifest", "--env", "A", "--", "true"]) == 1
    assert capsys.readouterr().err == "start: --env A: give NAME=VALUE\n"
    assert packed.main(tmp_path, ["up"]) == 1
    assert "not unpacked whole" in capsys.readouterr().err


def test_a_number_of_gpus_is_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        packed.main(tmp_path, ["up", "--gpus", "-1"])
    assert "no number of GPUs" in capsys.readouterr().err
