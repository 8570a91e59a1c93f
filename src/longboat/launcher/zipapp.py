"""The launcher as a zip application: `python -m longboat.launcher.zipapp OUT` writes a zip file that Python runs
directly."""

from __future__ import annotations

import os
import sys

from longboat.launcher.vendored import FILES


def write_zipapp(path: str) -> None:
    """Write the launcher to `path`, the same bytes every time. Run it as `python -I -S <path> PLAN.json`."""
    import zipfile

    folder = os.path.dirname(os.path.abspath(__file__))
    names = [(os.path.relpath(path, folder), path) for path in _sources(folder)]
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


def _sources(folder: str) -> list[str]:
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".py"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m longboat.launcher.zipapp OUT")
    write_zipapp(sys.argv[1])
