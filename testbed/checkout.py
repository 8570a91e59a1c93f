"""This checkout as a layer of an image: Longboat's package and what it depends on, for Debian's Python.

The dependencies come by pip from a package index and are kept in the cache. Not the image itself, which is `images`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import tarfile
import tempfile
from pathlib import Path

from testbed import binaries, wheels

ROOT = Path(__file__).resolve().parents[1]
COMMAND = b"#!/usr/bin/python3 -I\nfrom longboat.cli.main import main\n\nmain()\n"


def sources() -> list[Path]:
    """The files of the package."""
    found = (ROOT / "src" / "longboat").rglob("*")
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def dependencies() -> list[str]:
    """As pyproject.toml lists them. Its own lines are read, because Python 3.10 reads no TOML."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert listed is not None, "pyproject.toml has no dependencies"
    return re.findall(r'^  "([^"]+)",$', listed[1], re.MULTILINE)


def key() -> str:
    """Changes with what goes into the layer."""
    digest = hashlib.sha256("\n".join([wheels.FOLDER, *dependencies()]).encode() + COMMAND)
    for path in sources():
        content = path.read_bytes()
        digest.update(f"\n{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def fill_layer(layer: Path) -> None:
    libraries = installed_dependencies()
    with tarfile.open(layer, "w") as tar:
        tar.add(libraries, wheels.FOLDER, filter=wheels.plain)
        for path in sources():
            tar.add(path, f"{wheels.FOLDER}/{path.relative_to(ROOT / 'src')}", filter=wheels.plain)
        entry = tarfile.TarInfo("usr/local/bin/longboat")
        entry.mode, entry.size = 0o755, len(COMMAND)
        tar.addfile(entry, io.BytesIO(COMMAND))


def installed_dependencies() -> Path:
    """A folder with the dependencies; made if it is not in the cache yet."""
    wanted = dependencies()
    name = hashlib.sha256("\n".join([wheels.PYTHON, os.uname().machine, *wanted]).encode()).hexdigest()[:16]
    folder = binaries.cache_folder() / "libraries" / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as scratch:
            wheels.install(wanted, Path(scratch, "installed"))
            with contextlib.suppress(OSError):  # somebody else was faster
                Path(scratch, "installed").rename(folder)
    return folder
