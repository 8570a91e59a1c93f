"""The launcher as one file, for pods and containers. It is run as a file, never imported: it must stay free of the rest
of Longboat."""

from __future__ import annotations

import functools
import os
import runpy
import tempfile
from pathlib import Path

LAUNCHER_FOLDER = Path(__file__).parents[3] / "launcher"


@functools.lru_cache(maxsize=1)
def launcher_bytes() -> bytes:
    write = runpy.run_path(str(LAUNCHER_FOLDER / "zipapp.py"))["write_zipapp"]
    with tempfile.TemporaryDirectory(prefix="longboat-") as folder:
        path = os.path.join(folder, "launcher.pyz")
        write(path)
        return Path(path).read_bytes()
