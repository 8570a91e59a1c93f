"""Folders of volumes are deleted whatever pods made in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longboat.clusters.provisioner.folders import delete_folder


def nest(folder: Path, depth: int) -> None:
    """Deeper than a path may be long."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a" * 20, dir_fd=here)
        below = os.open("a" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


def test_folders_nested_deeper_than_calls_paths_and_open_files_may_be(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "wide").mkdir(parents=True)
    nest(volume, 1300)
    nest(volume / "wide", 300)
    delete_folder(volume)
    assert list(tmp_path.iterdir()) == []


def test_links_are_deleted_and_not_followed(tmp_path: Path) -> None:
    outside, volume = tmp_path / "outside", tmp_path / "volume"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (volume / "inner").mkdir(parents=True)
    for place in (volume, volume / "inner"):
        (place / "link").symlink_to(outside)
        (place / "dangling").symlink_to("nowhere")
        os.mkfifo(place / "pipe")
    os.link(outside / "kept", volume / "hard")
    delete_folder(volume)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"] and (outside / "kept").read_text() == "x"


def test_a_link_in_place_of_the_folder_is_no_way_out(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "volume").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError):
        delete_folder(tmp_path / "volume")
    assert (tmp_path / "outside").is_dir()


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    delete_folder(tmp_path / "none")
