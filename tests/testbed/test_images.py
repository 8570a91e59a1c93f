"""Images are archives that say what is in them, and stores are copied without sharing what is written to."""

from __future__ import annotations

import hashlib
import json
import subprocess
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


def test_key_follows_all_that_goes_into_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    pause, python = images.RECIPES["pause"], images.RECIPES["python"]
    keys = {images.key_of(pause), images.key_of(python)}
    keys.add(images.key_of(replace(python, packages=(*python.packages, "python3-numpy"))))
    keys.add(images.key_of(replace(python, additions={"/etc/motd": "hello"})))
    tensorflow = images.RECIPES["tensorflow"]
    keys |= {images.key_of(tensorflow), images.key_of(replace(tensorflow, wheels=("tensorflow-cpu==2.17.*",)))}
    monkeypatch.setattr(binaries, "key_of", lambda _: "another program")
    keys.add(images.key_of(pause))
    assert len(keys) == 7


def test_an_addition_goes_to_the_end_of_a_file_that_is_there(tmp_path: Path) -> None:
    text = 'it\'s "$1" and %s\n\n'
    (tmp_path / "a file").write_text("first\n")
    for path, code in (("/a file", 0), ("/missing", 1)):
        line = images.addition_line(path, text)
        assert subprocess.run(["sh", "-c", line, "sh", str(tmp_path)], check=False).returncode == code
    assert (tmp_path / "a file").read_text() == f"first\n{text}"
    assert not (tmp_path / "missing").exists()


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


def test_an_image_on_top_of_another_holds_its_own_layer_alone(tmp_path: Path) -> None:
    for name in ("below", "above"):
        (tmp_path / name).write_bytes(name.encode() * 10)
    images.write_archive(tmp_path / "base.tar", tmp_path / "below", "base", {})
    below = images.layers_of(tmp_path / "base.tar")
    images.write_archive(tmp_path / "whole.tar", tmp_path / "above", "whole", {}, below)
    layers = images.layers_of(tmp_path / "whole.tar")
    assert layers[:1] == below and len(layers) == 2
    stored = read(tmp_path / "whole.tar")
    held = [f"blobs/{str(one['digest']).replace(':', '/')}" in stored for one in layers]
    assert held == [False, True]
    configs = [json.loads(content) for name, content in stored.items() if b'"diff_ids"' in content]
    assert configs[0]["rootfs"]["diff_ids"] == [one["digest"] for one in layers]


def test_of_an_image_that_changes_often_few_archives_are_kept(tmp_path: Path) -> None:
    import os

    files = [tmp_path / f"longboat-{number}.tar" for number in range(images.KEPT + 3)]
    for number, file in enumerate(files):
        file.write_bytes(b"")
        os.utime(file, (number, number))
    (tmp_path / "longboat.lock").write_bytes(b"")
    images.remove_older(files[-1])
    assert sorted(tmp_path.glob("*.tar")) == files[3:]
    assert (tmp_path / "longboat.lock").exists()
