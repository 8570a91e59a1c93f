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
from longboat.storage.transfers import CHUNK, DEFAULT_TRANSFER, Download, Transfer, not_through_links
from longboat.storage.urls import check_url, file_name, is_object_url, object_url, redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from longboat.storage.transfers import Progress, Source

__all__ = ["DEFAULT_TRANSFER", "Transfer", "check_url", "fetch", "file_name", "redacted"]


def fetch(
    url: str,
    place: str,
    *,
    transfer: Transfer = DEFAULT_TRANSFER,
    progress: Progress | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Bring the content of the URL to the file `place`. What an earlier call left there is carried on where the server
    can tell that it is still the same content. `environment` has the credentials of stores. Raises EngineError."""
    check_url(url)
    if urllib.parse.urlsplit(url).scheme == "file":
        _copy_local(url, place, progress)
        return
    source: Source
    if is_object_url(url):
        from longboat.storage.stores.object_store import ObjectSource
        from longboat.storage.stores.registry import open_store

        where = object_url(url)
        store = open_store(where, os.environ if environment is None else environment, transfer)
        source = ObjectSource(store, where.key)
    else:
        from longboat.storage.http_source import WebSource

        source = WebSource(url)
    with errors_explained(place):
        Download(source, place, transfer, progress).run()


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
