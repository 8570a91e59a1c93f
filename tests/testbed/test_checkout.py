"""This checkout as something to install: its key follows the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import checkout


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
