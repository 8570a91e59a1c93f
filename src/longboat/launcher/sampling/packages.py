"""The Python of a node's ranks and the packages that it has, by the names of files: nothing is started or imported."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 2000
"""Packages; the largest images have some five hundred."""
KINDS = (".dist-info", ".egg-info")


def software(
    command: str | list[str], env: dict[str, str], workdir: str, pids: list[int] | None = None
) -> dict[str, Any]:
    """`python` and `packages`, by name their version; empty where no Python is found. `pids`: a rank's processes."""
    path = python_of(command.split() if isinstance(command, str) else command, env.get("PATH", ""), workdir)
    for pid in pids or ():
        running = os.path.realpath("/proc/%d/exe" % pid)
        if os.path.basename(running).startswith("python") and running != os.path.realpath(path):
            path = running  # of pyenv and its like, whose `python` on the PATH is a script
            break
    if not path or _first_line(path):
        return {}
    packages: dict[str, str] = {}
    version, folders = _folders(path, env)
    for folder in folders:
        for entry in _names(folder):
            stem, kind = os.path.splitext(entry)
            parts = stem.split("-")
            if kind in KINDS and len(parts) > 1 and len(packages) < MOST:
                packages.setdefault(parts[0], parts[1])  # the first folder wins, as in an import
    return {"python": version, "packages": packages}


def python_of(words: list[str], search: str, workdir: str) -> str:
    """The interpreter that a command names, or its program's first line; else the one that is found as `python3`."""
    for word in words:
        if os.path.basename(word).startswith("python"):
            return _which(word, search, workdir)
    line = _first_line(_which(words[0], search, workdir)) if words else []
    if line and "python" in line[-1] + line[0]:
        return _which(line[0] if "python" in line[0] else line[-1], search, workdir)
    return _which("python3", search, workdir)


def _first_line(path: str) -> list[str]:
    """The words of a script's first line; none of a program."""
    try:
        with open(path, "rb") as file:
            line = file.readline(256)
        return line[2:].decode("ascii").split() if line.startswith(b"#!") else []
    except (OSError, ValueError):
        return []


def _which(word: str, search: str, workdir: str) -> str:
    folders = [workdir] if "/" in word else search.split(":")
    for path in [os.path.join(folder, word) for folder in folders]:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return ""


def _folders(path: str, env: dict[str, str]) -> tuple[str, list[str]]:
    """The version of an interpreter, as the folder of its modules is called, and where it finds packages."""
    own, real = (os.path.dirname(os.path.dirname(each)) for each in (path, os.path.realpath(path)))
    prefixes = [real, "/usr/local" if real == "/usr" else real, env.get("HOME", "") + "/.local"]
    try:
        with open(own + "/pyvenv.cfg", encoding="utf-8", errors="replace") as file:
            is_shared = "include-system-site-packages = true" in file.read(4096).lower()
        prefixes = [own, *(prefixes if is_shared else [])]
    except OSError:
        pass
    name = os.path.basename(os.path.realpath(path))
    there = [each for each in _names(prefixes[0] + "/lib") if each.startswith("python3.")]
    version = name if name in there or not there else there[-1]
    folders = [folder for folder in env.get("PYTHONPATH", "").split(":") if folder]
    for prefix in prefixes:
        for each in (version, "python3"):
            folders += ["/".join((prefix, "lib", each, kind)) for kind in ("site-packages", "dist-packages")]
    return version, folders


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
