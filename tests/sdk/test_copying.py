"""Targets of copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.errors import UsageError
from longboat.sdk.copying import target_here, target_in_run


def test_a_slash_at_the_end_means_a_folder_also_while_there_is_none(tmp_path: Path) -> None:
    new = f"{tmp_path}/new/"
    assert target_here("artifacts/plot.png", new) == tmp_path / "new" / "plot.png"
    assert target_here(".", new) == tmp_path / "new"
    assert target_here("plot.png", f"{tmp_path}/") == tmp_path, "the engine puts it into a folder that is there"
    assert target_here("plot.png", f"{tmp_path}/other.png") == tmp_path / "other.png"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file is not a folder"):
        target_here("plot.png", f"{tmp_path}/file/")


def test_into_a_run(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").touch()
    assert target_in_run(tmp_path / "a.yaml", "conf/") == "conf/a.yaml"
    assert target_in_run(tmp_path / "a.yaml", "conf") == "conf"
    assert target_in_run(tmp_path, "conf/") == "conf/"
