"""Imports in a folder, by their markers: listed, checked, removed. The text of this file also runs inside a pod.

Standard library only and Python 3.8 or newer; it imports nothing of ours. Answers are JSON on stdout.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

OWN = ".longboat"
MARKER = re.compile(r"[0-9a-f]{24}\.json")
MOST_MARKER = 1 << 20  # a marker names what lies at the top of an import, at most a hundred names
DEEPEST = 6
"""Folders below the volume in which imports are looked for: data itself is many times as deep and wide."""
MOST_FOLDERS = 20_000  # looked into: a network file system lists a thousand in a second or two
BLOCK = 1 << 20
BREATH_S = 10.0  # whoever waits for the answer gives up on a program that is silent for minutes
TOLD = ("url", "is_secret", "tag", "sha256", "size", "time", "files", "bytes")


def main(words: list[str]) -> None:
    verbs: dict[str, Any] = {"imports": imports, "check": check, "drop": drop}
    try:
        threading.Thread(target=breathe, daemon=True).start()
        sys.stdout.write(json.dumps(verbs[words[0]](*words[1:])))
        sys.stdout.flush()
    except FileNotFoundError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        os._exit(44)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        os._exit(45)


def breathe() -> None:
    """Blanks before the answer: whoever waits for hours of reading knows that somebody works."""
    while True:
        time.sleep(BREATH_S)
        sys.stdout.write(" ")
        sys.stdout.flush()


def imports(root: str) -> list[dict[str, Any]]:
    """What markers below `root` say, each with its folder, its key and whether its names are there."""
    os.scandir(root).close()
    listed = []
    for folder in folders(root):
        for name in sorted(os.listdir(os.path.join(folder, OWN))):
            if not MARKER.fullmatch(name):
                continue
            marker = read(os.path.join(folder, OWN, name))
            if marker is None:
                continue
            listed.append({
                "folder": os.path.relpath(folder, root),
                "key": name[:-5],
                "is_there": all(os.path.lexists(os.path.join(folder, each)) for each in marker["names"]),
                **{key: marker.get(key) for key in TOLD},
                "names": marker["names"],
            })  # fmt: skip
    return listed


def folders(root: str) -> Iterator[str]:
    """Folders with markers, not through links, the nearest first."""
    level, seen = [root], 0
    for _ in range(DEEPEST + 1):
        below: list[str] = []
        for folder in level:
            seen += 1
            if seen > MOST_FOLDERS:
                return
            try:
                with os.scandir(folder) as entries:
                    inside = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            except OSError:  # of somebody else
                continue
            if OWN in inside:
                yield folder
            below += [os.path.join(folder, name) for name in inside if name != OWN]
        level = below


def read(path: str) -> dict[str, Any] | None:
    """None for what is no marker."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
            marker = json.loads(file.read(MOST_MARKER))
    except (OSError, ValueError, RecursionError):
        return None
    names = marker.get("names") if isinstance(marker, dict) else None
    if not isinstance(names, list) or not all(is_name(each) for each in names):
        return None
    return dict(marker)


def is_name(name: object) -> bool:
    return isinstance(name, str) and name not in ("", ".", "..", OWN) and "/" not in name and "\0" not in name


def check(root: str, folder: str, key: str) -> dict[str, Any]:
    """Whether the files of an import are those that were imported; `trouble` says what is not."""
    place, marker = opened(root, folder, key)
    missing = [name for name in marker["names"] if not os.path.lexists(os.path.join(place, name))]
    if missing:
        return {"trouble": f"{missing[0]} is not there"}
    files, size = measured(place, marker["names"])
    wanted = (marker.get("files"), marker.get("bytes"))
    if None not in wanted and (files, size) != wanted:
        text = f"{files} files of {size} bytes are there, and {wanted[0]} of {wanted[1]} bytes were imported"
        return {"trouble": text, "files": files, "bytes": size}
    digest = marker.get("sha256")
    if digest and not marker.get("is_unpacked", True) and files == 1:
        now = sha256(os.path.join(place, marker["names"][0]))
        if now != digest:
            return {"trouble": f"{marker['names'][0]} is another file now: its sha256 is {now}"}
    return {"trouble": "", "files": files, "bytes": size}


def drop(root: str, folder: str, key: str) -> dict[str, Any]:
    """Remove an import: the names that no other import has too, then its marker."""
    place, marker = opened(root, folder, key)
    own = os.path.join(place, OWN)
    lock = os.open(os.path.join(own, key + ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError("it is being imported at this moment") from None
        others = (
            read(os.path.join(own, name)) for name in os.listdir(own) if MARKER.fullmatch(name) and name[:-5] != key
        )
        kept = {name for other in others if other is not None for name in other["names"]}
        # First: whoever looks meanwhile finds no whole import.
        os.unlink(os.path.join(own, key + ".json"))
        for name in marker["names"]:
            if name not in kept:
                remove(os.path.join(place, name))
    finally:
        os.close(lock)
    return {"removed": [name for name in marker["names"] if name not in kept]}


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def opened(root: str, folder: str, key: str) -> tuple[str, dict[str, Any]]:
    """The folder of an import below `root`, and its marker. Raises ValueError, FileNotFoundError."""
    place = os.path.normpath(os.path.join(root, folder))
    if os.path.commonpath([os.path.realpath(root), os.path.realpath(place)]) != os.path.realpath(root):
        raise ValueError(f"{folder} leads out of the volume")
    path = os.path.join(place, OWN, key + ".json")
    marker = read(path) if MARKER.fullmatch(key + ".json") else None
    if marker is None:
        raise FileNotFoundError(2, "no such import", path)
    return place, marker


def measured(place: str, names: list[str]) -> tuple[int, int]:
    """Files and bytes below these names, links not followed."""
    files = size = 0
    for name in names:
        path = os.path.join(place, name)
        if not os.path.isdir(path) or os.path.islink(path):
            files, size = files + 1, size + os.lstat(path).st_size
            continue
        for folder, _, inside in os.walk(path):
            for each in inside:
                files, size = files + 1, size + os.lstat(os.path.join(folder, each)).st_size
    return files, size


def sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            data = file.read(BLOCK)
            if not data:
                return digest.hexdigest()
            digest.update(data)


if __name__ == "__main__":
    main(sys.argv[1:])
