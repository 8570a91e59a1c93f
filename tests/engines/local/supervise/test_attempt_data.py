"""Where imports of data go on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.jobs import Checkpoints, DataImport, Volume
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.attempt_data import AttemptOutputs, DataFailed
from longboat.engines.shared.home import Home
from tests.engines.local.values import job


def links_of(tmp_path: Path, to: str, *volumes: Volume) -> dict[str, Path]:
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "base").mkdir(exist_ok=True)
    item = DataImport(url=(tmp_path / "x.txt").as_uri(), to=to)
    made = job(data=(item,), volumes=volumes)
    this = LocalRecord(name="run", uid="u", job=made, base=str(tmp_path / "base"), created=0, user="u")
    return AttemptOutputs(Home(tmp_path / "home"), RunFiles(tmp_path), this).links(lambda text: None)


def test_into_the_working_copy(tmp_path: Path) -> None:
    folder = links_of(tmp_path, "sub/data")["sub/data"]
    assert folder.is_relative_to(tmp_path / "home") and (folder / "x.txt").read_text() == "x"


def test_into_a_volume(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    links_of(tmp_path, "in/deep", Volume(target="in", path=str(tmp_path / "volume")))
    assert (tmp_path / "volume" / "deep" / "x.txt").read_text() == "x"
    links_of(tmp_path, f"{tmp_path}/volume/more", Volume(target=f"{tmp_path}/volume", path=f"{tmp_path}/volume"))
    assert (tmp_path / "volume" / "more" / "x.txt").read_text() == "x"


def test_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "volume" / "away").symlink_to(tmp_path / "elsewhere")
    volume = Volume(target="in", path=str(tmp_path / "volume"))
    for to in ("in/away", "in/away/deep", str(tmp_path / "elsewhere"), "in/../../elsewhere"):
        with pytest.raises(DataFailed, match="elsewhere|neither in the working copy nor in a volume"):
            links_of(tmp_path, to, volume)
        assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(("to", "is_shown"), [("ck", True), ("./a/ck", True), ("~/ck", False), ("../ck", False)])
def test_checkpoints_are_seen_where_the_job_names_them_in_the_working_copy(
    tmp_path: Path, to: str, is_shown: bool
) -> None:
    made = job(checkpoints=Checkpoints(to=to))
    this = LocalRecord(name="run", uid="u", job=made, base=str(tmp_path), created=0, user="u")
    links = AttemptOutputs(Home(tmp_path / "home"), RunFiles(tmp_path), this).links(lambda text: None)
    assert list(links) == ([to] if is_shown else [])
