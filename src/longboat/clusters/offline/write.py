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
    text = encode_manifest(manifest)
    pieces: list[bytes | FilePart] = [tar_header(MANIFEST, len(text)), text, padding(len(text))]
    for file in manifest.files:
        pieces += [tar_header(file.path, file.size), parts[file.path], padding(file.size)]
    pieces.append(bytes(2 * tarfile.BLOCKSIZE))
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with disk(f"write {target}"), chunks(tuple(pieces)) as data, open(scratch, "xb") as output:
            for piece in data:
                output.write(piece)
            output.flush()
            durable.sync(output.fileno())
            os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
