"""TensorBoard event files that the ranks of this node write: found in their folders and among their open files, and
read as they grow, so that a script that knows nothing of Longboat has curves.
"""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARK = "tfevents"
SCAN_S = 30.0
"""Between two searches of the folders: a new file is found so late, and nothing of it is lost by that."""
MOST_ENTRIES, MOST_DEPTH, MOST_FILES = 3000, 6, 32
"""Of one search; working copies may be large."""
BUDGET_S = 0.01
"""For reading in one turn of five seconds: a fifth of a percent of a core. What is left is read later, and coarsely."""
LAST_BUDGET_S = 1.0  # once, when the run has ended: nobody notices a second
TAIL_BUDGET_S = 0.5  # beyond it, for the ends of files that are too long: a MiB takes half of it
LAST_BYTES = 1 << 20
"""At the end of a file that is read whole when the run has ended: the last numbers are those that matter most."""
MOST_STRIDE = 64  # of numbers that come too fast every 64th is kept: curves need no more
PASSED_OVER = (".git", "__pycache__", "node_modules", "site-packages", ".venv", "venv")
NAME_LENGTH, MOST_NAMES = 120, 256  # of curves: a trainer may write any number, of any length


class EventWatch:
    def __init__(self, folders: list[str], since: float) -> None:
        self._folders = [folder for folder in dict.fromkeys(folders) if folder]
        self._since = since - 1.0  # some file systems count whole seconds
        self._files: dict[str, Any] = {}
        self._scanned_at: float | None = None
        self._kept: dict[tuple[str, str], float] = {}  # of a folder and tag, the time of the last point that was kept
        self._passed: dict[tuple[str, str], tuple[float, int, float | None]] = {}  # the last that was not, if later
        self.bad: dict[str, int] = {}  # tag -> first step at which it was not a finite number

    def take(self, pids: list[int], spacing_s: float, *, is_last: bool = False) -> list[list[Any]]:
        """New points `[time, folder, step, {tag: number}]`; of a tag none closer together than `spacing_s`, but for
        the very last one."""
        now = time.monotonic()
        if is_last or self._scanned_at is None or now - self._scanned_at >= SCAN_S:
            self._scanned_at = now
            self._find(pids)
        until = time.thread_time() + (LAST_BUDGET_S if is_last else BUDGET_S)
        rows: list[list[Any]] = []
        for number, (path, file) in enumerate(self._files.items()):
            now = time.thread_time()
            file.until = now + max(until - now, 0.0) / (len(self._files) - number)  # each its share of what is left
            try:
                if is_last:
                    left = os.stat(path).st_size - file.offset
                    file.whole_tail = LAST_BYTES
                    file.stride = max(file.stride, min(left // LAST_BYTES, MOST_STRIDE))
                rows += self._read(self._name(path), file, spacing_s)
                if is_last and file.is_behind:
                    rows += self._read_tail(path, file, spacing_s)
            except OSError:
                continue  # it is gone
        if is_last:
            last = sorted(self._passed.items(), key=lambda item: item[1][0])
            rows += [[round(at, 3), folder, step, {tag: number}] for (folder, tag), (at, step, number) in last]
            self._passed = {}
        return rows

    def _read_tail(self, path: str, file: Any, spacing_s: float) -> list[list[Any]]:
        """The last numbers of a file that is too long to be read to its end: what is before them is left out."""
        file.skip_to_tail()
        file.until = time.thread_time() + TAIL_BUDGET_S / len(self._files)
        return self._read(self._name(path), file, spacing_s)

    def _read(self, folder: str, file: Any, spacing_s: float) -> list[list[Any]]:
        rows = []
        for at, step, scalars in file.scalars():
            numbers = {}
            for tag, value in scalars.items():
                key = (folder, tag[:NAME_LENGTH])
                is_finite = value - value == 0
                if not is_finite:
                    self.bad.setdefault(key[1], step)
                if key not in self._kept and len(self._kept) >= MOST_NAMES:
                    continue
                number = float("%.12g" % value) if is_finite else None
                if at - self._kept.get(key, float("-inf")) >= spacing_s:
                    self._kept[key] = at
                    self._passed.pop(key, None)
                    numbers[key[1]] = number
                else:
                    self._passed[key] = (at, step, number)
            if numbers:
                rows.append([round(at, 3), folder, step, numbers])
        if file.is_behind:
            file.stride = min(2 * file.stride, MOST_STRIDE)
        return rows

    def _name(self, path: str) -> str:
        """The folder of a file, as short as it is told apart."""
        folder = os.path.dirname(path)
        for root in self._folders:
            if folder == root or folder.startswith(root + "/"):
                return os.path.relpath(folder, root)[:NAME_LENGTH]
        return folder[-NAME_LENGTH:]

    def _find(self, pids: list[int]) -> None:
        paths = [path for folder in self._folders for path in _search(folder)] + _opened(pids)
        for path in paths:
            if path in self._files or len(self._files) >= MOST_FILES:
                continue
            try:
                about = os.stat(path)
            except OSError:
                continue
            # A pipe would hold up whoever opens it; an older file is of an earlier run, in a folder that is shared.
            if not stat.S_ISREG(about.st_mode) or about.st_mtime < self._since:
                continue
            from ..vendored import load

            self._files[path] = load("metrics.event_files").EventFile(path)


def _search(folder: str) -> list[str]:
    """Event files below a folder; links to folders are not followed."""
    paths: list[str] = []
    level, left = [folder], MOST_ENTRIES
    for _ in range(MOST_DEPTH):
        below: list[str] = []
        for each in level:
            try:
                entries = os.scandir(each)
            except OSError:
                continue
            with entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return paths
                    try:
                        if MARK in entry.name and entry.is_file():
                            paths.append(entry.path)
                        elif entry.name not in PASSED_OVER and entry.is_dir(follow_symlinks=False):
                            below.append(entry.path)
                    except OSError:
                        continue  # a link in a circle, or one that leads where we may not look
        level = below
    return paths


def _opened(pids: list[int]) -> list[str]:
    """Event files that these processes have open, wherever they are."""
    paths = []
    for pid in pids:
        try:
            for name in os.listdir("/proc/%d/fd" % pid)[:MOST_ENTRIES]:
                target = os.readlink("/proc/%d/fd/%s" % (pid, name))
                if MARK in os.path.basename(target):
                    paths.append(target)
        except OSError:
            continue
    return paths
