"""The launcher as one file: `python -m longboat.launcher.onefile OUT` writes a zip file that Python runs directly."""

from __future__ import annotations

import os
import sys

from longboat.launcher.carried import FILES


def write_onefile(path: str) -> None:
    """Write the launcher to `path`, the same bytes every time. Run it as `python -I -S <path> PLAN.json`."""
    import zipfile

    folder = os.path.dirname(os.path.abspath(__file__))
    names = [(name, os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.endswith(".py")]
    names += [("longboat/" + name, os.path.join(os.path.dirname(folder), name)) for name in FILES]
    temporary = path + ".tmp"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, source in names:
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with open(source, "rb") as file:
                archive.writestr(entry, file.read(), compresslevel=9)
    os.replace(temporary, path)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m longboat.launcher.onefile OUT")
    write_onefile(sys.argv[1])
