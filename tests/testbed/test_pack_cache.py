"""The archive is a cache in which the testbed finds all it asks for, and brings commands that a machine lacks."""

from __future__ import annotations

import lzma
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from testbed import binaries, images, pack, pack_cache, profiles


def test_programs_are_found_under_the_same_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, bare = tmp_path / "full", tmp_path / "bare"
    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(full))
    for name in ("etcd", "kubernetes"):
        target = binaries.BY_NAME[name]
        folder = binaries.cached_folder(target)
        folder.mkdir(parents=True)
        for program in target.packages:
            (folder / program).write_text(f"#!/bin/sh\necho {program}\n")
            (folder / program).chmod(0o755)
        for link in target.links:
            (folder / link).symlink_to(next(iter(target.packages)))
    entries = pack_cache.program_entries(["etcd", "kubernetes", "etcd"])
    assert len({entry.path for entry in entries}) == len(entries)
    with open(tmp_path / "archive", "wb") as out:
        pack.write_entries(out, entries, pack_cache.TOP)
        out.write(pack_cache.END)
    with tarfile.open(tmp_path / "archive") as tar:
        tar.extractall(bare, filter="fully_trusted")

    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(bare / pack_cache.TOP))
    found = binaries.find(["etcd", "kubernetes"])
    assert all(path.is_relative_to(bare) for path in found.paths.values())
    assert {"etcd", *binaries.KUBERNETES_COMMANDS} == set(found.paths)
    done = subprocess.run([found["kubelet"]], capture_output=True, text=True, check=True)
    assert done.stdout == "kubernetes\n"


@pytest.mark.usefixtures("needs_pods")
def test_commands_need_nothing_of_the_machine(tmp_path: Path) -> None:
    scratch, root = tmp_path / "scratch", tmp_path / "root"
    scratch.mkdir()
    for entry in pack_cache.command_entries(scratch):
        assert entry.source is not None
        file = root / entry.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(entry.source.read_bytes())
        file.chmod(entry.mode)
    for name, version in (("ip", "-V"), ("nft", "--version"), ("tc", "-V")):
        linked = tmp_path / name
        linked.symlink_to(root / "commands" / name)
        done = subprocess.run([linked, version], capture_output=True, text=True, check=False, env={"PATH": os.defpath})
        assert done.returncode == 0 and done.stdout, done.stderr
    mapped = (root / "commands/lib").iterdir()
    assert any(file.name.startswith("libc.so") for file in mapped)


@pytest.mark.pods
@pytest.mark.slow
@pytest.mark.usefixtures("needs_pods")
def test_an_archive_is_a_cache(tmp_path: Path) -> None:
    """It starts a cluster where there is no other cache, no network and no variable."""
    archive = tmp_path / "cache.tar.xz"
    pack_cache.pack_cache(archive, profiles.combine(["two-nodes"]), "3.12")
    with lzma.open(archive) as stream, tarfile.open(fileobj=stream) as tar:
        tar.extractall(tmp_path, filter="fully_trusted")
    top = tmp_path / pack_cache.TOP
    assert {"click", "msgspec", "yaml"} <= {path.name for path in (top / "python").iterdir()}
    places = f"export LONGBOAT_TESTBED_STATE={tmp_path}/state HOME={tmp_path}"
    up = "python3 -m testbed up --name bare --profile two-nodes"
    asked = "python3 -m testbed kubectl --name bare -- get nodes -o name"
    down = "code=$?; python3 -m testbed down --name bare; exit $code"
    script = f'eval "$(sh {top}/use)" && ip link set lo up && {places} && {up} && {asked}; {down}'
    bare = ["unshare", "--net", "env", "-i", f"PATH={images.PATH}", "sh", "-c", script]
    place = Path(pack_cache.__file__).parents[1]
    done = subprocess.run(bare, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"node/node-0", "node/node-1"} <= set(done.stdout.split())
