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
        (["lab", "--from", "x", "--remove"], 201, "--from or --remove"),
    ],
)
def test_mistakes(words: list[str], code: int, message: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert enter(["cluster", "kubeconfig", *words]) == code
    assert message in capsys.readouterr().err
