"""The launcher as one file: `python -m longboat.launcher.onefile OUT` writes a zip file that Python runs directly."""

from __future__ import annotations

import os
import sys


def write_onefile(path: str) -> None:
    """Write the launcher to `path`, the same bytes every time. Run it as `python -I -S <path> PLAN.json`."""
    import zipfile

    folder = os.path.dirname(os.path.abspath(__file__))
    temporary = path + ".tmp"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py"):
                entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                entry.external_attr = 0o644 << 16
                with open(os.path.join(folder, name), "rb") as file:
                    archive.writestr(entry, file.read())
    os.replace(temporary, path)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m longboat.launcher.onefile OUT")
    write_onefile(sys.argv[1])
