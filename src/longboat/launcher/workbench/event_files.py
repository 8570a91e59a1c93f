"""Event files of runs as one folder for TensorBoard: a folder per run, by name, with links to the files.

Where they are is found by looking: in the working copies, the artifacts and the checkpoints of a run, on this machine
(`plan.json` of every attempt says where those are) or in the storage of a cluster (`<run>-<uid>/artifacts`).
"""

from __future__ import annotations

import os

from ..node.jsonfiles import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

MARK = "tfevents"
USUAL = ("logs", "log", "runs", "tb", "tensorboard", "events", "lightning_logs", "artifacts")
"""Folders that trainers put their curves in: they say nothing in the name of a curve."""
SKIPPED = ("node_modules", "__pycache__", "site-packages")
DEEPEST = 8  # folders below the working copy; writers put theirs two or three deep
MOST_FOLDERS = 5000
"""Of one run: more than these is data, in which nobody keeps curves."""


def chosen(runs: str, names: list[str], labels: list[str]) -> list[tuple[str, str]]:
    """(name, folder) of the runs: those named, or those whose record has all the labels, or all."""
    if names:
        pairs = [name.split("=", 1) if "=" in name else [name, name] for name in names]
        return [(shown, os.path.join(runs, folder)) for shown, folder in pairs]
    try:
        known = sorted(entry.name for entry in os.scandir(runs) if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return []
    folders = [(name, os.path.join(runs, name)) for name in known]
    return [pair for pair in folders if not labels or has_labels(labels_of(pair[1]), labels)]


def labels_of(folder: str) -> dict[str, Any]:
    try:
        labels = read_json(os.path.join(folder, "record.json"))["job"].get("labels")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return labels if isinstance(labels, dict) else {}


def has_labels(labels: dict[str, Any], terms: list[str]) -> bool:
    """The terms of `longboat ps -l`: K, !K, K=V, K!=V."""
    for term in terms:
        if "!=" in term:
            key, _, value = term.partition("!=")
            if labels.get(key.strip()) == value.strip():
                return False
        elif "=" in term:
            key, _, value = term.partition("=")
            if labels.get(key.strip()) != value.lstrip("=").strip():
                return False
        elif (term.lstrip("!") in labels) == term.startswith("!"):
            return False
    return True


def roots_of(folder: str) -> list[str]:
    """Where a run may have written event files."""
    roots = [os.path.join(folder, "artifacts"), os.path.join(folder, "checkpoints")]
    for plan in _plans(os.path.join(folder, "attempts")):
        roots += [str(plan[key]) for key in ("workdir", "artifacts_dir", "checkpoint_dir") if plan.get(key)]
    kept = list(dict.fromkeys(os.path.realpath(root) for root in roots if os.path.isdir(root)))
    return [root for root in kept if not any(root.startswith(other + "/") for other in kept)]


def _plans(attempts: str) -> Iterator[dict[str, Any]]:
    try:
        folders = [os.path.join(attempts, number, node) for number in os.listdir(attempts)
                   for node in os.listdir(os.path.join(attempts, number))]  # fmt: skip
    except OSError:
        return
    for folder in folders:
        try:
            plan = read_json(os.path.join(folder, "plan.json"))
        except (OSError, ValueError):
            continue
        if isinstance(plan, dict):
            yield plan


def event_files(root: str) -> Iterator[tuple[str, str]]:
    """(folder below the root, name) of every event file. Links are not followed: they lead to data."""
    left = MOST_FOLDERS
    for at, folders, files in os.walk(root):
        below = os.path.relpath(at, root)
        depth = 0 if below == "." else below.count("/") + 1
        left -= 1
        wanted = [name for name in folders if not name.startswith(".") and name not in SKIPPED]
        folders[:] = sorted(wanted) if depth < DEEPEST and left > 0 else []
        for name in files:
            if MARK in name and os.path.isfile(os.path.join(at, name)):  # a pipe would hold up whoever opens it
                yield below, name


def curve_name(run: str, below: str) -> str:
    """The name that TensorBoard shows: the run, and what tells its folders apart."""
    parts = [part for part in below.split("/") if part != "."]
    while parts and parts[0] in USUAL:
        parts = parts[1:]
    return "/".join([run, *parts])


def link(target: str, runs: list[tuple[str, str]]) -> int:
    """Make the folder say what there is now: new files get a link, those that are gone lose theirs. The number."""
    wanted: dict[str, str] = {}
    for run, folder in runs:
        for root in roots_of(folder):
            for below, name in event_files(root):
                wanted[os.path.join(curve_name(run, below), name)] = os.path.join(root, below, name)
    for at, _, files in os.walk(target):
        for name in files:
            if os.path.relpath(os.path.join(at, name), target) not in wanted:
                os.unlink(os.path.join(at, name))
    for place, source in wanted.items():
        path = os.path.join(target, place)
        if not os.path.islink(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(os.path.normpath(source), path)
    return len(wanted)
