"""The Python environment of a run: this machine's own, or a virtual one made for `setup` and cached by content."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from longboat.bundles import durable
from longboat.bundles.manifests import CodeSnapshot
from longboat.core.errors import EngineError
from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.engines.local.supervise.attempt_folders import Environment
from longboat.engines.shared.files import (
    find_program,
    locked,
    log_line,
    make_folder,
    note_use,
    remove_tree,
    write_bytes,
)
from longboat.engines.shared.home import Home

_INSTALLS = lazy_pattern(r"\b(pip3?|uv|poetry|pdm)\b")
_PIP_ONLY = lazy_pattern(r"\s*(python3?\s+-m\s+)?pip3?\s+install\s+[^;&|<>`$()]*")


MARKER = "setup-complete"
_BOOT = "made-in-boot"


def prepare_environment(home: Home, setup: str | None, snapshot: CodeSnapshot | None, *, path: str) -> Environment:
    """Make (or find) the virtual environment that `setup` installs into.

    It sees the packages of the Python that ranks would otherwise use. It is named by the text of setup, the files named
    in it and that Python; a setup that only calls pip is not repeated once it has succeeded.
    """
    if setup is None:
        return Environment()
    if not _INSTALLS.search(setup):
        return Environment(setup=setup)
    python = _python(path)
    if python is None:
        raise EngineError("setup needs python, and there is none on PATH", hint="install python3")
    folder = home.folder("environments") / _key(setup, snapshot, python)
    marker = folder / MARKER
    with locked(folder.with_suffix(".lock")):
        if not (folder / "bin" / "python").exists() or not _is_whole(folder):
            _create(python, folder)
        note_use(folder)
    done = marker.exists() and all(_PIP_ONLY.fullmatch(line) for line in setup.splitlines() if line.strip())
    return Environment(
        setup=None if done else setup,
        lock=str(folder.with_suffix(".lock")),
        path=(str(folder / "bin"),),
        variables={"VIRTUAL_ENV": str(folder)},
        marker=str(marker),
    )


def environment_name(setup: str | None, snapshot: CodeSnapshot | None, *, path: str) -> str | None:
    """The folder of the environment that `prepare_environment` makes or finds; None where it makes none."""
    python = _python(path)
    if setup is None or python is None or not _INSTALLS.search(setup):
        return None
    return _key(setup, snapshot, python)


def _python(path: str) -> str | None:
    return find_program("python", path) or find_program("python3", path)


def settle_environment(marker: Path) -> None:
    """Setup has succeeded: say so for all later runs, once everything that it installed is on the disk."""
    if marker.exists():
        return
    try:
        durable.sync_tree(str(marker.parent))
        write_bytes(marker, b"", is_durable=True)
    except (OSError, EngineError) as error:  # the next run does the setup again
        log_line(f"cannot keep {marker.parent}: {error}")


def _is_whole(folder: Path) -> bool:
    """Whether it has its marker, so that it was synced: otherwise files may be empty after a restart of the machine."""
    if (folder / MARKER).exists():
        return True
    try:
        return (folder / _BOOT).read_text() == (durable.boot_id() or "")
    except OSError:
        return False


def _key(setup: str, snapshot: CodeSnapshot | None, python: str) -> str:
    digest = hashlib.sha256(f"{setup}\0{os.path.realpath(python)}\0{os.path.dirname(python)}".encode())
    for entry in _named_files(setup, snapshot):
        digest.update(entry.encode())
    return digest.hexdigest()[:20]


def _named_files(setup: str, snapshot: CodeSnapshot | None) -> Sequence[str]:
    """Hashes of the files of the code that the setup text names, and of the usual descriptions when it says `.`."""
    if snapshot is None:
        return ()
    try:
        words = {os.path.normpath(word) for word in shlex.split(setup, comments=True)}
    except ValueError:
        words = set(setup.split())
    if "." in words:
        words |= {"pyproject.toml", "setup.py", "setup.cfg", "requirements.txt"}
    hashes: Mapping[str, str] = {entry.path: f"{entry.path}:{entry.hash}" for entry in snapshot.entries}
    return [hashes[word] for word in sorted(words) if word in hashes]


def _create(python: str, folder: Path) -> None:
    remove_tree(folder)
    make_folder(folder.parent)
    made = subprocess.run(
        [python, "-m", "venv", "--system-site-packages", str(folder)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        remove_tree(folder)
        detail = (made.stderr or made.stdout).strip().splitlines()
        raise EngineError(
            f"cannot make a virtual environment for setup: {detail[-1] if detail else 'venv failed'}",
            hint="on Debian and Ubuntu: apt-get install python3-venv",
        )
    _inherit_parent_packages(python, folder)
    write_bytes(folder / _BOOT, (durable.boot_id() or "").encode())


def _inherit_parent_packages(python: str, folder: Path) -> None:
    """When the parent is itself a virtual environment, its packages stay visible too."""
    code = "import sys, sysconfig; print(sysconfig.get_path('purelib') if sys.prefix != sys.base_prefix else '')"
    parent = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    if parent:
        for site in folder.glob("lib/python3*/site-packages"):
            (site / "parent-environment.pth").write_text(parent + "\n")
