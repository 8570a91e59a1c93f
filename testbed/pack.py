"""Makes one archive that starts a cluster on a machine with no network and no package manager (see `machine`).

In it: the programs, two images of one file each and a small one with Python, this package and the script `start`.
Programs and images are packed once and kept in the cache, since that takes minutes; the rest is a second stream after
the first, as xz allows. The same content gives the same bytes. Not here: anything that runs on the machine it is for.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import lzma
import platform
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from testbed import binaries, build, images, machine, node, small_image
from testbed.binaries import KUBERNETES_COMMANDS, Binaries
from testbed.errors import TestbedError

TOP = "longboat-cluster"
DEFAULT_FILE = f"{TOP}.tar.xz"
LIMIT_BYTES = 60 << 20
TARGETS = ("tools", "etcd", "kubernetes", "containerd", "runc", "cni", *node.GPU_TARGETS)
# A dictionary wide enough for all: the programs have libraries in common. Unpacking needs as much memory.
DICTIONARY_BYTES = 256 << 20
START = """#!/usr/bin/env python3
import os
import sys

root = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, root)

import pathlib

from testbed import packed

sys.exit(packed.main(pathlib.Path(root)))
"""


@dataclass(frozen=True)
class Entry:
    """One file of the archive, or a link."""

    path: str
    source: Path | None = None
    link: str = ""
    mode: int = 0o755


def pack(wanted: Path) -> int:
    """Write the archive and return its size."""
    programs = binaries.find(TARGETS)
    with tempfile.TemporaryDirectory(prefix="longboat-pack-") as scratch:
        entries = [*program_entries(programs), *image_entries(programs, Path(scratch))]
        heavy = packed_programs(entries)
    light = lzma.compress(module_stream(), preset=9)
    size = heavy.stat().st_size + len(light)
    if size > LIMIT_BYTES:
        raise TestbedError(f"the archive would have {size / (1 << 20):.1f} MiB; {LIMIT_BYTES >> 20} are allowed")
    join([heavy], light, wanted)
    return size


def join(heavy: Sequence[Path], light: bytes, wanted: Path) -> None:
    """Streams one after the other are one archive, as xz allows."""
    half = wanted.with_name(f".{wanted.name}.half")
    try:
        with open(half, "wb") as out:
            for part in heavy:
                with open(part, "rb") as stream:
                    shutil.copyfileobj(stream, out, images.BLOCK)
            out.write(light)
        half.rename(wanted)
    except OSError as error:
        raise TestbedError(f"{wanted} cannot be written: {error.strerror}") from error
    finally:
        half.unlink(missing_ok=True)


def program_entries(programs: Binaries) -> list[Entry]:
    paths = {**programs.paths, "kubernetes": seven_in_one(programs)}
    files = [Entry(f"bin/{name}", paths[name]) for name in machine.PROGRAMS]
    return [*files, *(Entry(f"bin/{name}", link="kubernetes") for name in KUBERNETES_COMMANDS)]


def seven_in_one(programs: Binaries) -> Path:
    """Kubernetes as one program. Official release files are seven, which would not fit: then it is built for this."""
    files = {programs[name].resolve() for name in KUBERNETES_COMMANDS}
    if len(files) == 1:
        return files.pop()
    target = binaries.BY_NAME["kubernetes"]
    folder = binaries.cache_folder() / "packs"
    wanted = folder / f"kubernetes-{binaries.key_of(target)}"
    with pack_lock(folder):
        if not wanted.exists():
            with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as scratch:
                build.compile_target(target, Path(scratch), build.Progress(1))
                (Path(scratch) / "kubernetes").rename(wanted)
    return wanted


def image_entries(programs: Binaries, folder: Path) -> list[Entry]:
    entries = []
    layer = folder / "layer.tar"
    images.fill_layer(images.RECIPES["pause"], layer, programs)
    for name, settings in machine.image_settings().items():
        entries.append(image_entry(name, layer, settings, folder))
    small_image.fill_layer(layer, programs)
    entries.append(image_entry(small_image.NAME, layer, {"Env": [f"PATH={images.PATH}"], "Cmd": ["python3"]}, folder))
    return entries


def image_entry(name: str, layer: Path, settings: dict[str, object], folder: Path) -> Entry:
    file = folder / f"{name}.tar"
    images.write_archive(file, layer, images.reference(name), settings)
    return Entry(f"images/{name}.tar", file, mode=0o644)


def filters() -> list[dict[str, int]]:
    packing = {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": DICTIONARY_BYTES}
    return [{"id": lzma.FILTER_X86}, packing] if platform.machine() == "x86_64" else [packing]


def key_of(entries: list[Entry], top: str = TOP) -> str:
    digest = hashlib.sha256(f"{filters()!r} {top}".encode())
    for entry in entries:
        content = images.digest_of(entry.source) if entry.source else entry.link
        digest.update(f"{entry.path} {entry.mode} {content}\n".encode())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def pack_lock(folder: Path) -> Iterator[None]:
    """One packs at a time. The kernel frees the lock of one that was killed."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "packs.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def packed_programs(entries: list[Entry], top: str = TOP) -> Path:
    """A stream of the archive; made if it is not in the cache yet."""
    folder = binaries.cache_folder() / "packs"
    wanted = folder / f"programs-{key_of(entries, top)}.xz"
    if wanted.exists():
        return wanted
    with pack_lock(folder):
        if not wanted.exists():
            print("testbed pack: packing the programs, which takes minutes the first time", file=sys.stderr, flush=True)
            for left in folder.glob(".making-*"):
                left.unlink()
            half = folder / f".making-{wanted.name}"
            with lzma.open(half, "wb", format=lzma.FORMAT_XZ, filters=filters()) as out:
                write_entries(out, entries, top)
            half.rename(wanted)
    return wanted


def write_entries(out: IO[bytes], entries: list[Entry], top: str = TOP) -> None:
    """Entries without the mark that ends an archive: more follow. Nothing of this machine or moment goes in."""
    tar = tarfile.TarFile(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT)
    for entry in entries:
        info = tarfile.TarInfo(f"{top}/{entry.path}")
        info.mode = entry.mode
        if entry.source is None:
            info.type, info.linkname = tarfile.SYMTYPE, entry.link
            tar.addfile(info)
            continue
        info.size = entry.source.stat().st_size
        with open(entry.source, "rb") as content:
            tar.addfile(info, content)


def module_stream() -> bytes:
    """The end of the archive: this package and the script that starts it."""
    out = io.BytesIO()
    write_entries(out, [Entry(f"testbed/{file.name}", file, mode=0o644) for file in modules()])
    with tarfile.TarFile(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        info = tarfile.TarInfo(f"{TOP}/start")
        info.mode, info.size = 0o755, len(START)
        tar.addfile(info, io.BytesIO(START.encode()))
    return out.getvalue()


def modules() -> list[Path]:
    return sorted(Path(__file__).parent.glob("*.py"))
