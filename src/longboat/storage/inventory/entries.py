"""Entries of a checkpoint inventory, and what is right or wrong about one. Values and pure rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from longboat.core.errors import EngineError, NotFound, Refused, UsageError
from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.core.jobs import Value
from longboat.core.words import listing
from longboat.storage import fences
from longboat.storage.retention import evaluated_name, promoted_name

_STEP = lazy_pattern(r"\.?step-(\d{1,18})(\..*)?", re.DOTALL)
WANTED = lazy_pattern(r"(?:step-)?(\d{1,18})|newest|promoted")

Digests = Mapping[str, Sequence[Any]]
"""Path inside of a checkpoint -> its size and SHA-256."""


class CheckpointEntry(Value, frozen=True):
    """One checkpoint as users see it."""

    step: int
    name: str  # step-N; what was never finished has another
    where: str
    size: int  # bytes
    files: int
    complete: bool  # finished, and not of an attempt that a newer one had replaced
    promoted: bool = False
    newest: bool = False  # what a retry or `--resume` starts from
    time: float | None = None
    attempt: int | None = None
    metrics: dict[str, float] = {}
    note: str = ""  # why it is not complete


class CheckpointCheck(Value, frozen=True):
    """What reading all of a checkpoint has shown."""

    step: int
    where: str
    files: int
    size: int
    compared: str  # hashes, sizes or nothing: what its marker has
    problems: tuple[str, ...] = ()


class CheckpointPlace(Protocol):
    """Where the checkpoints of one run are. Every call raises EngineError."""

    where: str

    def entries(self) -> list[CheckpointEntry]:
        """All, oldest first, with those that were never finished."""

    def marker(self, entry: CheckpointEntry) -> bytes:
        """Its marker; empty where there is none."""

    def digest(self, entry: CheckpointEntry) -> Digests:
        """Size and SHA-256 of its files: all of it is read."""

    def fetch(self, entry: CheckpointEntry, target: str) -> None:
        """Copy it, marker included, to a folder that does not exist yet."""

    def remove(self, entry: CheckpointEntry) -> bool:
        """Remove it, so that it never looks complete while it is half there; whether it was there."""

    def mark(self, name: str, data: bytes | None) -> None:
        """Write a small file beside the checkpoints, or remove it."""


def entries_of(scanned: Mapping[str, Any], where: str) -> list[CheckpointEntry]:
    """What a scan of a folder (`folder_scan`) shows. Raises EngineError for an answer that is none."""
    try:
        marks = {str(name): str(text).encode() for name, text in scanned["marks"].items()}
        newest = fences.newest_of(marks)
        fence = None if newest is None else fences.decode(newest, marks[fences.fence_name(newest)])
        entries = [_entry(folder, where, fence, marks) for folder in scanned["folders"]]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise EngineError(f"{where}: what is in it cannot be told: {error}") from None
    return with_newest([entry for entry in entries if entry is not None])


def _entry(
    folder: Mapping[str, Any], where: str, fence: fences.Fence | None, marks: Mapping[str, bytes]
) -> CheckpointEntry | None:
    name = str(folder["name"])
    match = _STEP.fullmatch(name)
    if match is None:
        return None
    is_finished = folder["marker"] is not None and name == f"step-{match.group(1)}"
    data = str(folder["marker"]).encode() if is_finished else b""
    marker = fences.read_marker(data)
    is_fenced = is_finished and not fences.counts(fence, f"{name}:{marker.digest}", marker.attempt)
    step = int(match.group(1))
    return CheckpointEntry(
        step=step,
        name=name,
        where=f"{where}/{name}",
        size=int(folder["size"]),
        files=int(folder["files"]),
        complete=is_finished and not is_fenced,
        promoted=is_finished and promoted_name(step) in marks,
        time=marker.time if marker.time is not None else folder["time"],
        attempt=marker.attempt,
        metrics=fences.metrics_of(marker, marks.get(evaluated_name(step), b"")),
        note="of an attempt that was replaced" if is_fenced else "" if is_finished else "never finished",
    )


def with_newest(entries: Sequence[CheckpointEntry]) -> list[CheckpointEntry]:
    """Sorted by step, and the newest complete one marked as such."""
    import msgspec

    newest = max((entry.step for entry in entries if entry.complete), default=None)
    ordered = sorted(entries, key=lambda entry: (entry.step, entry.name))
    return [
        msgspec.structs.replace(entry, newest=True) if entry.complete and entry.step == newest else entry
        for entry in ordered
    ]


def named_checkpoint(text: str) -> tuple[str, str] | None:
    """Run and step of `RUN:STEP`, `RUN:newest` or `RUN:promoted`; None where a text is not of this form."""
    run, _, wanted = text.partition(":")
    return (run, wanted) if re.fullmatch(r"[a-z0-9][a-z0-9-]*", run) and WANTED.fullmatch(wanted) else None


def choose(entries: Sequence[CheckpointEntry], wanted: str, run: str) -> CheckpointEntry:
    """The complete checkpoint that is meant: a step, `newest` (also an empty text) or `promoted`. Raises NotFound."""
    match = WANTED.fullmatch(wanted or "newest")
    if match is None:
        raise UsageError(f"{wanted!r} is no step of a checkpoint", hint=f"{run}:200, {run}:newest or {run}:promoted")
    complete = [entry for entry in entries if entry.complete]
    if not complete:
        raise NotFound(f"{run} has no complete checkpoint", hint="a complete one has a file .complete in it")
    if match.group(1) is None:
        chosen = [entry for entry in complete if (entry.promoted if wanted == "promoted" else entry.newest)]
        if not chosen:
            raise NotFound(f"no checkpoint of {run} is promoted", hint=f"longboat checkpoint promote {run}:STEP")
        return chosen[-1]
    for entry in complete:
        if entry.step == int(match.group(1)):
            return entry
    steps = [str(entry.step) for entry in reversed(complete)]
    raise NotFound(f"{run} has no complete checkpoint of step {match.group(1)}", hint=f"it has {listing(steps, 8)}")


def check_removable(entry: CheckpointEntry, run: str, *, is_final: bool) -> None:
    """Raises Refused for one that a running run would resume from, and for a promoted one."""
    if entry.newest and not is_final:
        raise Refused(
            f"{entry.name} is the newest complete checkpoint of {run}, which has not ended: a retry starts from it",
            hint="--force removes it all the same",
        )
    if entry.promoted:
        raise Refused(
            f"{entry.name} of {run} is promoted",
            hint=f"longboat checkpoint promote --undo {run}:{entry.step}, or --force",
        )


def compared(entry: CheckpointEntry, marker: bytes, digests: Digests) -> CheckpointCheck:
    """What was read, against what the marker says was written."""
    fields = fences.marker_fields(marker)
    files, problems = fields.get("files"), []
    size = sum(int(digest[0]) for digest in digests.values())
    if isinstance(files, dict):
        problems = _file_problems(files, digests)
    elif isinstance(fields.get("bytes"), int) and (fields["bytes"], fields.get("count")) != (size, len(digests)):
        problems = [
            f"{len(digests)} files of {size} bytes, and {fields.get('count')} of {fields['bytes']} were written"
        ]
    has_hashes = isinstance(files, dict) and all(
        isinstance(each, list) and each[1:2] != [None] for each in files.values()
    )
    basis = "hashes" if has_hashes else "sizes" if files is not None or "bytes" in fields else "nothing"
    return CheckpointCheck(
        step=entry.step, where=entry.where, files=len(digests), size=size, compared=basis, problems=tuple(problems)
    )


def _file_problems(written: Mapping[str, Any], digests: Digests) -> list[str]:
    problems = [f"{path} is missing" for path in written if path not in digests]
    problems += [f"{path} was not there when it was completed" for path in digests if path not in written]
    for path in sorted(set(written) & set(digests)):
        size, digest = (list(written[path]) + [None, None])[:2] if isinstance(written[path], list) else (None, None)
        if size is not None and size != digests[path][0]:
            problems.append(f"{path} has {digests[path][0]} bytes, and {size} were written")
        elif digest is not None and digest != digests[path][1]:
            problems.append(f"{path} has other content than was written")
    return problems
