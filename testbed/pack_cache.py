"""Packs what clusters of chosen profiles need into one archive, for a machine with no network and no package manager.

Unpacked it is a cache of the testbed (LONGBOAT_TESTBED_CACHE) with the programs and the manifests of these profiles,
the small Python as the image `python`, and what such a machine lacks besides: the commands `ip`, `nft` and `tc` with
their libraries, and Longboat's dependencies for a Python of a given version. `use` in it says how to use it. Clusters
are started by the checkout there, with nodes as elsewhere. Not here: the cluster that shares the machine's own network
and GPUs (`machine`), and the archive for that one (`pack`).
"""

from __future__ import annotations

import io
import lzma
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from testbed import (
    binaries,
    checkout,
    controlplane,
    images,
    manifests,
    namespaces,
    node,
    pack,
    small_image,
    wheels,
)
from testbed.binaries import Binaries
from testbed.errors import Missing
from testbed.pack import Entry
from testbed.profiles import Parts

TOP = "longboat-cache"
COMMANDS = ("ip", "nft", "tc")
"""What nodes and their faults call and a bare machine may lack; `unshare`, `nsenter` and `mount` it has."""
END = bytes(2 * tarfile.BLOCKSIZE)
"""What ends an archive."""
LOADER = "ld-linux"
LIBRARY = re.compile(r"(/\S+) \(0x")
# With libraries and loader of their own these work whatever C library the machine has.
WRAPPER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec "$here/lib/{loader}" --library-path "$here/lib" "$here/programs/{name}" "$@"
"""
USE = """#!/bin/sh
# eval "$(sh longboat-cache/use)": links the commands that this machine lacks, and sets variables for this shell.
here=$(dirname "$(readlink -f "$0")")
for command in {commands}; do
    PATH={search} command -v "$command" >/dev/null || ln -sf "$here/commands/$command" /usr/local/sbin/
done
echo "export LONGBOAT_TESTBED_CACHE='$here'"
echo "export PYTHONPATH='$here/python'${{PYTHONPATH:+:$PYTHONPATH}}"
"""


def pack_cache(wanted: Path, parts: Parts, python: str) -> int:
    """Write the archive for these profiles and this version of Python ("3.12"), and return its size.

    Packing takes minutes, so that control plane, nodes and whatever else are streams of their own: archives for other
    profiles have some of them in common.
    """
    programs = binaries.find(parts.targets)
    rest = [name for name in parts.targets if name not in (*controlplane.TARGETS, *node.TARGETS)]
    streams = [controlplane.TARGETS, *([node.TARGETS] if parts.real_nodes else []), *((name,) for name in rest)]
    heavy = [pack.packed_programs(program_entries(names), TOP) for names in streams]
    with tempfile.TemporaryDirectory(prefix="longboat-pack-") as scratch:
        entries = [
            *manifest_entries(parts, programs),
            *([python_image(programs, Path(scratch))] if parts.real_nodes else []),
            *command_entries(Path(scratch)),
            *package_entries(Path(scratch, "python"), python),
            script("use", USE.format(commands=" ".join(COMMANDS), search=namespaces.SEARCH), Path(scratch)),
        ]
        out = io.BytesIO()
        pack.write_entries(out, entries, TOP)
    pack.join(heavy, lzma.compress(out.getvalue() + END, preset=9), wanted)
    return wanted.stat().st_size


def program_entries(names: Iterable[str]) -> list[Entry]:
    """As the cache has them, so that they are found there under the same keys."""
    entries = []
    for name in dict.fromkeys(names):
        target = binaries.BY_NAME[name]
        paths = binaries.lookup(target) or {}
        folder = f"binaries/{target.name}-{binaries.key_of(target)}"
        links = {program: os.readlink(path) for program, path in paths.items() if path.is_symlink()}
        files = {path.resolve() if program in links else path for program, path in paths.items()}
        entries += [Entry(f"{folder}/{file.name}", file) for file in sorted(files)]
        entries += [Entry(f"{folder}/{program}", link=link) for program, link in links.items()]
    return entries


def manifest_entries(parts: Parts, programs: Binaries) -> list[Entry]:
    entries = []
    for controller in parts.controllers:
        manifests.rendered(controller, programs)
        file = manifests.cached_file(controller)
        entries.append(Entry(f"manifests/{file.name}", file, mode=0o644))
    return entries


def python_image(programs: Binaries, scratch: Path) -> Entry:
    """The small one under the name of the large one. Images of one program are made there, of that program."""
    recipe = images.RECIPES[small_image.BASE]
    layer = scratch / "layer.tar"
    small_image.fill_layer(layer, programs)
    file = scratch / images.archive_path(recipe).name
    images.write_archive(file, layer, images.reference(recipe.name), recipe.settings)
    return Entry(f"images/{file.name}", file, mode=0o644)


def command_entries(scratch: Path) -> list[Entry]:
    paths = {name: shutil.which(name, path=namespaces.SEARCH) for name in COMMANDS}
    lacking = sorted(name for name, path in paths.items() if path is None)
    if lacking:
        raise Missing(f"the archive is to have the commands {', '.join(lacking)}, and this machine lacks them")
    programs = {name: Path(path).resolve() for name, path in paths.items() if path}
    libraries = {path.name: path for program in programs.values() for path in libraries_of(program)}
    (loader,) = [name for name in libraries if name.startswith(LOADER)]
    return [
        *(Entry(f"commands/lib/{name}", path.resolve()) for name, path in sorted(libraries.items())),
        *(Entry(f"commands/programs/{name}", path) for name, path in programs.items()),
        *(script(f"commands/{name}", WRAPPER.format(loader=loader, name=name), scratch) for name in programs),
    ]


def libraries_of(program: Path) -> list[Path]:
    """With the loader, as the loader itself lists them."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True)
    return [Path(match[1]) for match in LIBRARY.finditer(done.stdout)]


def package_entries(folder: Path, python: str) -> list[Entry]:
    wheels.install(checkout.dependencies(), folder, python)
    files: Sequence[Path] = sorted(path for path in folder.rglob("*") if path.is_file())
    return [Entry(f"python/{file.relative_to(folder)}", file, mode=0o644) for file in files]


def script(path: str, text: str, scratch: Path) -> Entry:
    file = scratch / path.replace("/", "-")
    file.write_text(text)
    return Entry(path, file)
