"""Data import, once for all runs: downloaded, checked, unpacked, and marked as done, so that the next run finds it in
place.

Everything is prepared in the folder `.longboat` inside the target and moved out at the end; the marker comes last.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from longboat.bundles import durable
from longboat.bundles.disk import errors_explained, remove_tree, replace_file
from longboat.bundles.trees import TreeLimits
from longboat.core.errors import EngineError
from longboat.storage.download import DEFAULT_TRANSFER, Transfer, fetch, file_name, redacted
from longboat.storage.imported.import_program import measured
from longboat.storage.urls import check_import, is_object_url, is_secret, object_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from longboat.core.jobs import DataImport
    from longboat.storage.transfers import Progress

ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")
# The user asked for it, so only what cannot be meant is refused.
DATA_LIMITS = TreeLimits(max_bytes=64 << 40, max_files=50_000_000, max_ratio=1000, ratio_from=1 << 30)
_OWN = ".longboat"
_MOST_NAMES = 100  # at the top of an import; the marker stays small
_MOST_MARKER = 1 << 20  # a hundred names, each of at most 255 bytes


def import_data(
    item: DataImport,
    target: Path,
    *,
    progress: Progress | None = None,
    transfer: Transfer = DEFAULT_TRANSFER,
    environment: Mapping[str, str] | None = None,
) -> bool:
    """See that the data is in the folder `target`; True when it had to be fetched, False when it was there.

    Any number of processes may ask at once: one imports, the others wait for it. Raises EngineError, Refused for a URL
    that can never work, BundleError for a hostile archive; then nothing of the import is to be seen. `environment` has
    the credentials of object stores; by default it is that of this process.
    """
    check_import(item.url, item.sha256)
    place = os.path.abspath(target)
    key = hashlib.sha256("\0".join((item.url, item.sha256 or "", str(item.unpack))).encode()).hexdigest()[:24]
    marker = f"{place}/{_OWN}/{key}.json"
    if _is_done(marker, place):
        return False
    with errors_explained(place):
        os.makedirs(f"{place}/{_OWN}", exist_ok=True)
        if os.path.islink(f"{place}/{_OWN}"):
            raise EngineError(f"{place}/{_OWN} is a link, and the import would go where it leads", hint="remove it")
        with _locked(f"{place}/{_OWN}/{key}.lock"):
            if _is_done(marker, place):
                return False
            given = os.environ if environment is None else environment
            _import(item, place, key, _Means(progress, transfer, given))
    return True


def _is_done(marker: str, place: str) -> bool:
    try:
        with open(marker, "rb") as file:
            names = json.loads(file.read(_MOST_MARKER))["names"]
        # Somebody may have emptied the folder and left ours.
        return all(os.path.lexists(f"{place}/{name}") for name in names)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False


@contextmanager
def _locked(path: str) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


class _Means(NamedTuple):
    progress: Progress | None
    transfer: Transfer
    environment: Mapping[str, str]


def _import(item: DataImport, place: str, key: str, means: _Means) -> None:
    own = f"{place}/{_OWN}"
    part, stage = f"{own}/{key}.part", f"{own}/{key}.stage"
    remove_tree_if_there(stage)
    if os.path.islink(part):
        os.unlink(part)
    if is_object_url(item.url) and object_url(item.url).is_prefix:
        from longboat.storage.download_prefix import fetch_below

        size = fetch_below(object_url(item.url), part, stage, means.environment, means.transfer, means.progress)
        digest = tag = None
    else:
        tag = fetch(item.url, part, transfer=means.transfer, progress=means.progress, environment=means.environment)
        digest, size = _checked(item, part), os.stat(part).st_size
        _fill(item, part, stage)
    is_unpacked = not os.path.isfile(f"{stage}/{file_name(item.url)}")
    every = sorted(os.listdir(stage))
    # What `longboat data verify` compares with; where there are more names than a marker holds, nothing.
    files, content = measured(stage, every) if len(every) <= _MOST_NAMES else (None, None)
    names = every[:_MOST_NAMES]  # what lies in the target because of this import, at its top
    # The marker says "all is here" for ever: what it speaks of must be on the disk before it is.
    durable.sync_tree(stage)
    for folder in _merge(stage, place):
        durable.sync_folder(folder)
    remove_tree_if_there(stage)
    marker = {
        "url": redacted(item.url),
        "is_secret": is_secret(item.url),
        "tag": tag,
        "sha256": digest,
        "size": size,
        "time": time.time(),
        "names": names,
        "is_unpacked": is_unpacked,
        "files": files,
        "bytes": content,
    }
    replace_file(f"{own}/{key}.json", json.dumps(marker).encode(), own, is_durable=True)
    remove_tree_if_there(part)


def _fill(item: DataImport, part: str, stage: str) -> None:
    """Put the file, or what is in it, into the folder `stage`."""
    name = file_name(item.url)
    if item.unpack and name.lower().endswith(ARCHIVE_ENDINGS):
        from longboat.bundles.extraction import extract  # here: only an archive needs it

        try:
            extract(Path(part), Path(stage), DATA_LIMITS)
        except BaseException as error:
            _raise_with_url(error, part, item.url)
            raise
    else:
        os.mkdir(stage)
        os.rename(part, f"{stage}/{name}")


def _checked(item: DataImport, part: str) -> str:
    """The sha256 of the download; one that is not the one asked for is thrown away."""
    digest = hashlib.sha256()
    with open(part, "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    checked = digest.hexdigest()
    if item.sha256 is not None and checked != item.sha256.lower():
        os.unlink(part)
        raise EngineError(
            f"{redacted(item.url)}: the sha256 is {checked}, not {item.sha256.lower()}",
            hint="the content has changed or was damaged on the way; correct `sha256` if the new content is right",
        )
    return checked


def _raise_with_url(error: BaseException, part: str, url: str) -> None:
    """A user knows the URL, not our name for the download."""
    if os.path.exists(part):
        os.unlink(part)
    message = getattr(error, "message", None)
    if isinstance(message, str):
        error.message = message.replace(part, redacted(url))  # type: ignore[attr-defined]
        error.args = (message.replace(part, redacted(url)),)


def _merge(stage: str, place: str) -> list[str]:
    """Move everything into place. A folder that exists is filled; a file of the same name is replaced.

    Answers with the folders that have got new names.
    """
    conflict = _conflict(stage, place)
    if conflict is not None:
        raise EngineError(f"{conflict}: in the way of the data import", hint="remove it, or import to another folder")
    with os.scandir(stage) as children:
        entries = [(child.name, child.is_dir(follow_symlinks=False)) for child in children]
    changed = [place]
    for name, is_folder in sorted(entries):
        if is_folder and os.path.isdir(f"{place}/{name}"):
            changed += _merge(f"{stage}/{name}", f"{place}/{name}")
        else:
            os.replace(f"{stage}/{name}", f"{place}/{name}")
    return changed


def _conflict(stage: str, place: str) -> str | None:
    """The first path at which a folder would meet something else; links count as something else, for they lead away."""
    with os.scandir(stage) as children:
        for child in children:
            there = f"{place}/{child.name}"
            if not os.path.lexists(there):
                continue
            is_folder = child.is_dir(follow_symlinks=False)
            if is_folder != (os.path.isdir(there) and not os.path.islink(there)) or child.name == _OWN:
                return there
            if is_folder and (deeper := _conflict(child.path, there)) is not None:
                return deeper
    return None


def remove_tree_if_there(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        remove_tree(path)
    elif os.path.lexists(path):
        os.unlink(path)
