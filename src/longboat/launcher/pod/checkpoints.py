"""The run's checkpoints as the launcher sees them: the newest complete one, and old ones that go while it runs.

What a checkpoint is, is known to `storage.checkpoints`, which travels with the launcher.
"""

from __future__ import annotations

import os
import time

from ..node.jsonfiles import read_json
from ..vendored import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOOK_S = 30.0  # storages over the network are asked, and checkpoints come minutes apart
PAUSES_S = (0.1, 0.4, 1.6)
"""Between tries to read a storage that fails: a server that fails over answers after a second or two."""
MIRRORED = "mirrored.json"
"""In the node's folder: the newest checkpoint that an object store has."""


def find_newest(folder: str | None) -> str | None:
    """The newest complete checkpoint in the folder, None if it has none. Raises what keeps it from being read.

    A storage that fails is asked again: for want of an answer a training would begin again at its first step.
    """
    for pause_s in PAUSES_S:
        try:
            return _newest_in(folder)
        except Exception:
            time.sleep(pause_s)
    return _newest_in(folder)


def _newest_in(folder: str | None) -> str | None:
    try:
        if not folder or not any(name.startswith("step-") for name in os.listdir(folder)):
            return None  # known without loading what it takes to tell complete ones
    except (FileNotFoundError, NotADirectoryError):
        return None
    from pathlib import Path

    checkpoint = load("storage.checkpoints").newest_complete(Path(folder))
    return None if checkpoint is None else str(checkpoint)


def newest(folder: str | None) -> str | None:
    """The newest complete checkpoint in the folder; None where there is none to be had."""
    try:
        return find_newest(folder)
    except Exception:  # a storage that is gone
        return None


def checkpoint_at(place: str) -> str | None:
    """A complete checkpoint itself, or the newest in a folder; None if there is none. Raises as `find_newest`."""
    from pathlib import Path

    checkpoint = load("storage.checkpoints").checkpoint_at(Path(place))
    return None if checkpoint is None else str(checkpoint)


def kept(directory: str, folder: str | None, store: str | None) -> str | None:
    """The newest complete checkpoint that outlives the node: a path, or the URL in an object store."""
    if not store:
        return newest(folder)
    try:
        return str(read_json(os.path.join(directory, MIRRORED))["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def begin(folder: str | None, attempt: int, uid: str) -> None:
    """Fence off earlier attempts. Raises EngineError if a newer one has started, or the fence cannot be written."""
    if folder and attempt > 0:
        from pathlib import Path

        load("storage.checkpoints").begin_attempt(Path(folder), attempt, uid)


def watch(folder: str, keep: Any, attempt: int) -> None:
    """Prune whenever there is a newer complete checkpoint; in a thread, since storage may be slow."""
    import _thread

    def look() -> None:
        known = None
        while True:
            checkpoint = newest(folder)
            if checkpoint is not None and checkpoint != known:
                prune(folder, keep, attempt)
                known = checkpoint
            time.sleep(LOOK_S)

    _thread.start_new_thread(look, ())


def rule_of(keep: Any) -> Any:
    return load("storage.retention").retention_of(keep)


def prune(folder: str, keep: Any, attempt: int) -> None:
    """Remove complete checkpoints that `keep` does not keep (`storage.retention`). Best effort."""
    from pathlib import Path

    try:
        load("storage.checkpoints").prune(Path(folder), rule_of(keep), attempt)
    except Exception:  # in use, gone, not ours to remove; or a newer attempt has started
        pass
