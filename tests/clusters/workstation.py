"""Longboat installed on a test host, as pip does it for all users: for clusters of that machine alone."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

import longboat
from testbed import wheels
from testbed.hosts import Host

COMMAND = """#!/usr/bin/python3
import sys
from longboat.__main__ import main
sys.exit(main())
"""


def install_longboat(host: Host) -> None:
    """Its own packages, and those it needs, from the Python that runs the tests. Both have the same version."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        with tarfile.open(file.name, "w") as tar:
            tar.add(Path(longboat.__file__).parent, "longboat", filter=_sources)
            for name in needed("longboat"):
                for path in importlib.metadata.files(name) or ():
                    if ".." not in path.parts and os.path.exists(path.locate()):
                        tar.add(path.locate(), str(path), filter=_sources)
        script = f"sudo mkdir -p /{wheels.FOLDER} && sudo tar -x -C /{wheels.FOLDER}"
        with open(file.name, "rb") as stream:
            subprocess.run(host.command(script), stdin=stream, check=True, timeout=120)
    host.run("sudo tee /usr/local/bin/longboat >/dev/null && sudo chmod 755 /usr/local/bin/longboat", text=COMMAND)


def needed(name: str) -> list[str]:
    """Packages that it cannot do without, and theirs."""
    names: list[str] = []
    for text in importlib.metadata.requires(name) or ():
        match = re.match(r"[A-Za-z0-9_.-]+", text)
        if match and "extra ==" not in text and "sys_platform" not in text and "platform_system" not in text:
            names += [match[0], *needed(match[0])]
    return names


def _sources(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in entry.name else wheels.plain(entry)
