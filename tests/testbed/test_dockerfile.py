"""deploy/Dockerfile, built for real: what is in the image, and what is not. That it works is in test_installation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from testbed import checkout, dockerfile, images
from testbed.binaries import Binaries
from testbed.errors import Missing

BUILD_TOOLS = re.compile(r"(^|/)(pip|setuptools|wheel|ensurepip)(-[^/]*)?/|/(gcc|cc|make|ld)$")


class Image:
    """An image as docker and buildah save it."""

    def __init__(self, archive: Path) -> None:
        with tarfile.open(archive) as tar:
            (listed,) = json.loads(self._read(tar, "manifest.json"))
            self.config: dict[str, Any] = json.loads(self._read(tar, listed["Config"]))
            self.names: list[str] = listed["RepoTags"]
            self.layers = [self._members(tar, layer) for layer in listed["Layers"]]
        self.size = archive.stat().st_size

    @staticmethod
    def _read(tar: tarfile.TarFile, name: str) -> bytes:
        content = tar.extractfile(name)
        assert content is not None
        return content.read()

    @staticmethod
    def _members(tar: tarfile.TarFile, name: str) -> dict[str, tarfile.TarInfo]:
        member = tar.getmember(name)
        if member.issym():
            name = os.path.normpath(os.path.join(os.path.dirname(name), member.linkname))
        with tarfile.open(fileobj=tar.extractfile(name)) as layer:
            return {each.name: each for each in layer}


@pytest.fixture(scope="module")
def image() -> Image:
    lacks = dockerfile.missing_tool() or ("buildah needs root here" if os.geteuid() else None)
    lacks = lacks or (None if images.archive_path(images.RECIPES["python"]).exists() else images.missing_tool())
    if lacks:
        pytest.skip(lacks)
    try:
        return Image(images.archive("longboat", Binaries({})))
    except Missing as error:
        pytest.skip(str(error))


def test_the_image_says_what_it_is_and_runs_as_nobody(image: Image) -> None:
    settings = image.config["config"]
    assert image.names == [images.reference("longboat")]
    assert settings["User"] == "65532:65532" and settings["Cmd"] == ["longboat", "--help"]
    assert not settings.get("Entrypoint")
    labels = settings["Labels"]
    assert labels["org.opencontainers.image.title"] == "longboat"
    assert labels["org.opencontainers.image.version"] == "0.1.0"
    assert settings["Env"][0].startswith("PATH=/opt/longboat/bin:")


def test_what_is_added_to_the_base_is_longboat_and_nothing_that_builds(image: Image) -> None:
    base = len(images.layers_of(images.archive("python", Binaries({}))))
    added = {name: member for layer in image.layers[base:] for name, member in layer.items()}
    assert "opt/longboat/bin/longboat" in added and added["opt/longboat/bin/longboat"].mode & 0o111
    assert any(name.endswith("/longboat/cli/main.py") for name in added)
    for name, member in added.items():
        assert not BUILD_TOOLS.search(name), name
        assert not name.startswith(("src", "wheels", "root", "tmp", "var")), name
        assert (member.uid, member.gid) == (0, 0) and not member.mode & 0o022 or member.issym(), name
    assert sum(member.size for member in added.values()) < 40_000_000


def test_every_package_of_the_image_is_pinned_and_new_enough() -> None:
    text = (checkout.ROOT / "deploy" / "requirements.txt").read_text()
    pinned = dict(line.split("==") for line in text.splitlines() if line and not line.startswith("#"))
    wanted = dict(re.fullmatch(r"([^>=]+)>=(.+)", one).groups() for one in checkout.dependencies())  # type: ignore[union-attr]
    assert pinned.keys() == wanted.keys()
    for name, least in wanted.items():
        assert numbers(pinned[name]) >= numbers(least), name


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def test_the_key_follows_the_dockerfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in dockerfile.PARTS:
        (tmp_path / part).parent.mkdir(exist_ok=True)
        (tmp_path / part).write_bytes((checkout.ROOT / part).read_bytes())
    monkeypatch.setattr(dockerfile, "ROOT", tmp_path)
    keys = {dockerfile.key()}
    for part in dockerfile.PARTS:
        with open(tmp_path / part, "a") as file:
            file.write("\n# more\n")
        keys.add(dockerfile.key())
    assert len(keys) == len(dockerfile.PARTS) + 1


@pytest.mark.parametrize(
    ("words", "message"), [([], "which name has the image"), (["x:1"], "docker, podman or buildah")]
)
def test_the_script_says_what_it_lacks(tmp_path: Path, words: list[str], message: str) -> None:
    for name in ("sh", "dirname", "sed", "git"):
        (tmp_path / name).symlink_to(shutil.which(name) or "/nowhere")
    command = ["sh", str(checkout.ROOT / "scripts" / "image.sh"), *words]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode and message in done.stderr
