"""The store that a URL means. Credentials come from the environment that is given, never from the URL.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from longboat.storage.transfers import DEFAULT_TRANSFER, Transfer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from longboat.storage.stores.object_store import ObjectStore
    from longboat.storage.urls import ObjectUrl


def open_store(where: ObjectUrl, environment: Mapping[str, str], transfer: Transfer = DEFAULT_TRANSFER) -> ObjectStore:
    """Raises EngineError for an environment that makes no sense. Nothing is asked for yet."""
    if where.scheme == "s3":
        from longboat.storage.stores.s3 import S3

        return S3(where, environment, transfer)
    if where.scheme == "gs":
        from longboat.storage.stores.gcs import Gcs

        return Gcs(where, environment, transfer)
    from longboat.storage.stores.azure import Azure

    return Azure(where, environment, transfer)
