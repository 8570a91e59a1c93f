"""A snapshot as a file: what a user attaches to a bug report, and what is replayed. JSON in and out."""

from __future__ import annotations

from pathlib import Path

import msgspec

from longboat.autoscaler.model.snapshot import AutoscalerSettings, ClusterSnapshot
from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.guards.decoding import decode
from longboat.core.jobs import Value

VERSION = 1


class SavedSnapshot(Value, frozen=True):
    """All that `decide` reads."""

    now: float
    snapshot: ClusterSnapshot
    settings: AutoscalerSettings = AutoscalerSettings()
    version: int = VERSION


def write_saved(saved: SavedSnapshot, path: str | Path) -> None:
    data = msgspec.json.encode({"version": VERSION, **msgspec.to_builtins(saved)})
    try:
        Path(path).write_bytes(data + b"\n")
    except OSError as bad:
        raise EngineError(f"{path}: cannot be written: {bad.strerror}") from None


def read_saved(path: str | Path) -> SavedSnapshot:
    hint = "longboat autoscaler plan --save FILE writes such a file"
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file", hint=hint) from None
    except (OSError, ValueError) as bad:
        raise UsageError(f"{path}: cannot be read: {getattr(bad, 'strerror', None) or 'not a name'}") from None
    try:
        snapshot = decode(data, SavedSnapshot)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise UsageError(f"{path}: no snapshot: {bad}", hint=hint) from None
    if snapshot.version > VERSION:
        raise UsageError(f"{path}: written by a newer Longboat (version {snapshot.version})", hint="update Longboat")
    return snapshot
