"""Imports on a volume as values: what their markers tell, and whether their sources have changed since."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from longboat.core.errors import LongboatError, UsageError
from longboat.core.guards.decoding import convert
from longboat.core.jobs import DataImport, Value
from longboat.storage.download import current_tag
from longboat.storage.urls import is_object_url, object_url


class ImportedData(Value, frozen=True):
    """One import. `longboat data ls -o json` prints these fields."""

    folder: str  # in the volume; `.`: the volume itself
    key: str
    names: tuple[str, ...] = ()  # what it brought, at the top of the folder
    is_there: bool = True
    url: str | None = None  # without what is secret in it; None: of an older Longboat
    is_secret: bool | None = None
    tag: str | None = None  # of the source: an ETag, or the time of its last change
    sha256: str | None = None
    size: int | None = None  # of the download
    time: float | None = None
    files: int | None = None
    bytes: int | None = None  # of the files


def read_imports(answer: Any) -> list[ImportedData]:
    """As `import_program.imports` tells them; what is none is passed over: others write on a volume too."""
    listed = []
    for each in answer if isinstance(answer, list) else ():
        try:
            listed.append(convert(each, ImportedData))
        except ValueError:
            continue
    return listed


def source_news(imported: ImportedData, environment: Mapping[str, str], *, url: str | None = None) -> str:
    """What the source says now. Begins with `changed` where it has. `url`: the whole of one that is secret."""
    address = url or imported.url
    if address is None or (imported.is_secret and url is None):
        return "not asked: its whole URL was not kept"
    if is_object_url(address) and object_url(address).is_prefix:
        return "not asked: many objects have no tag together"
    if imported.tag is None:
        return "not known: the source gave no tag when it was imported"
    try:
        now = current_tag(address, environment=environment)
    except LongboatError as error:
        return f"not known: {error.message}"
    if now is None:
        return "not known: the source gives no tag"
    return "the source is unchanged" if now == imported.tag else f"changed at its source ({imported.tag} is {now} now)"


def place_in(mount: str, folder: str) -> str:
    """The path of a folder of a volume. Raises UsageError for one that leads out of it. Pure."""
    path = posixpath.normpath(posixpath.join(mount, folder))
    if path != mount and not path.startswith(f"{mount}/"):
        raise UsageError(f"{folder} leads out of the volume")
    return path


def run_name(volume: str, item: DataImport) -> str:
    """The same for all who ask for the same: one run imports it. Pure."""
    mark = hashlib.sha256("\0".join((volume, item.to, item.url, item.sha256 or "", str(item.unpack))).encode())
    plain = re.sub(r"[^a-z0-9]+", "-", volume.lower()).strip("-")[:20].strip("-")
    return f"data-{plain}-{mark.hexdigest()[:10]}"
