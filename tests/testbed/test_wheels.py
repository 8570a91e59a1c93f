"""The layer of wheels: what is in it, and for whom."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from testbed import wheels
from testbed.errors import Missing


def fake_install(wanted: object, target: Path) -> None:
    for name in ("package/__init__.py", "package/include/header.h", "package/tests/test_it.py", "package/run"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(name)
    (target / "package" / "run").chmod(0o700)


def test_what_nobody_uses_is_left_out_and_everybody_may_read_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "install", fake_install)
    wheels.fill_layer(["package"], tmp_path / "layer.tar")
    with tarfile.open(tmp_path / "layer.tar") as tar:
        files = {member.name: member for member in tar if member.isfile()}
    assert set(files) == {f"{wheels.FOLDER}/package/__init__.py", f"{wheels.FOLDER}/package/run"}
    assert [files[name].mode for name in sorted(files)] == [0o644, 0o755]
    assert {(member.uid, member.gid, member.uname) for member in files.values()} == {(0, 0, "")}
    assert [path.name for path in tmp_path.iterdir()] == ["layer.tar"]


def test_a_package_that_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(Missing, match="no-such-package"):
        wheels.install(["no-such-package"], tmp_path / "target")
