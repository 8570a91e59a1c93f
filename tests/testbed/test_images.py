"""Images are archives that say what is in them, and stores are copied without sharing what is written to."""

from __future__ import annotations

import hashlib
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import binaries, images
from testbed.binaries import Binaries


def read(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def test_archive_is_a_whole_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "pause"
    program.write_bytes(b"program")
    made = images.archive("pause", Binaries({"pause": program}))
    stored = read(made)
    for name, content in stored.items():
        if name.startswith("blobs/sha256/"):
            assert hashlib.sha256(content).hexdigest() == name.rpartition("/")[2]

    def blob(descriptor: dict[str, object]) -> bytes:
        content = stored[f"blobs/{str(descriptor['digest']).replace(':', '/')}"]
        assert len(content) == descriptor["size"]
        return content

    (listed,) = json.loads(stored["index.json"])["manifests"]
    assert listed["annotations"]["io.containerd.image.name"] == "longboat.test/pause:latest"
    manifest = json.loads(blob(listed))
    config = json.loads(blob(manifest["config"]))
    layer = blob(manifest["layers"][0])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert config["config"]["Entrypoint"] == ["/pause"]
    (tmp_path / "layer.tar").write_bytes(layer)
    assert read(tmp_path / "layer.tar") == {"pause": b"program"}


def test_archive_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pause").write_bytes(b"program")
    programs = Binaries({"pause": tmp_path / "pause"})
    first = images.archive("pause", programs)
    monkeypatch.setattr(images, "fill_layer", lambda *_: pytest.fail("made again"))
    assert images.archive("pause", programs) == first


def test_key_follows_the_program_and_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    pause, python = images.RECIPES["pause"], images.RECIPES["python"]
    keys = {images.key_of(pause), images.key_of(python)}
    keys.add(images.key_of(replace(python, packages=(*python.packages, "python3-numpy"))))
    monkeypatch.setattr(binaries, "key_of", lambda _: "another program")
    keys.add(images.key_of(pause))
    assert len(keys) == 4


def test_every_program_of_an_image_is_one_that_is_built() -> None:
    known = {program for target in binaries.TARGETS for program in target.programs}
    assert {recipe.program for recipe in images.RECIPES.values() if recipe.program} <= known


def test_a_clone_shares_files_and_copies_databases(tmp_path: Path) -> None:
    source = tmp_path / "store"
    (source / "snapshots" / "1").mkdir(parents=True)
    (source / "io.metadata").mkdir()
    (source / "snapshots" / "1" / "file").write_text("of the image")
    (source / "io.metadata" / "meta.db").write_text("of the store")
    images.clone(source, tmp_path / "node")
    assert (tmp_path / "node/snapshots/1/file").stat().st_ino == (source / "snapshots/1/file").stat().st_ino
    with open(tmp_path / "node/io.metadata/meta.db", "r+") as database:
        database.write("OF THE NODE!")
    assert (source / "io.metadata/meta.db").read_text() == "of the store"
    assert sorted(file.name for file in (tmp_path / "node/io.metadata").iterdir()) == ["meta.db"]
