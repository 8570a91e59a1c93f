"""Code of runs compared: which files differ between two snapshots, and a unified diff of those that are text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from longboat.bundles.manifests import CodeSnapshot, Entry
from longboat.bundles.store import BundleStore
from longboat.comparison.differences import CodeChange
from longboat.core.errors import LongboatError
from longboat.engines.engine import Engine, Submission
from longboat.engines.lifecycle.resubmission import again
from longboat.engines.shared.code_snapshot import snapshot_of
from longboat.engines.shared.home import Home

MOST_BYTES = 1 << 20
"""Of a file that is compared line by line: larger ones are data."""
MOST_LINES = 2000
"""Of one diff: a page that can still be mailed. `longboat compare` shows fewer, or all."""
AND_MORE = "... and more"
"""The last line of a diff that was cut."""
NOW = "."
"""Stands for the folder of a run's code as it is now."""


def code_of(engine: Engine, home: Home, run: str) -> CodeSnapshot | None:
    """The code of a run that was submitted from here; None where it is not known on this machine."""
    try:
        return snapshot_of(home, engine.resubmission(run))
    except LongboatError:
        return None


def code_now(engine: Engine, home: Home, run: str) -> CodeSnapshot | None:
    """What the folder of a run's code holds now. Raises NotFound where the run was not submitted from here."""
    submission: Submission = again(engine.resubmission(run), resume=None, fresh_code=True)
    return snapshot_of(home, submission)


def code_change(
    home: Home, run: str, before: CodeSnapshot | None, after: CodeSnapshot | None, *, most: int | None = MOST_LINES
) -> CodeChange:
    """The second code against the first. `most`: lines of the diff; None: all of them."""
    if before is None or after is None:
        return CodeChange(run=run, is_known=False)
    old = {entry.path: entry for entry in before.entries}
    new = {entry.path: entry for entry in after.entries}
    changed = sorted(path for path in old.keys() & new.keys() if old[path] != new[path])
    store = BundleStore(home.root / "bundles")
    lines: list[str] = []
    for path in sorted({*changed, *(old.keys() ^ new.keys())}):
        lines += _file_diff(store, path, old.get(path), new.get(path))
        if most is not None and len(lines) > most:
            lines = [*lines[:most], AND_MORE]
            break
    return CodeChange(
        run=run,
        is_known=True,
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(changed),
        diff="\n".join(lines),
    )


def _file_diff(store: BundleStore, path: str, old: Entry | None, new: Entry | None) -> Iterator[str]:
    texts = [_lines(store, entry) for entry in (old, new)]
    if texts[0] is None or texts[1] is None:
        yield f"{path}: not compared line by line"
        return
    heads = (f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null")
    yield from (line.rstrip("\n") for line in difflib.unified_diff(texts[0], texts[1], *heads))


def _lines(store: BundleStore, entry: Entry | None) -> list[str] | None:
    """The lines of a text; none for a file that is not there; None where it is no text, or large."""
    if entry is None:
        return []
    if entry.kind == "link":
        return [f"-> {entry.target}"]
    if entry.size > MOST_BYTES:
        return None
    try:
        with open(store.object_path(entry.hash), "rb") as file:
            return file.read().decode("utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError):
        return None
