"""Writes a software bundle: one tar file, the manifest first; the same bytes for the same content."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

from longboat.bundles import durable
from longboat.clusters.hosts.connection import FilePart
from longboat.clusters.hosts.scripts import chunks
from longboat.clusters.offline.manifest import MANIFEST, SoftwareManifest, encode_manifest
from longboat.clusters.offline.software_bundle import padding, tar_header
from longboat.engines.shared.files import disk


def write_bundle(manifest: SoftwareManifest, parts: Mapping[str, FilePart], target: Path) -> None:
    write_tar({MANIFEST: encode_manifest(manifest), **{file.path: parts[file.path] for file in manifest.files}}, target)


def write_tar(files: Mapping[str, bytes | FilePart], target: Path) -> None:
    """Whole, or not at all."""
    pieces: list[bytes | FilePart] = []
    for name, content in files.items():
        size = len(content) if isinstance(content, bytes) else content.size
        pieces += [tar_header(name, size), content, padding(size)]
    pieces.append(bytes(2 * tarfile.BLOCKSIZE))
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with disk(f"write {target}"), chunks(tuple(pieces)) as data, open(scratch, "xb") as output:
            for piece in data:
                output.write(piece)
            output.flush()
            durable.sync(output.fileno())
            durable.replace(str(scratch), str(target))
    finally:
        scratch.unlink(missing_ok=True)
