"""What the doctor looks at, and what it says when something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.engines.local import doctor
from longboat.engines.local.doctor import examine
from longboat.engines.shared.home import Home


def test_a_healthy_machine(tmp_path: Path) -> None:
    import os

    checks = {check.name: check for check in examine(Home(tmp_path / "home"), {**os.environ, "LONGBOAT_GPUS": "a"})}
    assert checks["home"].ok and str(tmp_path) in checks["home"].detail
    assert checks["gpus"].ok and "a" in checks["gpus"].detail
    assert checks["python"].ok and checks["machine"].ok
    assert not list((tmp_path / "home").glob(".probe*"))


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(doctor, "LOW_DISK", 1 << 60)
    checks = {
        check.name: check for check in examine(Home(tmp_path / "file" / "home"), {"PATH": "", "LONGBOAT_GPUS": ""})
    }
    assert checks["home"].ok is False and "cannot create" in checks["home"].detail
    assert checks["disk"].ok is False and checks["disk"].hint
    assert checks["gpus"].ok is None and checks["git"].ok is None and checks["trainer's python"].ok is None
