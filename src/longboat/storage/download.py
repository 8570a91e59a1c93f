"""Download of one URL into one file: http, https, s3, gs, az and file. Knows nothing of archives.

Messages name a URL without its user, password and query, which may be secrets.
Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import os
import urllib.parse
from typing import TYPE_CHECKING

from longboat.bundles.disk import errors_explained, explain
from longboat.core.errors import EngineError
from longboat.storage.transfers import (
    BROKEN,
    CHUNK,
    DEFAULT_TRANSFER,
    Download,
    Transfer,
    not_through_links,
    reason_of,
    tag_of,
)
from longboat.storage.urls import check_url, file_name, is_object_url, object_url, redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from longboat.storage.transfers import Progress, Source

__all__ = ["DEFAULT_TRANSFER", "Transfer", "check_url", "current_tag", "fetch", "file_name", "redacted"]


def fetch(
    url: str,
    place: str,
    *,
    transfer: Transfer = DEFAULT_TRANSFER,
    progress: Progress | None = None,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """Bring the content of the URL to the file `place`. What an earlier call left there is carried on where the server
    can tell that it is still the same content. `environment` has the credentials of stores. Raises EngineError.

    Answers with what the server calls this content: an ETag, or the time of its last change."""
    check_url(url)
    if urllib.parse.urlsplit(url).scheme == "file":
        _copy_local(url, place, progress)
        return _local_tag(url)
    with errors_explained(place):
        download = Download(_source(url, transfer, environment), place, transfer, progress)
        download.run()
    return download.tag


def current_tag(url: str, *, environment: Mapping[str, str]) -> str | None:
    """What the source calls its content now, as `fetch` answers; nothing is read of it. Raises EngineError."""
    check_url(url)
    if urllib.parse.urlsplit(url).scheme == "file":
        return _local_tag(url)
    source, timeout_s = _source(url, DEFAULT_TRANSFER, environment), DEFAULT_TRANSFER.timeout_s
    try:
        with source.open(0, None, timeout_s) as response:
            return tag_of(response)
    except BROKEN as error:
        raise EngineError(f"{source.shown}: cannot be asked: {reason_of(error, timeout_s)}") from None


def _local_tag(url: str) -> str | None:
    try:
        state = os.stat(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
    except OSError:
        return None
    return f"{state.st_mtime_ns}-{state.st_size}"


def _source(url: str, transfer: Transfer, environment: Mapping[str, str] | None) -> Source:
    if is_object_url(url):
        from longboat.storage.stores.object_store import ObjectSource
        from longboat.storage.stores.registry import open_store

        where = object_url(url)
        store = open_store(where, os.environ if environment is None else environment, transfer)
        return ObjectSource(store, where.key)
    from longboat.storage.http_source import WebSource

    return WebSource(url)


def _copy_local(url: str, place: str, progress: Progress | None) -> None:
    source = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    try:
        with open(source, "rb") as reader, open(place, "wb", opener=not_through_links) as writer:
            total, done = os.fstat(reader.fileno()).st_size, 0
            while data := reader.read(CHUNK):
                writer.write(data)
                done += len(data)
                if progress is not None:
                    progress(done, total)
    except OSError as error:
        if error.filename == source:
            raise EngineError(f"{source}: cannot be read: {error.strerror}") from None
        raise explain(error, place) from None
