"""Downloads of a pod, in a process of their own (`--import FILE`): a download may take hours and block for minutes.

The work is that of `storage.data`, which travels with the launcher.
"""

from __future__ import annotations

import os
import sys

from ..location import entry_point
from ..node.jsonfiles import dumps, read_bytes, read_json, write_json, write_whole
from ..node.loop import ChildEnd
from ..node.processes import StartError
from ..ranks.state import LauncherState
from ..vendored import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXIT_FAILED = 209
STORES = ("AWS_", "AZURE_", "GOOGLE_", "GS_", "STORAGE_EMULATOR_HOST")
"""Beginnings of the variables that tell how to reach object stores."""


def main(argv: list[str]) -> int:
    """The import process, `--import FILE`: FILE lists the items; errors are written to FILE + ".failed"."""
    path = argv[1]
    try:
        for item in read_json(path):
            _import(item)
    except Exception as error:
        message = getattr(error, "message", None) or "%s: %s" % (type(error).__name__, error)
        hint = getattr(error, "hint", None)
        message = "%s; %s" % (message, hint) if hint else message
        sys.stderr.write("longboat: %s\n" % message)
        write_json(path + ".failed", {"message": str(message)})
        return EXIT_FAILED
    return 0


class _Item:
    """A DataImport with its target folder."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.url = str(raw["url"])
        self.to = str(raw["to"])
        self.sha256: str | None = raw.get("sha256")
        self.unpack = bool(raw.get("unpack", True))


def _import(raw: dict[str, Any]) -> None:
    from pathlib import Path

    if "checkpoints" in raw:
        from .checkpoint_upload import fetch_item

        fetch_item(raw, dict(os.environ))
        return
    if "objects" in raw:
        where = load("storage.urls").object_url(raw["url"])
        load("storage.download_prefix").fetch_named(where, raw["objects"], raw["folder"], os.environ)
        return
    download = load("storage.download")
    shown = download.redacted(raw["url"])
    progress = load("storage.progress")
    tell = progress.reporter(_say, "imports %s" % shown, progress.SPARSE_S)
    if load("storage.data").import_data(_Item(raw), Path(raw["folder"]), progress=tell):
        _say("imported %s to %s" % (shown, raw["to"]))


def _say(text: str) -> None:
    sys.stderr.write("longboat: %s\n" % text)
    sys.stderr.flush()


def fetch_code(state: LauncherState, code: dict[str, Any], folder: str, secret: str) -> str | None:
    """Download the code packs into `folder`, as 0, 1, ...; returns an error message or None.

    The store's variables are the files of the folder `secret` where it exists; then none of the job's own are used.
    """
    env = state.env
    if os.path.isdir(secret):
        env = {name: value for name, value in env.items() if not name.startswith(STORES)}
        for name in sorted(os.listdir(secret)):
            if name.startswith("."):
                continue  # links of the kubelet's own
            value = read_bytes(os.path.join(secret, name)).decode("utf-8", "replace").rstrip("\n")
            if "\0" not in value:  # else it is a file, and no variable
                env[name] = value
    os.makedirs(folder, exist_ok=True)
    message = run_import(state, [{"url": code["url"], "objects": code["objects"], "folder": folder}], env)
    return None if message is None else "the code cannot be fetched: " + message


def run_import(state: LauncherState, items: list[dict[str, Any]], env: dict[str, str] | None = None) -> str | None:
    """Import all items while the loop runs; returns an error message or None."""
    path = state.path("data.json")
    write_whole(path, dumps(items).encode("ascii"), 0o600)  # a URL may hold a password
    stream = state.setup_stream()
    ends: list[ChildEnd] = []
    try:
        command = [sys.executable, "-I", "-S", entry_point(), "--import", path]
        state.start(command, state.env if env is None else env, (os.devnull, stream.pipe, stream.pipe), ends.append)
    except StartError as error:
        return str(error)
    while state.running:
        state.loop.turn()
    try:
        os.unlink(path)  # a URL in it may be a secret
    except OSError:
        pass
    state.catch_up(stream)
    if ends and ends[0].code == 0:
        return None
    try:
        return str(read_json(path + ".failed")["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return "the data import ended with exit code %d" % (ends[0].code if ends else 0)
