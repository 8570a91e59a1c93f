"""The layer with this checkout: its key follows the code, its files are where Debian's Python looks."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from testbed import checkout, wheels


def test_the_dependencies_are_those_of_the_package() -> None:
    names = [text.partition(">")[0] for text in checkout.dependencies()]
    assert {"click", "msgspec", "PyYAML"} <= set(names)


def test_the_key_follows_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "longboat"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("a")
    (tmp_path / "pyproject.toml").write_text('dependencies = [\n  "click>=8",\n]\n')
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    keys = [checkout.key()]
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_text("b")
    assert checkout.key() == keys[0]
    (package / "more.py").write_text("")
    keys.append(checkout.key())
    (tmp_path / "pyproject.toml").write_text('dependencies = [\n  "click>=9",\n]\n')
    keys.append(checkout.key())
    assert len(set(keys)) == 3


def test_the_layer_has_the_package_the_libraries_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libraries" / "click").mkdir(parents=True)
    (tmp_path / "libraries" / "click" / "__init__.py").write_text("")
    monkeypatch.setattr(checkout, "installed_dependencies", lambda: tmp_path / "libraries")
    checkout.fill_layer(tmp_path / "layer.tar")
    with tarfile.open(tmp_path / "layer.tar") as tar:
        members = {member.name: member for member in tar}
    assert f"{wheels.FOLDER}/longboat/cli/main.py" in members
    assert f"{wheels.FOLDER}/click/__init__.py" in members
    assert members["usr/local/bin/longboat"].mode == 0o755
    assert not any("__pycache__" in name for name in members)
    assert {member.uid for member in members.values()} == {0}
